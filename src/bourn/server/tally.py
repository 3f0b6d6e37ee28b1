"""Counting what becomes of the answers of one model. Plain numbers, added to in the event loop."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate

from bourn.errors import BournError
from bourn.stream import Origin
from bourn.types import Done, FinishReason

BOUNDS = tuple(digit * 10.0**power for power in range(-3, 3) for digit in (1, 2, 5))
"""Seconds, from a millisecond to 500 seconds: for waits of all kinds."""

_bucket = partial(bisect_left, BOUNDS)


class Histogram:
    """How many values lay below each of the `BOUNDS`, and their sum."""

    def __init__(self) -> None:
        self.sum = 0.0
        self._counts: Counter[int] = Counter()

    def add(self, values: Sequence[float]) -> None:
        self._counts.update(map(_bucket, values))  # no loop of our own: it is called for each token
        self.sum += sum(values)

    def below(self) -> Iterable[int]:
        """The number of values up to each bound, and last of all of them."""
        return accumulate(self._counts[bucket] for bucket in range(len(BOUNDS) + 1))


class Tally:
    """One model's numbers since the server was started.

    ttft, itl, queue_time: of every answer that came so far. total: of those that are whole.
    prompt_tokens, tokens, cached_tokens: read, generated, and not read again; whatever became of
    the answer. finished: choices, by the reason of their end. failed: answers, by the error's code.
    origins: requests, by where their answers came from.
    """

    def __init__(self) -> None:
        self.ttft = Histogram()
        self.itl = Histogram()
        self.queue_time = Histogram()
        self.total = Histogram()
        self.prompt_tokens = 0
        self.tokens = 0
        self.cached_tokens = 0
        self.cancelled = 0
        self.finished: Counter[FinishReason] = Counter()
        self.failed: Counter[str] = Counter()
        self.origins: Counter[Origin] = Counter()

    def ended(self, done: Done, reasons: Iterable[FinishReason], gaps: Sequence[float]) -> None:
        """A generation has ended. gaps: seconds between its tokens."""
        times = done.metrics
        if times.ttft is not None:
            self.ttft.add((times.ttft,))
        self.itl.add(gaps)
        self.queue_time.add((times.queue_time,))
        self.prompt_tokens += done.usage.prompt_tokens
        self.tokens += done.usage.completion_tokens
        self.cached_tokens += done.usage.cached_tokens
        if done.state == "complete":
            self.total.add((times.total,))
            self.finished.update(reasons)
        elif done.state == "cancelled":
            self.cancelled += 1
        else:
            self.failed[_code(done)] += 1


def _code(done: Done) -> str:
    """One of few: what an error says is no label."""
    if done.error is None:
        return done.state
    return done.error.code if isinstance(done.error, BournError) else BournError.code
