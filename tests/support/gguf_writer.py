"""Writes small GGUF files: real headers with any metadata, and weights of zeros."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from struct import pack

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10

Value = bool | int | float | str | list[str] | list[int]

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

TINY: Mapping[str, Value] = {
    "general.architecture": "llama",
    "general.type": "model",
    "general.name": "Tiny",
    "general.size_label": "1K",
    "general.file_type": 15,
    "llama.context_length": 2048,
    "tokenizer.ggml.tokens": ["<s>", "</s>", "a"],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.chat_template": CHATML,
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One of 32-bit floats."""

    name: str = "token_embd.weight"
    shape: tuple[int, ...] = (32, 3)


def gguf_bytes(
    metadata: Mapping[str, Value] = TINY,
    tensors: Iterable[Tensor] = (Tensor(),),
    *,
    version: int = 3,
    without: Iterable[str] = (),
) -> bytes:
    told = {key: value for key, value in metadata.items() if key not in set(without)}
    tensors = list(tensors)
    header = b"GGUF" + pack("<IQQ", version, len(tensors), len(told))
    for key, value in told.items():
        header += _text(key) + _value(value)
    offset = 0
    for tensor in tensors:
        header += _text(tensor.name) + pack("<I", len(tensor.shape))
        header += pack(f"<{len(tensor.shape)}Q", *tensor.shape) + pack("<IQ", 0, offset)
        offset += prod(tensor.shape) * 4
    header += bytes(-len(header) % 32)
    return header + bytes(offset)


def write_gguf(
    path: Path, more: Mapping[str, Value] | None = None, *, without: Iterable[str] = ()
) -> Path:
    """A tiny valid model at `path`, folders included; `more` metadata goes over `TINY`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gguf_bytes({**TINY, **(more or {})}, without=without))
    return path


def _text(text: str) -> bytes:
    raw = text.encode()
    return pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    match value:
        case bool():
            return pack("<I?", BOOL, value)
        case int() if value < 0:
            return pack("<Ii", I32, value)
        case int() if value >= 1 << 32:
            return pack("<IQ", U64, value)
        case int():
            return pack("<II", U32, value)
        case float():
            return pack("<If", F32, value)
        case str():
            return pack("<I", STRING) + _text(value)
        case list():
            return pack("<I", ARRAY) + _array(value)


def _array(values: list[str] | list[int]) -> bytes:
    if values and isinstance(values[0], str):
        return pack("<IQ", STRING, len(values)) + b"".join(_text(str(each)) for each in values)
    return pack("<IQ", I32, len(values)) + b"".join(pack("<i", int(each)) for each in values)
