"""How fast an answer was: a recorder fed with pieces as they arrive, and words for the numbers."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

from bourn.types import Metrics, Piece, Usage


class Recorder:
    """Reads the clock where pieces are made, before anything else is done with them.

    An empty piece (a role chunk, progress) is no token. The clock is `time.perf_counter` or any
    other that gives rising seconds.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._opened = clock()
        self._admitted: float | None = None
        self._first: float | None = None
        self._first_text: float | None = None
        self._last: dict[int, float] = {}
        self._first_burst = 0
        self._gaps = array("d")
        self._tokens = 0
        self._usage: Usage | None = None
        self._told = 0  # of the tokens, when that came
        self._prompt = 0  # of the tokens to read, as its progress tells them

    def admitted(self) -> None:
        self._admitted = self._clock()

    def piece(self, piece: Piece) -> None:
        if piece.tokens:
            self._token(piece)
        if piece.prompt_total is not None:
            self._prompt = max(self._prompt, piece.prompt_total)
        if piece.usage is not None:
            self._usage, self._told = piece.usage, self._tokens

    @property
    def waits_for_text(self) -> bool:
        return self._first_text is None

    def text(self) -> None:
        """Text of the answer became visible for the first time."""
        self._first_text = self._clock()

    def _token(self, piece: Piece) -> None:
        now = self._clock()
        self._tokens += piece.tokens
        last = self._last.get(piece.choice)
        self._last[piece.choice] = now
        if self._first is None:
            self._first = now
            self._first_burst = piece.tokens
        if last is not None:
            # several tokens in one piece: each took its share of the time
            self._gaps.extend([(now - last) / piece.tokens] * piece.tokens)

    @property
    def gaps(self) -> Sequence[float]:
        """Seconds between one token and the next, of all choices."""
        return self._gaps

    @property
    def usage(self) -> Usage:
        """As the engine told it, and what came since; else counted here, and then `estimated`."""
        told, since = self._usage, self._tokens - self._told
        if told is None:
            return Usage(self._prompt, self._tokens, estimated=self._tokens > 0)
        if not since:
            return told
        return replace(told, completion_tokens=told.completion_tokens + since)

    def metrics(self) -> Metrics:
        now = self._clock()
        usage = self.usage
        gaps = sorted(self._gaps)
        return Metrics(
            queue_time=(now if self._admitted is None else self._admitted) - self._opened,
            ttft=self._since(self._first),
            first_text=self._since(self._first_text),
            total=now - self._opened,
            tokens=usage.completion_tokens,
            tokens_per_second=self._rate(),
            itl_p50=percentile(gaps, 0.50),
            itl_p99=percentile(gaps, 0.99),
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            estimated=usage.estimated,
            itl_mean=sum(gaps) / len(gaps) if gaps else None,
        )

    def _since(self, moment: float | None) -> float | None:
        return None if moment is None else moment - self._opened

    def _rate(self) -> float | None:
        later = self._tokens - self._first_burst
        if self._first is None or later <= 0:
            return None
        seconds = max(self._last.values()) - self._first
        return later / seconds if seconds > 0 else None


def percentile(ordered: list[float], share: float) -> float | None:
    """The nearest-rank percentile of rising numbers; None of nothing."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def feel_of_start(ttft: float) -> str:
    """What a wait for the first token feels like. Limits: 0.5 s and 2 s."""
    return "instant" if ttft < 0.5 else "responsive" if ttft <= 2 else "slow"


def feel_of_speed(tokens_per_second: float) -> str:
    """What reading at that speed feels like: people read 5 to 15 tokens a second."""
    if tokens_per_second >= 15:
        return "comfortable"
    return "readable" if tokens_per_second > 5 else "painful"
