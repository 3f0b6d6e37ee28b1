"""Markdown as tokens, also of a text whose end is not there yet.

In a text that still grows, what was opened (`**`, `*`, `~~`, a code span, a link's address) is read
as if it were closed at the end: a word is bold from its first letter on. It knows no terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter
from markdown_it.token import Token

_GROWS = "bourn.grows"
_PATIENCE = 300  # characters after which what was opened is taken for a character of the text
_SPANS = re.compile(r"\\[^\n]?|(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_ADDRESS = re.compile(r"\]\([^()\s]*$")


class Node(NamedTuple):
    """A token and those inside it."""

    token: Token
    inner: list[Token]


def nodes(tokens: list[Token]) -> Iterator[Node]:
    """The outermost of them."""
    depth = start = 0
    for position, token in enumerate(tokens):
        if depth == 0:
            start = position
        depth += token.nesting
        if depth == 0:
            yield Node(tokens[start], tokens[start + 1 : position])


class Parser:
    """CommonMark with tables and ~~strike~~, without HTML and link references.

    HTML is text to a terminal. A reference could stand anywhere after its use.
    """

    def __init__(self) -> None:
        self._markdown = MarkdownIt("commonmark", {"html": False, "maxNesting": 20})
        self._markdown.enable(["table", "strikethrough"]).disable("reference")
        self._markdown.core.ruler.at("inline", _inline)
        self._markdown.inline.ruler2.after("balance_pairs", "close", _close)

    def parse(self, text: str, *, grows: bool = False) -> list[Token]:
        return self._markdown.parse(text, {_GROWS: grows})

    def spans(self, text: str, *, grows: bool = False) -> list[Token]:
        """Of text inside a block."""
        (token,) = self._markdown.parseInline(text, {_GROWS: grows})
        return token.children or []


def _inline(state: StateCore) -> None:
    """In place of the parser's own step: the same, but it knows which text grows."""
    grows = state.env[_GROWS]
    growing = _last_text(state.tokens) if grows else None
    for token in state.tokens:
        if token.type == "inline":
            state.env[_GROWS] = token is growing
            text = _closed(token.content) if token is growing else token.content
            token.children = []
            state.md.inline.parse(text, state.md, state.env, token.children)
    state.env[_GROWS] = grows


def _last_text(tokens: list[Token]) -> Token | None:
    for token in reversed(tokens):
        if token.nesting != -1:
            return token if token.type == "inline" else None
    return None


def _closed(text: str) -> str:
    """The text with its last code span, or its last link's address, closed."""
    left = _SPANS.sub("", text)
    _, marks, after = left.rpartition("`")
    if marks and 0 < len(after) < _PATIENCE:
        opened = left[: -len(after)]
        return text + opened[len(opened.rstrip("`")) :]
    return text + ")" if _ADDRESS.search(text) else text


def _close(state: StateInline) -> None:
    """Close the emphasis that is open at the end, the innermost first."""
    if not state.env[_GROWS]:
        return
    for opener in reversed(_open_delimiters(state)):
        mark = state.push("text", "", 0)
        mark.content = state.tokens[opener.token].content
        opener.end = len(state.delimiters)
        closer = Delimiter(opener.marker, 0, len(state.tokens) - 1, -1, open=False, close=True)
        state.delimiters.append(closer)


def _open_delimiters(state: StateInline) -> list[Delimiter]:
    found = [
        delimiter
        for delimiter in state.delimiters
        if delimiter.open and not delimiter.close and delimiter.end == -1
    ]
    return [opener for opener in found if _length_after(state, opener) < _PATIENCE]


def _length_after(state: StateInline, opener: Delimiter) -> int:
    return sum(len(token.content) for token in state.tokens[opener.token + 1 :])
