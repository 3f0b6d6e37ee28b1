"""Blocks of Markdown as rows of a terminal. It knows no stream, and not what is on the screen.

A block that still grows is painted so that what comes later changes little above: code plainly, a
table as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

from markdown_it.token import Token
from rich.style import Style

from bourn.cli.render import table
from bourn.cli.render.blocks import Block
from bourn.cli.render.code import highlight
from bourn.cli.render.parser import Node, Parser, nodes
from bourn.cli.render.rows import PLAIN, Row, Run, append, cells, chop, run, wrap

DIM = Style(dim=True)
_RULE_CELLS = 40
_LEAST_CELLS = 8  # a narrower column inside a list or a quote is not worth its prefix

_SPANS = {
    "em": Style(italic=True),
    "strong": Style(bold=True),
    "s": Style(strike=True),
    "link": Style(underline=True),
}
_INLINE_CODE = Style(color="cyan")
_HEADINGS = {"h1": Style(bold=True, underline=True)}
_HEADING = Style(bold=True)


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters that are drawn around text."""

    bullet: str = "•"
    bar: str = "│"
    rule: str = "─"
    above: str = "┌"
    below: str = "└"

    @classmethod
    def of(cls, encoding: str) -> Glyphs:
        """Those that an encoding has."""
        try:
            "•│─┌└".encode(encoding)
        except (UnicodeEncodeError, LookupError):
            return cls("*", "|", "-", ".", "'")
        return cls()


class Look(Enum):
    """How the last part of a block is painted; the rest of it is always `FINAL`."""

    GROWS = auto()  # more may come
    KEPT = auto()  # ended, but it looks as while it grew
    FINAL = auto()


class Painter:
    """light: the terminal's background is."""

    def __init__(self, glyphs: Glyphs | None = None, *, light: bool = False) -> None:
        self.parser = Parser()
        self.glyphs = glyphs or Glyphs()
        self._theme = "ansi_light" if light else "ansi_dark"

    def rows(self, block: Block, width: int, look: Look = Look.FINAL) -> list[Row]:
        """The block at a width in cells."""
        source = block.lead + block.source
        tokens = self.parser.parse(source, grows=look is Look.GROWS)
        rows = _Sheet(self, source, block).stack(tokens, width, look, loose=True)
        if not block.lead:
            return rows
        lead = self.rows(replace(block, source=block.lead, lead=""), width, Look.GROWS)
        apart = "\n\n" in block.lead and rows[len(lead) : len(lead) + 1] == [()]
        return rows[len(lead) + apart :]

    def code(self, text: str, language: str) -> list[Row]:
        return highlight(text, language, self._theme)

    def spans(self, tokens: list[Token], base: Style = PLAIN) -> list[Run]:
        """The runs of the text inside a block."""
        runs: list[Run] = []
        styles = [base]
        links: list[tuple[str, int]] = []
        for token in tokens:
            kind = token.type.removesuffix("_open").removesuffix("_close")
            if token.nesting == 1:
                styles.append(styles[-1] + _SPANS.get(kind, PLAIN))
                if kind == "link":
                    links.append((str(token.attrs.get("href", "")), len(runs)))
            elif token.nesting == -1:
                styles.pop()
                if kind == "link":
                    runs += _address(*links.pop(), runs)
            else:
                runs.append(_leaf(token, styles[-1]))
        return runs


def _leaf(token: Token, style: Style) -> Run:
    match token.type:
        case "softbreak" | "hardbreak":
            return Run("\n", style)  # models mean the ends of their lines
        case "code_inline":
            return run(token.content, style + _INLINE_CODE)
        case "image":
            return run(f"[{token.content or 'image'}] ({token.attrs.get('src', '')})", style + DIM)
    return run(token.content, style)


def _address(href: str, start: int, runs: list[Run]) -> list[Run]:
    """Where a link leads to, unless its text says so."""
    shown = "".join(text for text, _ in runs[start:])
    if not href or shown in (href, href.removeprefix("mailto:")):
        return []
    return [run(f" ({href})", DIM)]


def _after(prefix: Run, row: Row) -> Row:
    joined = [prefix]
    for piece in row:
        append(joined, piece)
    return tuple(joined)


