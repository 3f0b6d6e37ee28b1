"""How fast a model streams through bourn: so many streams at once, several rounds."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from bourn.aio import Model
from bourn.asking import Options
from bourn.types import Metrics


@dataclass(frozen=True, slots=True)
class Round:
    """One round of `streams` answers at once. Rates in tokens a second, times in seconds."""

    streams: int
    tokens: int
    seconds: float
    ttft: float | None
    itl_p50: float | None
    itl_p99: float | None

    @property
    def tokens_per_second(self) -> float:
        """Of all streams together, waiting and prompt included."""
        return self.tokens / self.seconds


async def measure(
    model: Model, streams: Sequence[int], *, rounds: int, max_new_tokens: int
) -> AsyncIterator[Round]:
    """`rounds` rounds for each number of streams, in turn, after one answer to warm up.

    Raises:
        BournError: what the model raises.
    """
    await model.stream("Say hi.", max_new_tokens=4).read()
    for number in range(rounds):
        for count in streams:
            yield await _round(model, count, number, max_new_tokens)


async def _round(model: Model, count: int, number: int, max_new_tokens: int) -> Round:
    began = perf_counter()
    told = await asyncio.gather(
        *(_one(model, f"{number}.{i}: tell a long story.", max_new_tokens) for i in range(count))
    )
    seconds = perf_counter() - began
    return Round(
        streams=count,
        tokens=sum(metrics.tokens for metrics in told),
        seconds=seconds,
        ttft=_median([metrics.ttft for metrics in told]),
        itl_p50=_median([metrics.itl_p50 for metrics in told]),
        itl_p99=_median([metrics.itl_p99 for metrics in told]),
    )


async def _one(model: Model, question: str, max_new_tokens: int) -> Metrics:
    options: Options = {"max_new_tokens": max_new_tokens}
    if "ignore_eos" in model.info.honours:
        options["ignore_eos"] = True
    stream = model.stream(question, **options)
    await stream.read()
    return stream.metrics


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
