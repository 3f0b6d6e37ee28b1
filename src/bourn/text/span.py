"""What the filters of this package take and give: text with a label."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from bourn.types import Channel


class Span(NamedTuple):
    channel: Channel
    text: str


class Filter(Protocol):
    """One stage of the text's way. It holds back only what later text can still change.

    The law: any cutting of the input gives the same output, its labels included, once
    neighbouring spans of one channel are joined.
    """

    def feed(self, span: Span) -> list[Span]:
        """What is certain now."""
        ...

    def flush(self) -> list[Span]:
        """What was held back: the text has come to its natural end, or to a limit."""
        ...
