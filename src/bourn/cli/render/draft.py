"""The answer as it grows: what has ended is painted once more and settled, the rest painted anew.

So that this stays cheap and never more than a screen, the head of a long open block is settled
before its end: of a paragraph where nothing that follows can change it, of code by the screenful.
"""

from __future__ import annotations

import re
from dataclasses import replace

from bourn.cli.render.blocks import Block, Blocks
from bourn.cli.render.lines import is_undecided
from bourn.cli.render.painter import Look, Painter
from bourn.cli.render.region import Region
from bourn.cli.render.rows import Row

_MANY, _FEW = 6, 2  # rows: with more than many some are settled, and a few stay open
_TRIES = 5  # places where a block may be parted
_CODE_LINES = 3  # that stay open where code is settled by the screenful

_PREFIXES = " •│*|"  # before the text of a row
_UNDECIDED_END = "*_~`\\"


class Draft:
    """Text in, what to write out. It keeps no more than the open block."""

    def __init__(self, painter: Painter, region: Region) -> None:
        self._painter = painter
        self._region = region
        self._blocks = Blocks()
        self._ended: list[Block] = []
        self._width = 80
        self._begun = False
        self._too_many = 0  # rows, up to which it was tried to settle some

    @property
    def _enough(self) -> int:
        """Rows to keep open; a table is only aligned as a whole."""
        room = self._region.room
        return room if self._blocks.tabular else min(_MANY, room)

    def resize(self, columns: int, lines: int) -> None:
        self._width = max(columns - 1, 1)  # a full row behaves differently on each terminal
        self._region.resize(columns, lines)

    def feed(self, text: str) -> None:
        self._ended += self._blocks.feed(text)

    def draw(self) -> str:
        """What to write for all that was fed."""
        self._settle_ended()
        block = _decided(self._blocks.open)
        rows = self._rows(block, Look.GROWS)
        if self._blocks.fenced:
            if len(rows) > self._region.room:
                rows = self._settle_code(block, rows)
        elif len(rows) > max(self._too_many, self._enough):
            rows = self._settle_head(block, rows)
        self._region.show(rows)
        return self._region.take()

    def end(self) -> str:
        """The text has ended: what to write for the rest, and for the row after it."""
        self._ended += self._blocks.flush()
        self._settle_ended()
        self._region.end()
        self._begun = False
        return self._region.take()

    def _settle_ended(self) -> None:
        for block in self._ended:
            rows = self._rows(block, Look.FINAL)
            if not self._region.fits(rows):  # its head has left the screen with another look
                rows = self._rows(block, Look.KEPT)
            self._region.show(rows)
            self._region.settle()
            self._begun = self._begun or bool(block.source.strip())
            self._too_many = 0
        self._ended = []

    def _rows(self, block: Block, look: Look) -> list[Row]:
        rows = self._painter.rows(block, self._width, look)
        return [(), *rows] if rows and self._begun and not block.joined else rows

    def _settle_code(self, block: Block, rows: list[Row]) -> list[Row]:
        """Highlight the lines that are about to leave the screen. Returns the rows left open."""
        lines = block.source.split("\n")
        count = sum(len(line) + 1 for line in lines[:-_CODE_LINES])
        head, rest = self._blocks.part(block, count)
        if head.source.count("\n") <= _CODE_LINES:
            return rows
        *settled, _ = self._rows(head, Look.FINAL)  # without the row that ends it
        left = self._rows(rest, Look.GROWS)
        self._settle(count, settled, left)
        return left

    def _settle_head(self, block: Block, rows: list[Row]) -> list[Row]:
        """Settle the first rows, if the block can be parted so that it looks the same."""
        for at in _places(block.source, rows):
            head, rest = self._blocks.part(block, at)
            left = self._rows(rest, Look.GROWS)
            if left and self._look_alike(block, head, rest):
                self._settle(at, rows[: len(rows) - len(left)], left)
                return left
        self._too_many = len(rows) + _MANY
        return rows

    def _look_alike(self, block: Block, head: Block, rest: Block) -> bool:
        """The parts look like the whole: now, and if the text ended here."""
        looks = (Look.GROWS,) if self._blocks.tabular else (Look.GROWS, Look.FINAL)
        return all(
            self._rows(head, look) + self._rows(rest, look) == self._rows(block, look)
            for look in looks
        )

    def _settle(self, count: int, rows: list[Row], left: list[Row]) -> None:
        """The first `count` characters of the open block, which are these rows; others are left."""
        self._region.show(rows + left)
        self._region.settle(len(rows))
        self._blocks.settle(count)
        self._begun = True
        self._too_many = 0


def _places(source: str, rows: list[Row]) -> list[int]:
    """Where in the text the last rows may begin, the last such place first."""
    places = {_place(source, rows[-few:]) for few in range(_FEW, _FEW + 3)}
    places |= {match.end() for match in re.finditer("\n", source)}
    end = len(source.rstrip())
    return sorted((place for place in places if 0 < place < end), reverse=True)[:_TRIES]


def _place(source: str, rows: list[Row]) -> int:
    """Where in the text the first of its last rows may begin; 0 where it is not found."""
    shown = ["".join(text for text, _ in row).lstrip(_PREFIXES) for row in rows]
    word = shown[0][:12].partition(" ")[0]
    return max(source.rfind(word, 0, len(source) - sum(map(len, shown)) + len(word)), 0)


def _decided(block: Block) -> Block:
    """The block without what at its end has no meaning yet."""
    head, newline, line = block.source.rpartition("\n")
    if is_undecided(line):
        return replace(block, source=head + newline)
    return replace(block, source=block.source.rstrip(_UNDECIDED_END))
