"""A real pseudo-terminal with a program in it, and what a person would see on its screen.

with Terminal("chat", "scripted:Hello", home=tmp_path) as terminal:
    terminal.wait_for("> ")
    terminal.type("hi\r")
"""

from __future__ import annotations

import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import pexpect
import pyte

ENTER, ALT_ENTER, CTRL_C, CTRL_D, CTRL_J, TAB, UP = (
    "\r",
    "\x1b\r",
    "\x03",
    "\x04",
    "\n",
    "\t",
    "\x1b[A",
)
PATIENCE = 15.0  # seconds; only ever waited for where something is wrong


class Terminal:
    """`bourn` with these arguments, in a terminal of its own and an empty home."""

    def __init__(
        self,
        *arguments: str,
        home: Path,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.patience = patience
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BOURN_")}
        for name in ("NO_COLOR", "VISUAL", "EDITOR", "DISPLAY", "WAYLAND_DISPLAY", "TMUX"):
            kept.pop(name, None)
        for name in [name for name in kept if name.startswith("XDG_")]:
            del kept[name]
        self.raw = b""
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self._child = pexpect.spawn(
            sys.executable,
            ["-m", "bourn", *arguments],
            env=kept | {"HOME": str(home), "TERM": "xterm-256color", **(env or {})},
            dimensions=(rows, columns),
        )
        self._child.delaybeforesend = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.isalive():
            self._child.kill(signal.SIGTERM)
        self._child.close(force=True)

    def type(self, text: str) -> None:
        self._child.send(text)

    def press(self, number: signal.Signals) -> None:
        self._child.kill(number)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self._child.setwinsize(rows, columns)

    def wait_for(self, text: str, *, times: int = 1) -> None:
        """Until the text is to be seen, on the screen or above it."""
        self.wait_until(lambda: self.text.count(text) >= times, f"{times}x {text!r}")

    def wait_until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self.patience
        while not done():
            self._read(0.02)
            if time.monotonic() > deadline or (not self._child.isalive() and not self._read(0.1)):
                assert done(), f"never saw {what}:\n" + "\n".join(self.lines)

    def wait_for_prompt(self) -> None:
        """Until an empty input line is there."""
        self.wait_until(lambda: self.line.startswith("> Ask something"), "the prompt")

    def wait_for_end(self) -> int:
        """The exit status."""
        self.wait_until(lambda: not self._child.isalive(), "the end")
        while self._read(0.05):
            pass
        status = self._child.exitstatus
        assert isinstance(status, int), f"killed by signal {self._child.signalstatus}"
        return status

    @property
    def modes(self) -> list[Any]:
        """The terminal's modes, as `termios` has them."""
        return termios.tcgetattr(self._child.child_fd)

    @property
    def line(self) -> str:
        """The line that the cursor is in."""
        return self.screen.display[self.screen.cursor.y].rstrip()

    @property
    def lines(self) -> list[str]:
        """What was shown, from the first line on."""
        above = [
            "".join(line[column].data for column in range(self.screen.columns)).rstrip()
            for line in self.screen.history.top
        ]
        return above + [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def _read(self, timeout: float) -> bool:
        try:
            got = self._child.read_nonblocking(65536, timeout)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return False
        self.raw += got
        self._stream.feed(got)
        return True
