"""Splits a model's raw text into answer, reasoning and tool calls, by its family's marks.

Marks are dropped, and with them the newlines that only set them apart:

- those right after a mark, so that the answer does not begin with blank lines after `</think>`;
- those right before a mark, save in an answer that has begun, where they part its paragraphs.

Two blocks of reasoning, or two tool calls, are joined by one newline. The tool channel keeps the
model's own notation: what it means is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bourn.errors import SettingsError
from bourn.text.families import FAMILIES, family_of, opened_by
from bourn.text.matcher import Matcher
from bourn.text.span import Span
from bourn.types import Channel

__all__ = ["FAMILIES", "Channels", "Cut", "family_of", "opened_by"]


class Cut(NamedTuple):
    """A stretch of one channel.

    end: how many characters of the raw text lie before its end. first: it begins a block, after a
    mark; the newline that joins it to an earlier block is in its text.
    """

    channel: Channel
    text: str
    end: int
    first: bool = False


class Channels:
    """Labels raw text, which comes as ANSWER spans; spans with another label pass as they are.

    opened: the channel that the prompt has opened already (`opened_by`).

    Raises:
        SettingsError: there is no family of that name.
    """

    def __init__(self, family: str, *, opened: Channel = Channel.ANSWER) -> None:
        if family not in FAMILIES:
            raise SettingsError(
                f"no family of marks is called {family!r}", hint=f"known: {', '.join(FAMILIES)}"
            )
        self._sections = FAMILIES[family].sections
        self._fed = 0
        self._blank = 0  # newlines held at the end, which belong to a mark if one comes now
        self._spoken: set[Channel] = set()
        self.open(opened)

    @property
    def held(self) -> str:
        """The end of the raw text that may yet become a mark, or part of its setting."""
        return "\n" * self._blank + self._matcher.held

    def open(self, channel: Channel) -> None:
        """The prompt has opened this channel. To be called before any text."""
        self._enter(channel)
        self._fresh = channel is not Channel.ANSWER

    def feed(self, span: Span) -> list[Span]:
        return [Span(cut.channel, cut.text) for cut in self.cut(span)]

    def flush(self) -> list[Span]:
        return [Span(cut.channel, cut.text) for cut in self.rest()]

    def cut(self, span: Span) -> list[Cut]:
        """As `feed`, with the places in the raw text."""
        if span.channel is Channel.ANSWER:
            self._fed += len(span.text)
            return list(self._read(span.text))
        rest = self.rest()
        self._fed += len(span.text)
        return [*rest, Cut(span.channel, span.text, self._fed)]

    def rest(self) -> list[Cut]:
        """As `flush`, with the places in the raw text."""
        held = "\n" * self._blank + self._matcher.flush()
        self._blank = 0
        return self._label(held, self._fed)

    def _enter(self, name: str) -> None:
        self._section = self._sections[name]
        self._matcher = Matcher(self._section.marks)
        self._fresh = True  # nothing was written in it yet

    def _read(self, text: str) -> Iterator[Cut]:
        start, at = self._fed - len(text), 0
        while at < len(text):
            clear, mark, at = self._matcher.read(text, at)
            undecided = len(self._matcher.held if mark is None else mark)
            yield from self._write(clear, start + at - undecided, marked=mark is not None)
            if mark is not None:
                self._enter(self._section.marks[mark])

    def _write(self, clear: str, end: int, *, marked: bool) -> list[Cut]:
        """Some text of this section, up to `end`; a mark follows it, or nothing yet."""
        if self._fresh:
            clear = clear.lstrip("\n")
        text = clear.rstrip("\n")
        if self._section.channel is Channel.ANSWER and (text or Channel.ANSWER in self._spoken):
            text = clear  # the newlines of an answer that has begun are its own
        blank = len(clear) - len(text)
        if text:
            text, self._blank = "\n" * self._blank + text, 0
        self._blank = 0 if marked else self._blank + blank
        return self._label(text, end - blank)

    def _label(self, text: str, end: int) -> list[Cut]:
        channel = self._section.channel
        if channel is None or not text:
            return []
        if self._fresh and channel is not Channel.ANSWER and channel in self._spoken:
            text = "\n" + text
        first, self._fresh = self._fresh, False
        self._spoken.add(channel)
        return [Cut(channel, text, end, first)]
