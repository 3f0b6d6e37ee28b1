"""The events of one answer as the frames of an event stream, with OpenAI's chunks in them.

It says what `wire.answers` says, and is quick where it matters: around a text that goes on, all is
always the same, and made once. It knows no connection and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bourn.types import Channel, Delta, Done, Event, Finished, Queued
from bourn.wire.answers import DONE, ChunkWriter, Head, error_object, json_text, speed_object
from bourn.wire.sse import encode

_MARK = "\0text\0"
_END = DONE.decode()


class Frames:
    """Frames, as text. The last one of an event carries `id: <answer's id>:<event's number>`.

    usage: whether a chunk of usage was asked for; the numbers about speed (`metrics`) are in it,
        else in the last finish chunk, which then waits for them.
    places: whether places in the queue are told, in chunks without choices.
    earlier: whether the answer was there already.
    after: the number of the last event that the client has seen; up to it nothing is repeated.
    """

    def __init__(
        self,
        head: Head,
        *,
        usage: bool = False,
        places: bool = False,
        earlier: bool = False,
        after: int = 0,
    ) -> None:
        self._writer = ChunkWriter(head)
        self._id = encode("", id=f"{head.id}:").decode().partition("\n")[0]
        self._usage = usage
        self._places = places
        self._earlier = earlier
        self._after = after
        self._around: dict[tuple[int, Channel], tuple[str, str]] = {}
        self._held: _Numbered | None = None

    def frames_of(self, number: int, event: Event) -> str:
        """What the client is sent of an event, perhaps nothing. The `Done` ends the stream."""
        if type(event) is Delta and event.tool is None and not event.logprobs:
            around = self._around.get((event.choice, event.channel))
            if around is not None and event.text and not self._held and number > self._after:
                before, after = around
                return f"{self._id}{number}{before}{json_text(event.text)}{after}"
        return self._slowly(number, event)

    def _slowly(self, number: int, event: Event) -> str:
        if isinstance(event, Done):
            return self._end(number, event)
        chunks = self._writer.chunks_of(event)
        if self._places and isinstance(event, Queued):
            chunks = [self._writer.bare_chunk(bourn={"place": event.place})]
        if not chunks:
            return ""
        told = self._released()
        if isinstance(event, Delta):
            self._remember(event)
        if isinstance(event, Finished) and not self._usage:
            self._held = _Numbered(number, chunks)
            return told
        return told + self._framed(number, chunks)

    def _end(self, number: int, done: Done) -> str:
        speed = speed_object(done.metrics, earlier=self._earlier)
        if done.error is not None:
            return self._released() + self._framed(number, [error_object(done.error)]) + _END
        last = self._writer.broken_off() if done.state == "cancelled" else []
        if self._usage:
            last.append(self._writer.usage_chunk(done.usage) | {"metrics": speed})
        elif last:
            last[-1]["metrics"] = speed
        elif self._held:
            self._held.chunks[-1]["metrics"] = speed
        return self._released() + self._framed(number, last) + _END

    def _released(self) -> str:
        held, self._held = self._held, None
        return self._framed(*held) if held else ""

    def _framed(self, number: int, chunks: Sequence[dict[str, Any]]) -> str:
        if not chunks or number <= self._after:
            return ""
        *others, last = (f"data: {json_text(chunk)}\n\n" for chunk in chunks)
        return f"{''.join(others)}{self._id}{number}\n{last}"

    def _remember(self, event: Delta) -> None:
        """What is around texts like this one, from here on."""
        key = (event.choice, event.channel)
        if key not in self._around and event.text and event.tool is None:
            (chunk,) = self._writer.chunks_of(replace(event, text=_MARK, logprobs=()))
            before, _, after = f"\ndata: {json_text(chunk)}\n\n".rpartition(json_text(_MARK))
            self._around[key] = before, after


class _Numbered(NamedTuple):
    number: int
    chunks: list[dict[str, Any]]
