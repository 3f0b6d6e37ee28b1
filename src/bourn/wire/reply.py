"""One answer on OpenAI's wire, in: the bytes of a response body become pieces. No I/O.

It decides where the answer ends and whether that end is clean: with `[DONE]`, or a finish reason
for each choice. An end with neither is an interruption, never a short answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jiter

from bourn.errors import BournError, EngineError, Interrupted
from bourn.types import Piece
from bourn.wire.chunks import ChunkReader
from bourn.wire.failures import failure_of, is_failure
from bourn.wire.sse import MAX_EVENT, ServerSentEvent, SSEDecoder

_BLANK = b" \t\r\n\xef\xbb\xbf"
_UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)
"""What reading JSON of another shape than expected raises."""


class ReplyReader:
    """Reads a response body, cut anywhere: an event stream, or one JSON object.

    Which of the two it is shows in the body: there are servers that name the wrong type, and such
    as do not know streaming. The piece with the last finish reason is held until `close`, so that
    it carries the usage that comes after it.

    n: how many choices are due. top: alternatives wanted beside each logprob.
    failure: makes the error for what the server says inside the stream.
    """

    def __init__(
        self,
        n: int = 1,
        top: int | None = None,
        failure: Callable[[int | None, str], BournError] = failure_of,
    ) -> None:
        self._n = n
        self._failure = failure
        self._events = SSEDecoder()
        self._chunks = ChunkReader(top)
        self._whole: bytearray | None = None
        self._undecided = True
        self._held: list[Piece] = []
        self._seen = False  # whether any event came
        self.done = False
        """Nothing more is wanted: the server has said that this is all."""

    @property
    def finished(self) -> bool:
        """Every choice has its finish reason; only the usage may still come."""
        return bool(self._held)

    def feed(self, data: bytes) -> Iterator[Piece]:
        """The pieces that `data` completes, without the last finish. To be exhausted.

        Raises:
            BournError: the server says that it failed; what came before it has been given.
            EngineError: what came is no answer of a language model.
        """
        if self._undecided:
            data = data.lstrip(_BLANK)
            if not data:
                return
            self._undecided = False
            self._whole = bytearray() if data.startswith((b"{", b"[")) else None
        if self._whole is None:
            for event in self._events.feed(data):
                yield from self._event(event)
            return
        self._whole += data
        if len(self._whole) > MAX_EVENT:
            raise EngineError("the endpoint sent an endless JSON object")

    def close(self) -> Iterator[Piece]:
        """The body has ended, or is wanted no longer: what is left, and the last finish.

        Raises:
            Interrupted: it ended without a finish reason.
            BournError: as `feed`.
        """
        if self._whole is not None:
            yield from self._answer(bytes(self._whole).decode("utf-8", "replace"))
        else:
            for event in self._events.flush():  # perhaps a frame cut in two, which says nothing
                yield from self._event(event, whole=False)
        if not self._held:
            self._assume()
        yield from self._held[:-1]
        yield replace(self._held[-1], usage=self._chunks.usage)

    def _assume(self) -> None:
        """The ends of choices for which none was given: `[DONE]` after some text is an end too."""
        for index, reason in self._chunks.unfinished(self._n):
            if reason is None or not self.done:
                raise self._interrupted(index)
            self._held.append(Piece(choice=index, finish=reason, assumed=True))

    def _interrupted(self, choice: int) -> Interrupted:
        if not self._seen:
            return Interrupted(
                "the endpoint's answer holds no event",
                hint="is the base URL right? it mostly ends in /v1",
            )
        which = f" of choice {choice + 1} of {self._n}" if self._n > 1 else ""
        return Interrupted(
            f"the answer{which} ended without a finish reason",
            hint="the connection or the server broke off; what came before is kept, ask again",
        )

    def _event(self, event: ServerSentEvent, *, whole: bool = True) -> list[Piece]:
        self._seen = True
        data = event.data
        while data.startswith("data:"):  # framed twice, by a proxy
            data = data[5:].lstrip(" ")
        if self.done or not data or data.isspace():
            return []
        if data.strip() == "[DONE]":
            self.done = True
            return []
        if event.event == "error":
            raise self._failure(None, data)
        return self._answer(data, certain=whole and event.event == "message")

    def _answer(self, data: str, *, certain: bool = True) -> list[Piece]:
        """The pieces of a chunk, or of a whole answer. Not `certain`: it may be something else."""
        self._seen = True
        try:
            chunk = _parse(data)
        except ValueError:
            if data.startswith('{"error"'):  # JSON put together by hand, and broken
                raise self._failure(None, data) from None
            if certain:
                raise _unreadable(data) from None
            return []
        if is_failure(chunk) and not self._held:
            raise self._failure(None, data)
        try:
            return self._take(chunk)
        except _UNREADABLE as error:
            raise _unreadable(data) from error

    def _take(self, chunk: Mapping[str, Any]) -> list[Piece]:
        if self._held:
            self._chunks.pieces_of(chunk)  # for its usage
            self.done = not chunk.get("choices") and bool(chunk.get("usage"))
            return []
        pieces = self._chunks.pieces_of(chunk)
        if any(piece.finish for piece in pieces) and self._chunks.finished(self._n):
            self._held = [piece for piece in pieces if piece.finish]
            pieces = [piece for piece in pieces if not piece.finish]
        return pieces


def _unreadable(data: str) -> EngineError:
    return EngineError(
        f"the endpoint sent what is no chunk of an answer: {data:.200}",
        hint="does it speak OpenAI's wire?",
    )


def _parse(data: str) -> Any:
    """JSON as read by jiter; by the standard library where it holds half a surrogate pair."""
    try:
        return jiter.from_json(data.encode("utf-8", "replace"))
    except ValueError:
        text = json.dumps(json.loads(data), ensure_ascii=False)
        return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
