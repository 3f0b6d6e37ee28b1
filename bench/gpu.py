"""What must hold on a CUDA machine, in under six minutes: `python -m bench.gpu`.

Needs no hub and no weights: models of random weights, the larger one of Llama 3.2's shape. It says
what it saw and exits 1 where something does not hold: rows in one batch are what they are alone, 64
streams run at once, and what is cancelled stops. `--device cpu --tiny` tries the script itself.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import bourn
from bourn.aio import Model
from tests.support import tiny_tokenizers

STREAMS = 64
TOKENS = 128
EXACT = 1e-3
"""The largest difference of log probabilities in float32, between a row in a batch and alone."""


def made(device: str, dtype: torch.dtype, *, tiny: bool) -> Any:
    """A model of random weights that speaks the vocabulary of the tiny tokenizer."""
    size = (64, 128, 2, 4, 2) if tiny else (2048, 8192, 16, 32, 8)
    hidden, inner, layers, heads, kv_heads = size
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tiny_tokenizers.chatml()),
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=8192,
        eos_token_id=None,
    )
    with torch.device(device):
        model = LlamaForCausalLM(config).to(dtype).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(2 if weights.ndim > 1 else 1)
    return model


def asked(number: int) -> str:
    return f"{number}: " + "a story " * (number % 7 * 12 + 1)


async def told(model: Model, number: int, **options: Any) -> Any:
    stream = model.stream(asked(number), temperature=0, ignore_eos=True, **options)
    await stream.read()
    return stream


async def exactness(device: str) -> bool:
    """Log probabilities of rows that join and leave, against a plain forward of each alone."""
    reference = made(device, torch.float32, tiny=True)
    tokenizer = tiny_tokenizers.chatml()
    async with bourn.aio.hf(made(device, torch.float32, tiny=True), tokenizer, slots=16) as model:
        counts = [(number * 5) % 23 + 2 for number in range(48)]
        streams = await asyncio.gather(
            *(told(model, n, max_new_tokens=count, logprobs=0) for n, count in enumerate(counts))
        )
        worst = 0.0
        for number, stream in enumerate(streams):
            ids = tokenizer.apply_chat_template(
                [{"role": "user", "content": asked(number)}],
                add_generation_prompt=True,
                return_tensors="pt",
                return_dict=True,
            )["input_ids"].to(device)
            for entry in stream.logprobs:
                with torch.inference_mode():
                    alone = reference(ids).logits[0, -1].float().log_softmax(-1)
                token = int(alone.argmax())
                worst = max(worst, abs(float(alone[token]) - entry.logprob))
                ids = torch.cat([ids, torch.tensor([[token]], device=device)], 1)
    print(f"48 rows joining and leaving 16 slots: log probabilities differ by {worst:.1e} at most")
    return worst <= EXACT


async def together(model: Model) -> bool:
    """64 streams against one, in tokens a second."""
    await told(model, 0, max_new_tokens=8)
    one = await told(model, 1, max_new_tokens=TOKENS)
    began = time.perf_counter()
    streams = await asyncio.gather(*(told(model, n, max_new_tokens=TOKENS) for n in range(STREAMS)))
    seconds = time.perf_counter() - began
    speed = sum(stream.usage.completion_tokens for stream in streams) / seconds
    slowest = max(stream.metrics.itl_p99 or 0 for stream in streams)
    print(
        f"{STREAMS} streams: {speed:.0f} tokens/s together, one alone "
        f"{one.metrics.tokens_per_second:.0f}; slowest p99 between tokens {slowest * 1000:.0f} ms"
    )
    return all(stream.usage.completion_tokens == TOKENS for stream in streams)


async def cancelled(model: Model) -> bool:
    """Half of 64 streams are left in the middle, some queued, one in a long prompt."""
    streams = [
        model.stream(asked(n), temperature=0, ignore_eos=True, max_new_tokens=4096)
        for n in range(STREAMS)
    ]
    long = model.stream("a long story " * 500, temperature=0, max_new_tokens=8)
    await asyncio.sleep(1)
    began = time.perf_counter()
    for stream in [*streams, long]:
        await stream.cancel()
    while model.hub.live:  # noqa: ASYNC110 (a hub tells nobody that it is idle)
        await asyncio.sleep(0.001)
    idle = time.perf_counter() - began
    again = await told(model, 0, max_new_tokens=8)
    print(f"{STREAMS} streams and a long prompt cancelled: idle after {idle * 1000:.0f} ms")
    return idle < 2 and again.usage.completion_tokens == 8


async def run(device: str, *, tiny: bool) -> list[str]:
    """The names of what does not hold."""
    failed = [] if await exactness(device) else ["exactness"]
    dtype = torch.float32 if tiny else torch.bfloat16
    loaded = made(device, dtype, tiny=tiny)
    async with bourn.aio.hf(loaded, tiny_tokenizers.chatml(), slots=STREAMS) as model:
        print(f"{model.info.slots} slots of {model.info.window} tokens")
        parts: list[Callable[[Model], Awaitable[bool]]] = [together, cancelled]
        failed += [part.__name__ for part in parts if not await part(model)]
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("there is no CUDA device here; --device cpu --tiny tries the script itself")
    began = time.perf_counter()
    failed = asyncio.run(run(options.device, tiny=options.tiny))
    print(f"{time.perf_counter() - began:.0f} s")
    sys.exit(f"does not hold: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
