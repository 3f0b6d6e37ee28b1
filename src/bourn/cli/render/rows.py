"""Rows of a terminal: runs of styled text, wrapped by the cells that they take.

It knows no Markdown. Widths are pessimistic: where terminals differ (emoji that are made of
several, flags), the widest counts, so that a row is one row on all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len, get_character_cell_size
from rich.color import ColorSystem
from rich.style import Style

from bourn.cli.neutral import neutral

PLAIN = Style.null()

_WIDE = (
    "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff"
    "\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\U00020000-\U0003fffd"
)
_CLOSING = "、。〉》」』】〕〗！），．：；？］｝"  # noqa: RUF001 (they may not begin a row)
_ATOMS = re.compile(rf" +|[{_WIDE}][{_CLOSING}]*|[^ {_WIDE}]+")
_STANDS_ALONE = re.compile(f"[{_WIDE}]")
_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"


class Run(NamedTuple):
    text: str
    style: Style = PLAIN


Row = tuple[Run, ...]


def run(text: str, style: Style = PLAIN) -> Run:
    """A run of text from a model: nothing in it acts on a terminal."""
    return Run(neutral(text).replace("\t", "    "), style)


def cells(text: str) -> int:
    """The most columns that a terminal gives to it."""
    return len(text) if text.isascii() else sum(map(_width, text))


@lru_cache(4096)
def _width(char: str) -> int:
    if char == _EMOJI_STYLE:
        return 1  # it may widen what is before it
    if _is_flag_letter(char) or "\U0001f3fb" <= char <= "\U0001f3ff":
        return 2  # two such letters make a flag, a skin tone melts into its emoji; or not
    return get_character_cell_size(char)


def _is_flag_letter(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def clusters(text: str) -> Iterator[str]:
    """The parts of a text that no row may tear."""
    part = ""
    for char in text:
        if part and not _melts(part, char):
            yield part
            part = ""
        part += char
    if part:
        yield part


def _melts(part: str, char: str) -> bool:
    if part[-1] == _JOINER or get_character_cell_size(char) == 0:
        return True
    return _is_flag_letter(char) and _is_flag_letter(part[0]) and len(part) == 1


def append(row: list[Run], new: Run) -> None:
    """Add to a row, a run for each style."""
    if row and (row[-1].style is new.style or row[-1].style == new.style):
        row[-1] = Run(row[-1].text + new.text, new.style)
    elif new.text:
        row.append(new)


def width(row: Iterable[Run]) -> int:
    return sum(cells(text) for text, _ in row)


def height(row: Iterable[Run], columns: int) -> int:
    """How many rows a narrower terminal makes of it, or fewer."""
    rows, used = 1, 0
    for text, _ in row:
        for part in clusters(text):
            size = cell_len(part)
            if used + size > columns:
                rows, used = rows + 1, 0
            used += size
    return rows


def ink(rows: Iterable[Row]) -> int:
    """How many letters and digits there are: the same, however they are wrapped and adorned."""
    return sum(char.isalnum() for row in rows for text, _ in row for char in text)


def ansi(row: Iterable[Run]) -> str:
    """The row with its styles, in the 16 colours that every terminal has."""
    return "".join(
        style.render(text, color_system=ColorSystem.STANDARD) if style else text
        for text, style in row
    )


def extension(old: Row, new: Row) -> Row | None:
    """What is to be written after `old` to have `new`; None where that is not enough."""
    if not old:
        return new
    last = len(old) - 1
    if len(new) <= last or new[:last] != old[:last] or new[last].style != old[last].style:
        return None
    if not new[last].text.startswith(old[last].text):
        return None
    more = new[last].text[len(old[last].text) :]
    return (Run(more, new[last].style), *new[last + 1 :])


def chop(runs: Iterable[Run], limit: int) -> list[Row]:
    """Rows of code: no space is lost, and a line is cut where it is full."""
    rows: list[list[Run]] = [[]]
    used = 0
    for text, style in runs:
        for number, line in enumerate(text.split("\n")):
            if number:
                rows.append([])
                used = 0
            if line.isascii() and used + len(line) <= limit:
                append(rows[-1], Run(line, style))
                used += len(line)
                continue
            for part in clusters(line):
                if used and used + cells(part) > limit:
                    rows.append([])
                    used = 0
                append(rows[-1], Run(part, style))
                used += cells(part)
    return [tuple(row) for row in rows]


def wrap(runs: Iterable[Run], limit: int) -> list[Row]:
    """Rows of prose: broken at spaces and between the characters of scripts that have none."""
    wrapping = _Wrapping(limit)
    for text, style in runs:
        first, *others = text.split("\n")
        wrapping.feed(first, style)
        for line in others:
            wrapping.end_line()
            wrapping.feed(line, style)
    return wrapping.end()


class _Wrapping:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: list[Row] = []
        self._row: list[Run] = []
        self._used = 0
        self._space: Run | None = None  # before the word, if it stays on this row
        self._word: list[Run] = []  # may go on in the next run

    def feed(self, text: str, style: Style) -> None:
        if text.isascii():
            self._flow(text, style)
            return
        for atom in _ATOMS.findall(text):
            if atom[0] == " ":
                self._place()
                self._space = Run(" ", style)
            elif _STANDS_ALONE.match(atom):
                self._place()
                self._word = [Run(atom, style)]
                self._place()
            else:
                append(self._word, Run(atom, style))

    def end_line(self) -> None:
        self._place()
        self._break()

    def end(self) -> list[Row]:
        self._place()
        if self._row:
            self._break()
        return self._rows

    def _flow(self, text: str, style: Style) -> None:
        """Whole rows at a time, of text whose characters take a cell each."""
        word, space, rest = text.partition(" ")
        append(self._word, Run(word, style))
        if space:
            self._place()
            self._space = Run(" ", style)
            words, _, last = rest.rpartition(" ")
            self._fill(" ".join(words.split()), style)
            append(self._word, Run(last, style))

    def _fill(self, words: str, style: Style) -> None:
        while words:
            gap = 1 if self._used else 0
            room = self._limit - self._used - gap
            end = len(words) if len(words) <= room else words.rfind(" ", 0, max(room, 0) + 1)
            if end <= 0 and not self._used:  # longer than a row
                end = words.find(" ") if " " in words else len(words)
            if end <= 0:
                self._break()
                continue
            self._word = [Run(words[:end], style)]
            self._place()
            self._space = Run(" ", style)
            words = words[end + 1 :]

    def _break(self) -> None:
        self._rows.append(tuple(self._row))
        self._row, self._used, self._space = [], 0, None

    def _place(self) -> None:
        """Put the word on the row, or on the next one."""
        if not self._word:
            return
        size = width(self._word)
        if self._used and self._used + bool(self._space) + size > self._limit:
            self._break()
        elif self._used and self._space:
            append(self._row, self._space)
            self._used += 1
        self._space = None
        self._put(size)
        self._word = []

    def _put(self, size: int) -> None:
        if self._used + size <= self._limit:
            for piece in self._word:
                append(self._row, piece)
            self._used += size
            return
        for text, style in self._word:  # longer than a row
            for part in clusters(text):
                if self._used and self._used + cells(part) > self._limit:
                    self._break()
                append(self._row, Run(part, style))
                self._used += cells(part)
