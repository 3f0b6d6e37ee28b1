"""A against B in turn, and the ratio with its interval."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ratio:
    """The geometric mean of the pairs' ratios A/B, and its 95 % interval by bootstrap."""

    mean: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f}, {self.pairs} pairs)"


def ratio(a: Sequence[float], b: Sequence[float], *, draws: int = 10_000) -> Ratio:
    """Of pairs measured one right after the other, so that a slow moment hits both alike."""
    logs = [math.log(x / y) for x, y in zip(a, b, strict=True)]
    dice = random.Random(1)
    means = sorted(statistics.fmean(dice.choices(logs, k=len(logs))) for _ in range(draws))
    return Ratio(
        mean=math.exp(statistics.fmean(logs)),
        low=math.exp(means[int(0.025 * draws)]),
        high=math.exp(means[int(0.975 * draws)]),
        pairs=len(logs),
    )


def row(name: str, values: Sequence[float], unit: str) -> str:
    """`name: median unit (lowest to highest)`."""
    middle = statistics.median(values)
    return f"{name}: {middle:.4g} {unit} ({min(values):.4g} to {max(values):.4g})"
