"""What every test of a filter needs: to run it, to join what belongs together, to cut the input."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, pairwise

from hypothesis import strategies as st

from bourn.text.span import Filter, Span
from bourn.types import Channel

ANSWER, REASONING, TOOL = Channel.ANSWER, Channel.REASONING, Channel.TOOL

HARD = [
    "สวัสดีครับ",
    "안녕하세요",
    "👩‍👩‍👧‍👦",
    "🇫🇷",
    "🔥",
    "\ufffd",
    "\0",
    "    ",
    "“quoted”",
    "\n",
]
"""Texts that software of this kind stumbles over."""


def joined(spans: Iterable[Span]) -> list[Span]:
    """Neighbours of one channel made one, empty ones left out."""
    full = [span for span in spans if span.text]
    groups = groupby(full, key=lambda span: span.channel)
    return [Span(channel, "".join(span.text for span in group)) for channel, group in groups]


def run(stage: Filter, spans: Iterable[Span]) -> list[Span]:
    """All that comes out of a filter, joined."""
    out = [given for span in spans for given in stage.feed(span)]
    return joined([*out, *stage.flush()])


def answer(*texts: str) -> list[Span]:
    return [Span(ANSWER, text) for text in texts]


def pieces(text: str, cuts: Iterable[int]) -> list[str]:
    """The text, cut; the same place twice gives an empty piece."""
    borders = [0, *sorted(cuts), len(text)]
    return [text[a:b] for a, b in pairwise(borders)]


def sized(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@st.composite
def cut(draw: st.DrawFn, text: str) -> list[str]:
    """A cutting of a text: anything from one piece to single characters, with empty ones."""
    places = st.lists(st.integers(0, len(text)), max_size=min(2 * len(text), 30))
    return pieces(text, draw(st.one_of(places, st.just(list(range(len(text)))))))