class _Sheet:
    """One painting of one block."""

    def __init__(self, painter: Painter, source: str, block: Block) -> None:
        self._painter = painter
        self._lines = source.split("\n")
        self._block = block
        self._number = block.number

    def stack(
        self, tokens: list[Token], width: int, look: Look, *, loose: bool = False
    ) -> list[Row]:
        """Blocks under each other; apart where an empty line is in the source, or `loose`."""
        rows: list[Row] = []
        found = list(nodes(tokens))
        for node in found:
            if rows and (loose or self._blank_before(node.token)):
                rows.append(())
            rows += self._paint(node, width, look if node is found[-1] else Look.FINAL)
        return rows

    def _paint(self, node: Node, width: int, look: Look) -> list[Row]:
        kinds: dict[str, Callable[..., list[Row]]] = {
            "heading_open": self._heading,
            "fence": self._fence,
            "code_block": self._indented,
            "blockquote_open": self._quote,
            "bullet_list_open": self._list,
            "ordered_list_open": self._list,
            "table_open": self._table,
            "hr": self._rule,
        }
        return kinds.get(node.token.type, self._paragraph)(node, width, look)

    def _blank_before(self, token: Token) -> bool:
        first = token.map[0] if token.map else 0
        return first > 0 and not self._lines[first - 1].strip(" \t>")

    def _paragraph(self, node: Node, width: int, _: Look) -> list[Row]:
        return wrap(self._painter.spans(node.inner[0].children or []), width)

    def _heading(self, node: Node, width: int, _: Look) -> list[Row]:
        style = _HEADINGS.get(node.token.tag, _HEADING)
        return wrap(self._painter.spans(node.inner[0].children or [], style), width)

    def _rule(self, _: Node, width: int, __: Look) -> list[Row]:
        return [self._line(width)]

    def _line(self, width: int, start: str = "") -> Row:
        rest = min(width, _RULE_CELLS) - cells(start)
        return (run(start + self._painter.glyphs.rule * rest, DIM),)

    def _fence(self, node: Node, width: int, look: Look) -> list[Row]:
        """Code between two lines, without margins: it can be copied."""
        glyphs = self._painter.glyphs
        language = node.token.info.strip().partition(" ")[0]
        label = f"{glyphs.rule} {language} " if 0 < cells(language) < width - 6 else ""
        code = self._code(node.token.content, language, width, plain=look is not Look.FINAL)
        rows = [self._line(width, glyphs.above + label), *code]
        return rows if look is Look.GROWS else [*rows, self._line(width, glyphs.below)]

    def _code(self, content: str, language: str, width: int, *, plain: bool) -> list[Row]:
        if not content:
            return []
        text = content.removesuffix("\n").expandtabs(4)
        if plain or not language:
            return chop([run(text)], width)
        before = self._block.before
        lines = self._painter.code(before + text, language)[before.count("\n") :]
        return [row for line in lines for row in chop(line, width)]

    def _indented(self, node: Node, width: int, _: Look) -> list[Row]:
        text = node.token.content.removesuffix("\n").expandtabs(4)
        return self._beside("    ", "    ", chop([run(text)], max(width - 4, _LEAST_CELLS)), width)

    def _quote(self, node: Node, width: int, look: Look) -> list[Row]:
        bar = self._painter.glyphs.bar + " "
        rows = self.stack(node.inner, max(width - 2, _LEAST_CELLS), look)
        return self._beside(bar, bar, rows, width)

    def _list(self, node: Node, width: int, look: Look) -> list[Row]:
        rows: list[Row] = []
        number = 0
        items = list(nodes(node.inner))
        for item in items:
            if rows and self._blank_before(item.token):
                rows.append(())
            marker = f"{self._painter.glyphs.bullet} "
            if node.token.type == "ordered_list_open":
                number = self._counted(int(item.token.info), number, first=item is items[0])
                marker = f"{number}{item.token.markup} "
            inner = max(width - len(marker), _LEAST_CELLS)
            body = self.stack(item.inner, inner, look if item is items[-1] else Look.FINAL)
            rows += self._beside(marker, " " * len(marker), body or [()], width)
        return rows

    def _counted(self, own: int, last: int, *, first: bool) -> int:
        if first and self._number is not None:
            own, self._number = self._number, None
        return last + 1 if own == 1 and not first else own

    def _beside(self, first: str, rest: str, rows: list[Row], width: int) -> list[Row]:
        """The rows behind a prefix, where there is room for it."""
        if width - len(first) < _LEAST_CELLS:
            return rows
        beside = []
        for index, row in enumerate(rows):
            prefix = rest if index else first
            bare = not prefix.strip()
            if row or not bare:
                beside.append(_after(Run(prefix, PLAIN if bare else DIM), row))
            else:
                beside.append(row)
        return beside

    def _table(self, node: Node, width: int, look: Look) -> list[Row]:
        painter = self._painter
        if look is Look.FINAL and (
            rows := table.rows(node, width, painter.spans, painter.glyphs.rule)
        ):
            return rows
        first, last = node.token.map or (0, 0)
        text = "\n".join(re.sub(r"^[ \t>]*", "", line) for line in self._lines[first:last])
        return wrap(painter.spans(painter.parser.spans(text, grows=look is Look.GROWS)), width)
