"""A program that can be stopped while it starts, before it has learnt to stop in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self


class Mortal:
    """Takes SIGTERM as an exit: process 1, as in a container, is deaf to it without a handler."""

    def __init__(self) -> None:
        self._asked = False
        self._holds = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGTERM, self._end)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Exit only after this: a library that is being imported may make anything of an exit."""
        self._holds = True
        yield
        self._holds = False
        if self._asked:
            raise SystemExit(0)

    def _end(self, _: int, __: FrameType | None) -> None:
        self._asked = True
        if not self._holds:
            raise SystemExit(0)
