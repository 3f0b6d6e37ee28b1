"""A program that can be stopped while it starts, before it has learnt to stop in order."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

_AGAIN = 0.02
"""Seconds from a signal that came at a bad moment to the next."""


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

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        if self._holds:
            return
        if not _imports(frame):  # where an exit may be swallowed
            raise SystemExit(0)
        threading.Timer(_AGAIN, os.kill, (os.getpid(), number)).start()


def _imports(frame: FrameType | None) -> bool:
    """Whether the interpreter's own code is at it that imports modules."""
    return frame is not None and frame.f_code.co_filename.startswith("<frozen importlib")
