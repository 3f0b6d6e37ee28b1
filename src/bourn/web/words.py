"""Words for where an answer stands, and how fast it was; for eyes and for screen readers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from bourn.chat import Turn
from bourn.metrics import feel_of_speed, feel_of_start
from bourn.types import FinishReason, Metrics
from bourn.web.heard import Phase


class Standing(Protocol):
    """As much of an `Answering` as is put in words."""

    @property
    def phase(self) -> Phase: ...
    @property
    def place(self) -> int | None: ...
    @property
    def progress(self) -> tuple[int, int] | None: ...
    @property
    def tokens(self) -> int: ...
    @property
    def speed(self) -> float | None: ...


def status(answering: Standing) -> str:
    """In one line, what is being done; "" after the end."""
    match answering.phase:
        case Phase.LOADING:
            return "loading the model"
        case Phase.WAITING:
            place = answering.place
            return "waiting" if place is None else f"{ordinal(place)} in the queue"
        case Phase.READING:
            return _reading(answering.progress)
        case Phase.ENDED:
            return ""
        case phase:
            return ", ".join(filter(None, (phase.value, *_pace(answering))))


def _reading(progress: tuple[int, int] | None) -> str:
    if progress is None or not progress[1]:
        return "reading the prompt"
    return f"reading the prompt, {100 * progress[0] // progress[1]} %"


def _pace(answering: Standing) -> Iterator[str]:
    yield _count(answering.tokens)
    if answering.speed is not None:
        yield f"{answering.speed:.1f} tokens/s"


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th …"""
    teen = 10 <= number % 100 < 20
    ending = "th" if teen else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def meter(metrics: Metrics | None, turn: Turn) -> list[str]:
    """How an answer went, a few words each: how it ended, first token, speed, tokens, seed."""
    parts = [_ENDS[turn.finish_reason]] if turn.finish_reason in _ENDS else []
    if metrics is not None:
        parts += _speeds(metrics)
    if turn.seed is not None:
        parts.append(f"seed {turn.seed}")
    return parts


def _speeds(metrics: Metrics) -> Iterator[str]:
    if metrics.ttft is not None:
        yield f"first token {metrics.ttft:.2f} s ({feel_of_start(metrics.ttft)})"
    if metrics.tokens_per_second is not None:
        speed = metrics.tokens_per_second
        yield f"{speed:.1f} tokens/s ({feel_of_speed(speed)})"
    if metrics.tokens:
        yield ("~" if metrics.estimated else "") + _count(metrics.tokens)
    if metrics.queue_time >= 0.5:
        yield f"{metrics.queue_time:.1f} s in the queue"


_ENDS = {
    FinishReason.CANCELLED: "stopped",
    FinishReason.LENGTH: "cut at the limit",
    FinishReason.CONTENT_FILTER: "cut by a content filter",
}


def _count(tokens: int) -> str:
    return "1 token" if tokens == 1 else f"{tokens:,} tokens"


# -- for screen readers ----------------------------------------------------------------------------

_END = re.compile(r"[.!?\u2026]\W{0,3}?\s+|[\u3002\uff01\uff1f]|\n+")
BETWEEN = 2.0
"""Seconds from one announcement to the next."""


class Announcer:
    """What a screen reader is to say of an answer: its phases, and whole sentences, not too often.

    Fed with the answer as it stands, it gives what is to be said now.
    """

    def __init__(self, between: float = BETWEEN) -> None:
        self._between = between
        self._phase: Phase | None = None
        self._said = 0
        self._last = float("-inf")

    def feed(self, phase: Phase, text: str, now: float, end: str = "End of the answer.") -> str:
        """What is to be said, or "". text: all of it so far. now: seconds that rise.

        end: what is said after the last sentence.
        """
        if phase is not Phase.ENDED and now - self._last < self._between:
            return ""
        told = _TOLD.get(phase, "") if phase is not self._phase else ""
        upto = len(text) if phase is Phase.ENDED else _whole(text, self._said)
        said = " ".join(filter(None, (told, " ".join(text[self._said : upto].split()))))
        if phase is Phase.ENDED and phase is not self._phase:
            said = " ".join(filter(None, (said, end)))
        self._phase, self._said = phase, upto
        if said:
            self._last = now
        return said


_TOLD = {
    Phase.LOADING: "Loading the model.",
    Phase.WAITING: "Waiting.",
    Phase.READING: "Reading the prompt.",
    Phase.THINKING: "Thinking.",
    Phase.ANSWERING: "Answering.",
}


def _whole(text: str, start: int) -> int:
    """Where the last whole sentence ends, at `start` or later."""
    end = start
    for found in _END.finditer(text, start):
        end = found.end()
    return end
