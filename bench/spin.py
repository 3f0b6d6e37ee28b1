"""Eight streams beside a busy core: bourn's child against one with OpenMP's default spinning."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import bourn
from bench.pairs import ratio, row
from bourn.aio import Model

STREAMS = 8
TOKENS = 8


def _burn(core: int) -> None:
    os.sched_setaffinity(0, {core})
    while True:
        pass


@contextmanager
def busy(core: int) -> Iterator[None]:
    """A process that keeps one core busy."""
    process = multiprocessing.Process(target=_burn, args=(core,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


async def speed(model: Model, number: int) -> float:
    """Tokens a second of eight streams together."""
    began = perf_counter()
    streams = [
        model.stream(f"{number}.{n}: a story.", max_new_tokens=TOKENS, ignore_eos=True)
        for n in range(STREAMS)
    ]
    await asyncio.gather(*(stream.read() for stream in streams))
    return sum(stream.metrics.tokens for stream in streams) / (perf_counter() - began)


@contextmanager
def openmp_untouched() -> Iterator[None]:
    """bourn leaves OpenMP alone where its user has set anything of it, such as this."""
    os.environ["OMP_DISPLAY_ENV"] = "false"
    try:
        yield
    finally:
        del os.environ["OMP_DISPLAY_ENV"]


async def measure(pairs: int) -> None:
    ours, defaults = [], []
    async with bourn.aio.load("smollm2", slots=STREAMS, window=512) as model:
        other = bourn.aio.load("smollm2", slots=STREAMS, window=512)
        with openmp_untouched():
            await other.start()
        async with other:
            for number in range(pairs):
                ours.append(await speed(model, number))
                defaults.append(await speed(other, number))
    print(row("bourn's child", ours, "tokens/s"))
    print(row("llama.cpp's defaults", defaults, "tokens/s"))
    print(f"ratio: {ratio(ours, defaults)}")


def main(pairs: int = 15) -> None:
    with busy(0):
        print("eight streams, one core busy")
        asyncio.run(measure(pairs))
    print("eight streams, nothing else")
    asyncio.run(measure(pairs))


if __name__ == "__main__":
    main()
