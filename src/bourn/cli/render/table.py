"""Tables whose columns are known: aligned, and fitted to the width."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Literal

from markdown_it.token import Token
from rich import box
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from bourn.cli.render.parser import Node, nodes
from bourn.cli.render.rows import PLAIN, Row, Run, append

_LEAST_CELLS = 6  # of a column
_BREAK = re.compile(r"<br */?>", re.IGNORECASE)
_BOX = box.SIMPLE_HEAD
_ASCII_BOX = box.Box(str(_BOX).replace("─", "-"), ascii=True)
_DIM = Style(dim=True)

Justify = Literal["left", "center", "right"]


def rows(node: Node, width: int, spans: Callable[[list[Token]], list[Run]], rule: str) -> list[Row]:
    """The table; no rows where its columns would be too narrow to read."""
    lines = [list(nodes(line.inner)) for part in nodes(node.inner) for line in nodes(part.inner)]
    head, *body = lines
    if width // len(head) < _LEAST_CELLS:
        return []
    shown = Table(
        box=_BOX if rule == "─" else _ASCII_BOX, pad_edge=False, border_style=_DIM, show_edge=False
    )
    for cell in head:
        shown.add_column(_text(cell, spans), justify=_justify(cell), overflow="fold")
    for line in body:
        shown.add_row(*(_text(cell, spans) for cell in line))
    return _drawn(shown, width)


def _text(cell: Node, spans: Callable[[list[Token]], list[Run]]) -> Text:
    runs = spans(cell.inner[0].children or [])
    return Text.assemble(*((_BREAK.sub("\n", text), style) for text, style in runs))


def _justify(cell: Node) -> Justify:
    style = str(cell.token.attrs.get("style", ""))
    return "right" if "right" in style else "center" if "center" in style else "left"


def _drawn(table: Table, width: int) -> list[Row]:
    console = Console(file=io.StringIO(), width=width, _environ={})
    drawn = []
    for line in console.render_lines(table, console.options, pad=False):
        row: list[Run] = []
        for text, style, _ in line:
            append(row, Run(text, style or PLAIN))
        if row:
            row[-1] = Run(row[-1].text.rstrip(), row[-1].style)
        drawn.append(tuple(row))
    return drawn
