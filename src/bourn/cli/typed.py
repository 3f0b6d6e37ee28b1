"""What a typed text is: a command, or a question of one line or of several. Pure.

A command begins with `:` or `/`. A question that begins so has a space before it. Several lines are
between two triple quotes: where the first stands alone in its line, so does the last.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MARKS = (":", "/")
BLOCK = '"""'


class Call(NamedTuple):
    """A command that was typed. `mark`: what stood before its name."""

    mark: str
    name: str
    argument: str = ""


def parse(typed: str) -> Call | str:
    """A command, or a question; "" where nothing was typed."""
    if _is_block(typed):
        return _inside(typed)
    if not typed.startswith(MARKS):
        text = typed.strip()
        return text if text.startswith(MARKS) else typed.rstrip().lstrip("\r\n")
    name, argument = _NAME.split(typed[1:], 1) if _NAME.search(typed) else (typed[1:], "")
    return Call(typed[0], name.lower(), argument.rstrip())


_NAME = re.compile(r"\s+")


def unfinished(typed: str) -> bool:
    """Whether this is the beginning of several lines whose end is not typed yet."""
    return _is_block(typed) and not _ends(typed)


def _is_block(typed: str) -> bool:
    first, newline, _ = typed.partition("\n")
    return first.startswith(BLOCK) and not (newline and _closed(first))  # else it is a quotation


def _ends(typed: str) -> bool:
    first, _, rest = typed.partition("\n")
    if first.rstrip() != BLOCK:
        return _closed(typed)
    return rest.rstrip().rpartition("\n")[2].strip() == BLOCK


def _closed(text: str) -> bool:
    text = text.rstrip()
    return text.endswith(BLOCK) and len(text) >= 2 * len(BLOCK)


def _inside(block: str) -> str:
    text = block.removeprefix(BLOCK)
    if _ends(block):
        text = text.rstrip().removesuffix(BLOCK)
    text = re.sub(r"\A[ \t]*\r?\n", "", text)
    return text.rstrip()
