"""A terminal that is only its emulator: a stream to write to, and what would be seen.

out = Emulator(columns=40)
out.write("text")
assert out.lines[0] == "text"
"""

from __future__ import annotations

import io
import re
from itertools import pairwise

import pyte
from wcwidth import wcwidth

_PART = re.compile("(?<=[\u200d\ufe0f])|(?=[\u200d\ufe0f])")  # pyte loses what follows in one piece


class Emulator(io.StringIO):
    """reflows: on a resize it wraps anew what it shows."""

    def __init__(
        self, columns: int = 80, rows: int = 24, *, encoding: str = "utf-8", reflows: bool = False
    ) -> None:
        super().__init__()
        self._encoding = encoding
        self._reflows = reflows
        self.frames: list[str] = []
        self.size = (columns, rows)
        self.screen = pyte.HistoryScreen(columns, rows, history=100_000, ratio=0.5)
        self._stream = pyte.Stream(self.screen)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a console's is never None
        return self._encoding

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.frames.append(text)
        shown = text.encode(self._encoding, "replace").decode(self._encoding)
        self._feed(re.sub("\r?\n", "\r\n", shown))  # as the driver of a terminal does
        return len(text)

    def _feed(self, text: str) -> None:
        for part in _PART.split(text):
            self._stream.feed(part)

    @property
    def written(self) -> str:
        return "".join(self.frames)

    @property
    def lines(self) -> list[str]:
        """What was shown, from the first line to the last that is not empty."""
        lines = self._above + [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def _above(self) -> list[str]:
        return [
            "".join(line[column].data for column in range(self.screen.columns)).rstrip()
            for line in self.screen.history.top
        ]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def style(self, text: str) -> pyte.screens.Char:
        """The first character of a text on the screen, with its looks."""
        for row, line in enumerate(self.screen.display):
            if text in line:
                return self.screen.buffer[row][line.index(text)]
        raise AssertionError(f"{text!r} is not on the screen:\n{self.text}")

    def resize(self, columns: int, rows: int) -> None:
        cursor = self.screen.cursor
        shown = [line.rstrip() for line in self.screen.display[: cursor.y + 1]]
        above = self._above
        self.size = (columns, rows)
        if not self._reflows:
            self.screen.resize(rows, columns)
            return
        self.screen = pyte.HistoryScreen(columns, rows, history=100_000, ratio=0.5)
        self._stream = pyte.Stream(self.screen)
        self._feed("\r\n".join(row for line in above + shown for row in _rows(line, columns)))

    @property
    def climbs(self) -> list[int]:
        """How many rows up the cursor was sent, each time."""
        return [int(count) for count in re.findall(r"\x1b\[(\d+)A", self.written)]


def _rows(line: str, columns: int) -> list[str]:
    """As a terminal wraps: what is wide does not begin in the last column (in pyte it does)."""
    rows, used = [""], 0
    for char in line:
        size = max(wcwidth(char), 0)
        if used + size > columns:
            rows.append("")
            used = 0
        rows[-1] += char
        used += size
    return rows


def cut(text: str, at: list[int]) -> list[str]:
    """The text in pieces that end at these places."""
    ends = sorted({0, len(text), *(place % (len(text) + 1) for place in at)})
    return [text[start:end] for start, end in pairwise(ends)]
