"""The terminal's keyboard while nothing is asked: what is typed waits, unseen, for the next prompt.

Else the terminal would write it into the answer, and end lines of it by itself. Ctrl-C still
interrupts, and takes nothing away of what was typed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Self, TextIO

if sys.platform != "win32":
    import termios


class Keyboard:
    """Of the terminal that `stdin` is. Where lines cannot be edited anyway, it is left alone."""

    def __init__(self, stdin: TextIO, *, edited: bool) -> None:
        self._stdin = stdin
        self._edited = edited
        self._before: list[int | list[bytes | int]] | None = None

    def __enter__(self) -> Self:
        if sys.platform != "win32" and self._edited:
            self._before = termios.tcgetattr(self._stdin)
            self.hush()
        return self

    def hush(self) -> None:
        """Once more: a shell has the terminal its own way after it stopped and resumed this."""
        if self._before is not None:
            self._set(_waiting(self._before))

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            self._set(self._before)
            self._before = None

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """As it was before, for another program."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    def _set(self, modes: list[int | list[bytes | int]]) -> None:
        if sys.platform != "win32":
            with contextlib.suppress(termios.error):  # it has hung up
                termios.tcsetattr(self._stdin, termios.TCSANOW, modes)


def _waiting(modes: list[int | list[bytes | int]]) -> list[int | list[bytes | int]]:
    """Without echo and without lines; a typed Enter stays one, and is no line feed."""
    inputs, outputs, control, local, *rest = modes
    assert isinstance(inputs, int)
    assert isinstance(local, int)
    if sys.platform != "win32":
        inputs &= ~termios.ICRNL
        local &= ~(termios.ECHO | termios.ICANON)
        local |= termios.NOFLSH
    return [inputs, outputs, control, local, *rest]
