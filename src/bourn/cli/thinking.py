"""How a model's reasoning is shown: dim, folded into a line, or not at all; on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Literal, TextIO

from bourn.cli.neutral import neutral
from bourn.types import Channel, Delta, Event

Reasoning = Literal["show", "fold", "hide"]

_REFRESH = 0.1  # seconds between two looks of the line


class Thinking:
    """Reasoning of the first choice. Nothing is shown where `err` is no terminal.

    styled: the terminal knows escape sequences, and they are wanted.
    """

    def __init__(
        self,
        how: Reasoning = "show",
        err: TextIO | None = None,
        *,
        styled: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._err = err or sys.stderr
        self._how: Reasoning = how if self._err.isatty() else "hide"
        self._styled = styled
        self._clock = clock
        self._began: float | None = None
        self._tokens = 0
        self._told = 0.0
        self._ends_line = True

    @staticmethod
    def takes(event: Event) -> bool:
        return (
            isinstance(event, Delta)
            and event.channel is Channel.REASONING
            and event.choice == 0
            and bool(event.text)
        )

    def event(self, event: Event) -> None:
        """One that this `takes`."""
        if not isinstance(event, Delta) or self._how == "hide":
            return
        now = self._clock()
        if self._began is None:
            self._began, self._tokens, self._told = now, 0, now
        self._tokens += event.tokens
        if self._how == "show":
            self._write(self._dim(neutral(event.text)))
            self._ends_line = event.text.endswith("\n")
        elif self._styled and now - self._told >= _REFRESH:
            self._told = now
            self._write(f"\r{self._dim(f'thinking … {self._numbers(now)}')}\x1b[K")

    def end(self) -> None:
        """Something else comes now."""
        if self._began is None:
            return
        if self._how == "fold":
            start, rest = ("\r", "\x1b[K") if self._styled else ("", "")
            told = self._dim(f"thought for {self._numbers(self._clock())}")
            self._write(f"{start}{told}{rest}\n")
        else:
            self._write("\n" if self._ends_line else "\n\n")
        self._began = None

    def _numbers(self, now: float) -> str:
        seconds = now - (self._began or now)
        return f"{seconds:.1f} s, {self._tokens} token{'' if self._tokens == 1 else 's'}"

    def _dim(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if self._styled else text

    def _write(self, text: str) -> None:
        self._err.write(text)
        self._err.flush()
