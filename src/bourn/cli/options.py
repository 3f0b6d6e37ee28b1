"""The flags that commands share, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated

from typer import Option

from bourn.settings import Settings

Model = Annotated[
    str | None,
    Option(
        "-m",
        "--model",
        help="smollm2, a .gguf file, a folder, org/name, https://host/v1#model, openai:…",
        show_default=False,
    ),
]
System = Annotated[str | None, Option("-s", "--system", help="A system message.")]
MaxNewTokens = Annotated[
    int | None, Option("--max-new-tokens", min=1, help="The most tokens to generate [1024].")
]
Temperature = Annotated[float | None, Option(help="0 is greedy.")]
TopP = Annotated[float | None, Option(help="Nucleus sampling.")]
TopK = Annotated[int | None, Option(help="The k likeliest tokens; 0 is off.")]
MinP = Annotated[float | None, Option(help="Least share of the likeliest token's probability.")]
Seed = Annotated[int | None, Option(help="The same seed, the same answer. Drawn when not given.")]
Stop = Annotated[list[str] | None, Option(help="A text that ends the answer. May be repeated.")]
ChatTemplate = Annotated[
    str | None, Option(metavar="NAME|FILE", help="A chat template: chatml, llama3, … or a file.")
]
Window = Annotated[int | None, Option(min=1, help="Context window in tokens, prompt and answer.")]
Threads = Annotated[int | None, Option(min=1, help="CPU threads of a local model.")]
CpuOnly = Annotated[
    bool | None, Option("--cpu-only", help="Leave a GPU alone.", show_default=False)
]
LlamaServer = Annotated[
    Path | None, Option(metavar="PATH", help="Your own build of llama-server, for a GGUF file.")
]
KeepAlive = Annotated[
    str | None,
    Option(
        metavar="TIME",
        help="Keep a GGUF file loaded for so long, for the next run: 90, 5m, 1h; 0 is off.",
    ),
]
Dtype = Annotated[
    str | None,
    Option(metavar="DTYPE", help="Of a checkpoint's weights: auto, float32, bfloat16, float16."),
]
Device = Annotated[
    str | None, Option(metavar="DEVICE", help="For a checkpoint: auto, cpu, cuda, cuda:1, mps.")
]
Quantization = Annotated[
    str | None,
    Option(metavar="4bit|8bit", help="Make a checkpoint smaller while loading (bitsandbytes)."),
]
TrustRemoteCode = Annotated[
    bool | None,
    Option(
        "--trust-remote-code",
        help="Run Python code that comes with a checkpoint, with all your rights.",
        show_default=False,
    ),
]
Compile = Annotated[
    bool | None,
    Option(
        "--compile", help="Compile a checkpoint: slower to begin, then faster.", show_default=False
    ),
]
Stats = Annotated[bool, Option("--stats", help="Say how fast it was, on stderr.")]


def flags(parameters: Mapping[str, object]) -> dict[str, object]:
    """Of a command's parameters, those that are settings."""
    known = {field.name for field in fields(Settings)}
    return {name: value for name, value in parameters.items() if name in known}
