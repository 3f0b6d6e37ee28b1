"""What a line of Markdown looks like, by itself. As CommonMark and markdown-it have it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_FENCE = re.compile(r"(`{3,})[^`]*$|(~{3,})")
_HEADING = re.compile(r"#{1,6}(?: |$)")
_RULE = re.compile(r"(?:\* *){3,}$|(?:- *){3,}$|(?:_ *){3,}$")
_UNDERLINE = re.compile(r"-+$|=+$")
_ITEM = re.compile(r"(?P<marker>[-+*]|(?P<number>\d{1,9})[.)])(?P<space> +|$)(?P<content>.?)")

_PIPE = re.compile(r"(?<!\\)\|")
_ANY_PIPE = re.compile(r"\|")
_DELIMITER = re.compile(r" *:?-+:? *")

_LONG = 200  # characters: no mark of Markdown is that long
_UNDECIDED = re.compile(r"[ \t>]*(?:(?:\d{1,9}[.)]?)?[ \t]*|[-+*_=#|:~` \t]*|(?:`{3,}|~{3,}).*)")


@dataclass(frozen=True, slots=True)
class Line:
    """Indented by so many columns; the body has no spaces around it."""

    indent: int
    body: str

    @classmethod
    def read(cls, line: str) -> Self:
        """Columns are those of CommonMark: a tab goes on to the next multiple of four."""
        text = line.expandtabs(4).rstrip(" \n")
        body = text.lstrip(" ")
        return cls(len(text) - len(body), body)

    @property
    def fence(self) -> str:
        """The marks that open a fence, if this line does."""
        return _fence_marks(self.body) if self.indent < 4 else ""

    @property
    def heading(self) -> bool:
        return self.indent < 4 and _HEADING.match(self.body) is not None

    @property
    def rule(self) -> bool:
        return self.indent < 4 and _RULE.match(self.body) is not None

    @property
    def underline(self) -> bool:
        """It makes a heading of the paragraph above it."""
        return self.indent < 4 and _UNDERLINE.match(self.body) is not None

    @property
    def quote(self) -> bool:
        return self.indent < 4 and self.body.startswith(">")

    @property
    def item(self) -> re.Match[str] | None:
        return _ITEM.match(self.body) if self.indent < 4 and not self.rule else None

    @property
    def starts_item(self) -> bool:
        """It begins a list even in the middle of a paragraph."""
        item = self.item
        return bool(item and item["content"]) and item["number"] in (None, "1")  # type: ignore[index]

    @property
    def starts_block(self) -> bool:
        return bool(self.fence) or self.heading or self.rule or self.quote or self.starts_item


def is_undecided(start: str) -> bool:
    """Whether the start of a line may yet turn out to be text, or a mark of some kind."""
    return len(start) < _LONG and _UNDECIDED.fullmatch(start) is not None


def _fence_marks(body: str) -> str:
    found = _FENCE.match(body)
    return (found[1] or found[2]) if found else ""


def closes(fence: str, body: str) -> bool:
    return len(body) >= len(fence) and body == fence[0] * len(body)


def is_table(head: Line, line: Line) -> bool:
    """Whether these are the first two lines of one."""
    if "|" not in head.body or max(head.indent, line.indent) >= 4:
        return False
    if len(line.body) < 2 or line.body.startswith("- "):
        return False
    delimiters = _split(line.body, _ANY_PIPE)
    return len(_split(head.body, _PIPE)) == len(delimiters) > 0 and all(
        map(_DELIMITER.fullmatch, delimiters)
    )


def _split(body: str, pipe: re.Pattern[str]) -> list[str]:
    """The cells of a row."""
    cells = pipe.split(body)
    return cells[not cells[0].strip() : len(cells) - (not cells[-1].strip())]
