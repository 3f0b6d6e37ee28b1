"""Highlighted code."""

from __future__ import annotations

from rich.style import Style
from rich.syntax import Syntax

from bourn.cli.neutral import neutral
from bourn.cli.render.rows import PLAIN, Row, Run, append


def highlight(text: str, language: str, theme: str) -> list[Row]:
    """The lines in the terminal's own colours; plain where the language is not known."""
    text = neutral(text)
    shown = Syntax("", language, theme=theme).highlight(text)
    runs: list[Run] = []
    at = 0
    for start, end, style in shown.spans:
        runs.append(Run(shown.plain[at:start]))
        runs.append(Run(shown.plain[start:end], style if isinstance(style, Style) else PLAIN))
        at = end
    runs.append(Run(shown.plain[at:]))
    return _lines(runs)[: text.count("\n") + 1]


def _lines(runs: list[Run]) -> list[Row]:
    lines: list[list[Run]] = [[]]
    for text, style in runs:
        first, *others = text.split("\n")
        append(lines[-1], Run(first, style))
        lines += [[Run(line, style)] if line else [] for line in others]
    return [tuple(line) for line in lines]
