"""The way of one choice's text, from an engine's pieces to deltas: channels ▸ calls ▸ stop strings.

Knows neither engines nor readers. A later stage (a guard, structured segments) is one filter more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bourn.text.calls import Part, calls_in
from bourn.text.channels import Channels, Cut
from bourn.text.riders import Riders
from bourn.text.span import Filter, Span
from bourn.text.stops import StopStrings
from bourn.types import Channel, Delta, Piece, TokenLogprob


class Pipeline:
    """One per choice. Every token is counted on exactly one delta, and no delta is empty.

    stop: texts that end the answer. channels: the family of marks in the raw text, None where the
    engine has told the channels apart. calls: the notation of tool calls in the text of the tool
    channel, None where it is to stay text. opened: the channel that the prompt has opened.

    Log probabilities come with the text that their token begins in, in order. Those of tokens that
    begin inside a stop string are dropped. Where some are left at the end and no text to go with,
    there is one delta more, without text.
    """

    def __init__(
        self,
        stop: tuple[str, ...] = (),
        channels: str | None = None,
        *,
        calls: str | None = None,
        opened: Channel = Channel.ANSWER,
    ) -> None:
        self._channels = Channels(channels, opened=opened) if channels is not None else None
        self._calls = calls_in(calls)
        self._stops = StopStrings(stop)
        self._filters: tuple[Filter, ...] = (self._stops,) if stop else ()
        self._riders = Riders()
        # nothing to look for, until entries come
        self._plain = channels is None and calls is None and not stop
        self._fed = 0
        self._choice = 0

    @property
    def stopped(self) -> str | None:
        """The stop string that has ended the answer. After it `feed` gives nothing."""
        return self._stops.matched

    @property
    def called(self) -> bool:
        """Whether a tool call is whole, of those that were read here."""
        return self._calls.whole > 0

    @property
    def pending_tokens(self) -> int:
        """Tokens that no delta has counted yet."""
        return self._riders.tokens

    def open(self, channel: Channel) -> None:
        """The prompt has opened this channel. To be called before any text."""
        if self._channels is not None:
            self._channels.open(channel)

    def feed(self, piece: Piece) -> list[Delta]:
        """What is certain now."""
        self._choice = piece.choice
        self._riders.tokens += piece.tokens
        if self.stopped is not None:
            return []
        self._plain = self._plain and not piece.logprobs
        if self._plain and piece.text and piece.tool is None:
            return [Delta(piece.text, piece.channel, piece.choice, self._riders.take_tokens())]
        self._riders.board(piece.text, piece.logprobs)
        deltas = []
        if piece.text:
            deltas = self._deltas(self._cut(Span(piece.channel, piece.text)))
        if piece.tool is not None:  # an engine that reads calls itself: it ends what was begun
            deltas += self._rest() + self._parts([Part(tool=piece.tool)])
        if self.stopped is not None:
            return self._with(deltas, self._riders.decided())
        return deltas

    def flush(self) -> list[Delta]:
        """What was held back: the choice has come to its natural end, or to a limit.

        A stop string may be found in it.
        """
        deltas = self._rest()
        for number, stage in enumerate(self._filters, start=1):
            deltas += self._sent(_through(self._filters[number:], stage.flush()))
        left = self._riders.rest() if self.stopped is None else self._riders.decided()
        return self._with(deltas, left)

    def _cut(self, span: Span) -> list[Cut]:
        if self._channels is not None:
            return self._channels.cut(span)
        self._fed += len(span.text)
        return [Cut(span.channel, span.text, self._fed)]

    def _rest(self) -> list[Delta]:
        """What the channels and the calls hold."""
        deltas = self._deltas(self._channels.rest()) if self._channels is not None else []
        return deltas + self._parts(self._calls.end())

    def _deltas(self, cuts: Iterable[Cut]) -> list[Delta]:
        deltas = []
        for cut in cuts:
            self._riders.label(cut)
            if cut.first or cut.channel is not Channel.TOOL:
                deltas += self._parts(self._calls.end())
            if cut.channel is not Channel.TOOL:
                deltas += self._sent(_through(self._filters, [Span(cut.channel, cut.text)]))
            elif self.stopped is None:
                deltas += self._parts(self._calls.feed(cut.text))
        return deltas

    def _parts(self, parts: Iterable[Part]) -> list[Delta]:
        deltas = []
        for text, tool in parts:
            if tool is None:
                deltas += self._sent(_through(self._filters, [Span(Channel.TOOL, text)]))
            elif self.stopped is None:
                deltas.append(replace(self._delta(Span(Channel.TOOL, "")), tool=tool))
        return deltas

    def _sent(self, spans: Iterable[Span]) -> list[Delta]:
        return [self._delta(span) for span in spans]

    def _delta(self, span: Span) -> Delta:
        tokens, logprobs = self._riders.leave(span)
        return Delta(span.text, span.channel, self._choice, tokens, logprobs)

    def _with(self, deltas: list[Delta], entries: tuple[TokenLogprob, ...]) -> list[Delta]:
        """The last entries go with the last text."""
        if not entries:
            return deltas
        last = deltas.pop() if deltas else self._delta(Span(Channel.ANSWER, ""))
        return [*deltas, replace(last, logprobs=last.logprobs + entries)]


def _through(filters: Sequence[Filter], spans: list[Span]) -> list[Span]:
    for stage in filters:
        spans = [out for span in spans for out in stage.feed(span)]
    return spans
