"""Tokens a second through bourn against the same llama.cpp server asked directly, in pairs."""

from __future__ import annotations

import asyncio
from time import process_time

import bourn
from bench.direct import ask
from bench.pairs import ratio, row
from bourn.asking import Options
from bourn.types import Sampling

TOKENS = 100
QUESTION = "Tell a long story about a river."
SAMPLING = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=7).given()


async def measure(pairs: int) -> None:
    through, directly, cpu = [], [], []
    options: Options = {"max_new_tokens": TOKENS, "ignore_eos": True, **SAMPLING}  # type: ignore[typeddict-item]
    async with bourn.aio.load("smollm2", slots=1) as model:
        socket = model.hub.engine._berth.path  # type: ignore[attr-defined]  # it is a LlamaCpp
        for number in range(pairs + 1):
            began = process_time()
            stream = model.stream(QUESTION, **options)
            await stream.read()
            used = process_time() - began
            told = await ask(socket, QUESTION, max_tokens=TOKENS, ignore_eos=True, **SAMPLING)
            if number == 0:  # the first pair reads the model from disk
                continue
            assert stream.metrics.tokens_per_second is not None
            through.append(stream.metrics.tokens_per_second)
            directly.append(told.tokens_per_second)
            cpu.append(used / stream.metrics.tokens * 1e6)
    print(row("through bourn", through, "tokens/s"))
    print(row("asked directly", directly, "tokens/s"))
    print(f"ratio: {ratio(through, directly)}")
    print(row("bourn's CPU time", cpu, "µs a token"))


def main(pairs: int = 25) -> None:
    asyncio.run(measure(pairs))


if __name__ == "__main__":
    main()
