"""Where a stream of Markdown can be cut: which blocks at its top level have ended.

It reads lines, and knows no more of Markdown than tells where one block ends and another begins;
where that is in doubt it does not cut. It knows no parser and no terminal. Each item of a list at
the top level is a block of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum, auto

from bourn.cli.render.lines import Line, closes, is_table, is_undecided

_PREFIXES = re.compile(r"(?: {0,3}(?:(?:[-+*]|\d{1,9}[.)])(?: {1,4}(?! )|(?= {5})|$)|> ?))*")

_NOWHERE = 1_000_000  # a column that no line reaches
_CONTEXT = 8_000  # characters of settled code that a highlighter still sees


@dataclass(frozen=True, slots=True)
class Block:
    """A block of Markdown, as it was written.

    joined: it goes on without an empty row after the block before it: the next item of a list, or
        the rest of a block whose head is settled. number: of an ordered item.
    lead: where the head of it is settled, a start without which the rest would be something else.
    before: the code that was settled, the end of it.
    """

    source: str
    joined: bool = False
    number: int | None = None
    lead: str = ""
    before: str = ""


class _Mode(Enum):
    NONE = auto()
    LINE = auto()  # a heading or a rule: it is done with its line
    TEXT = auto()
    TABLE = auto()
    LIST = auto()
    QUOTE = auto()
    FENCE = auto()
    CODE = auto()


class Blocks:
    """Cuts a stream into blocks, in time linear in the text.

    Joined again, they and what is open are the text. Any cutting of the text into pieces gives the
    same blocks.
    """

    def __init__(self) -> None:
        self._done: list[Block] = []
        self._rest = ""  # of the line that has not ended
        self._entered = False  # it is known whose line that is
        self._opens = False  # it is the first of a block
        self._blank = False  # the line before was
        self._marker = ""  # of the list that the block before is an item of
        self._last = 0  # number in it
        self._reset()

    def _reset(self) -> None:
        self._mode = _Mode.NONE
        self._lines: list[str] = []
        self._first = ""  # the line it began with
        self._offset = 0  # from this column on a line belongs to the item
        self._fence = ""  # that is open, in an item or a quote too
        self._mark = ""  # of the item
        self._bare = False  # the item has only its mark
        self._deep = False  # there is another item or quote inside
        self._prose = False  # the line before may go on in one that has no mark of the item
        self._joined = False
        self._number: int | None = None
        self._lead = self._before = ""

    @property
    def open(self) -> Block:
        """The text after the last finished block."""
        return self._block(self._rest)

    @property
    def fenced(self) -> bool:
        """The open block is code between fences."""
        return self._mode is _Mode.FENCE

    @property
    def tabular(self) -> bool:
        return self._mode is _Mode.TABLE

    def feed(self, text: str) -> list[Block]:
        """The blocks that have ended by this."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._take(line + "\n")
        if not self._entered and not is_undecided(self._rest):
            self._enter(self._rest)
        return self._give()

    def flush(self) -> list[Block]:
        """At the end of the text: what was open."""
        if rest := self._rest:
            self._rest = ""
            self._take(rest)
        if self._lines:
            self._finish()
        return self._give()

    def part(self, block: Block, count: int) -> tuple[Block, Block]:
        """The first `count` characters of the open block, and the rest, which goes on from them."""
        lead = self._lead_of_rest(inside=not block.source[:count].endswith("\n"))
        rest = replace(block, source=block.source[count:], joined=True, lead=lead)
        return replace(block, source=block.source[:count]), rest

    def _lead_of_rest(self, *, inside: bool) -> str:
        """inside: the rest begins inside a line."""
        match self._mode:
            case _Mode.FENCE:
                return self._first
            case _Mode.LIST:
                return f"{self._mark}x\n\n" + (" " * self._offset if inside else "")
            case _Mode.QUOTE:
                return "> " if inside else ""
        return ""

    def settle(self, count: int) -> None:
        """The first `count` characters of the open block are not wanted any more.

        They must end where a row ends; in a fence, where a line ends.
        """
        head, rest = self.part(self.open, count)
        if self.fenced:
            code = head.source if head.lead else head.source.partition(self._first)[2]
            self._before = (self._before + code)[-_CONTEXT:]
        *lines, self._rest = rest.source.split("\n")
        self._lines = [line + "\n" for line in lines]
        self._joined, self._lead = True, rest.lead

    def _give(self) -> list[Block]:
        done, self._done = self._done, []
        return done

    def _block(self, rest: str = "") -> Block:
        source = "".join(self._lines) + rest
        return Block(source, self._joined, self._number, self._lead, self._before)

    def _finish(self) -> None:
        self._done.append(self._block())
        self._reset()

    def _take(self, text: str) -> None:
        """A whole line."""
        if not self._entered:
            self._enter(text)
        line = Line.read(text)
        if self._opens:
            self._first = text
        self._go_on(line)
        self._lines.append(text)
        ends = self._ends_after(line)
        self._entered, self._opens, self._blank = False, False, not line.body
        if ends:
            self._finish()

    def _enter(self, text: str) -> None:
        """A line of which enough is there to say whose it is."""
        self._entered = True
        line = Line.read(text)
        if line.body and self._ends_before(line):
            self._finish()
        if line.body and self._mode is _Mode.NONE:
            self._opens = True
            self._begin(line)

    def _begin(self, line: Line) -> None:
        item = line.item
        if not item:
            self._marker = ""
        if line.fence:
            self._mode, self._fence = _Mode.FENCE, line.fence
        elif line.heading or line.rule:
            self._mode = _Mode.LINE
        elif line.quote:
            self._mode = _Mode.QUOTE
        elif item:
            self._mode = _Mode.LIST
            self._begin_item(line.indent, item)
        else:
            self._mode = _Mode.CODE if line.indent >= 4 else _Mode.TEXT

    def _begin_item(self, indent: int, item: re.Match[str]) -> None:
        space = len(item["space"])
        self._offset = indent + len(item["marker"]) + (space if 0 < space < 5 else 1)
        self._bare = not item["content"]
        self._mark = (" " * indent + item["marker"]).ljust(self._offset)
        marker = item["marker"][-1]
        same = marker == self._marker
        self._joined = same and not self._blank
        self._marker = marker
        if item["number"]:
            number = int(item["number"])
            # "1." before each item is a way to have them counted
            self._number = self._last + 1 if same and number == 1 else number
            self._last = self._number

    def _look_inside(self, line: Line) -> None:
        """What the line does inside the item, or the quote."""
        text = " " * max(line.indent - self._offset, 0) + line.body
        marks = _PREFIXES.match(text)
        end = marks.end() if marks else 0
        self._deep = self._deep or len(text[:end].split()) > self._opens
        inside = Line.read(text[end:])
        if self._fence:
            self._fence = "" if closes(self._fence, inside.body) else self._fence
            self._prose = False
        elif inside.indent < 4 or not self._prose:
            self._fence = inside.fence
            code = inside.indent >= 4 and not self._deep
            other = inside.fence or inside.heading or inside.rule or code
            self._prose = bool(inside.body) and not other

    def _ends_before(self, line: Line) -> bool:
        match self._mode:
            case _Mode.TEXT:
                return line.starts_block and not line.underline
            case _Mode.TABLE:
                return line.starts_block or line.indent >= 4 or line.item is not None
            case _Mode.LIST:
                return line.indent < self._offset and self._leaves(line)
            case _Mode.QUOTE:
                return not line.quote and self._leaves(line)
            case _Mode.CODE:
                return line.indent < 4
        return False

    def _leaves(self, line: Line) -> bool:
        """It is not the next line of a paragraph, written without the mark of the item or quote."""
        return self._blank or not self._prose or line.starts_block or line.item is not None

    def _go_on(self, line: Line) -> None:
        """The line belongs to the block; it may tell more about it."""
        match self._mode:
            case _Mode.TEXT if self._lines and is_table(Line.read(self._lines[-1]), line):
                self._mode = _Mode.TABLE
            case _Mode.LIST if self._bare and not line.body and self._lines[-1:] == [self._first]:
                self._offset = _NOWHERE
            case _Mode.LIST | _Mode.QUOTE:
                self._look_inside(line)

    def _ends_after(self, line: Line) -> bool:
        match self._mode:
            case _Mode.LINE:
                return True
            case _Mode.TEXT if line.underline and not self._opens:
                return True
            case _Mode.TEXT | _Mode.TABLE | _Mode.QUOTE:
                return not line.body
            case _Mode.FENCE:
                return not self._opens and line.indent < 4 and closes(self._fence, line.body)
        return False
