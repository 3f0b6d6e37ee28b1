"""An answer as an event stream: a status while there still may be one, and an end in any case.

It knows readers and ASGI; what is in the frames is for `wire.frames`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bourn.errors import BournError
from bourn.server.accesslog import tell
from bourn.server.config import ServerConfig
from bourn.server.hangups import while_connected
from bourn.server.refusals import refusal
from bourn.stream import Reader
from bourn.types import Delta, Done, Event, Finished
from bourn.wire.answers import DONE, Head, error_object, frame
from bourn.wire.frames import Frames
from bourn.wire.sse import comment

_log = logging.getLogger(__name__)

LARGEST_WRITE = 64 * 1024
"""Characters, about, that go out at once. A long answer that is there already takes many turns."""

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class Opened(NamedTuple):
    """An answer that is begun, or found. after: the last event that the client has seen."""

    reader: Reader
    head: Head
    after: int = 0

    @property
    def headers(self) -> dict[str, str]:
        return {
            "x-bourn-stream": self.head.id,
            "x-bourn-cache": self.reader.origin,
            "x-bourn-resumable": "yes" if self.reader.resumable else "no",
        }


Open = Callable[[], Awaitable[Opened]]
"""Begins or finds an answer. It may take long, and may be cancelled."""


class EventStream(Response):
    """The response of one reader, closed with it.

    The head is held until there is something to tell, so that a failure before it is a status, but
    no longer than `config.hold`. Silence is broken by comments. A client that reads slowly is
    waited for; what comes meanwhile stays in the journal.

    usage, places: as in `Frames`.
    """

    def __init__(
        self, open_: Open, config: ServerConfig, *, usage: bool = False, places: bool = False
    ) -> None:
        super().__init__()
        self._open = open_
        self._config = config
        self._usage = usage
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer() -> None:
            if (failure := await self._attempt(line, scope)) is not None:
                await refusal(failure)(scope, receive, send)

        line = Line(send, self._config)
        try:
            await while_connected(receive, answer())
        except ClientDisconnect:
            pass
        finally:
            line.hush()

    async def _attempt(self, line: Line, scope: Scope) -> BaseException | None:
        """Give the answer, or its error in the stream; the error itself, where there is none yet.

        Raises:
            ClientDisconnect.
        """
        try:
            failure = await self._tell(line, scope)
        except ClientDisconnect:
            raise
        except Exception as error:  # whatever it is, the client is told in the stream
            if not isinstance(error, BournError):
                if not line.begun:
                    raise
                _log.exception("an answer broke off")
            failure = error
        if failure is not None:
            if not line.begun:
                line.hush()
                return failure
            await line.write(frame(error_object(failure)) + DONE)
        await line.end()
        return None

    async def _tell(self, line: Line, scope: Scope) -> BaseException | None:
        opened = await self._open()
        reader = opened.reader
        try:
            line.headers = opened.headers
            frames = Frames(
                opened.head,
                usage=self._usage,
                places=self._places,
                earlier=reader.origin == "hit",
                after=opened.after,
            )
            number = 0
            while batch := await reader.next():
                if not line.begun and (failure := _failure(batch)) is not None:
                    return failure
                await _pass_on(frames, number, batch, line)
                number += len(batch)
                if isinstance(end := batch[-1], Done):
                    tell(scope, tokens=end.usage.completion_tokens)
        finally:
            reader.leave()
        return None


def _failure(batch: Sequence[Event]) -> BaseException | None:
    """Why an answer failed of which nothing was to be seen."""
    last = batch[-1]
    seen = any(isinstance(event, Delta | Finished) for event in batch)
    return last.error if isinstance(last, Done) and not seen else None


async def _pass_on(frames: Frames, number: int, batch: Sequence[Event], line: Line) -> None:
    parts: list[str] = []
    size = 0
    for event in batch:
        number += 1
        part = frames.frames_of(number, event)
        parts.append(part)
        size += len(part)
        if size >= LARGEST_WRITE:
            await line.write("".join(parts).encode("utf-8", "replace"))
            await asyncio.sleep(0)  # others want to be served too
            parts.clear()
            size = 0
    if size:
        await line.write("".join(parts).encode("utf-8", "replace"))


class Line:
    """The way to the client: the head before the first bytes, comments where nothing else goes.

    A ping of 0 is none.
    """

    def __init__(self, send: Send, config: ServerConfig) -> None:
        self.send = send
        self.headers: Mapping[str, str] = {}
        self.begun = False
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._spoke = self._loop.time()
        self._timer = self._loop.call_later(config.hold, self._listen)
        self._comment: asyncio.Task[None] | None = None
        self._hushed = False

    async def write(self, data: bytes) -> None:
        """Send, once the client has taken what went before. Raises ClientDisconnect."""
        async with self._turn:
            if self._hushed:
                return
            try:
                if not self.begun:
                    await self._begin()
                await self.send({"type": "http.response.body", "body": data, "more_body": True})
            except OSError as error:  # as servers may tell of a hang-up
                raise ClientDisconnect from error
            self._spoke = self._loop.time()

    async def end(self) -> None:
        """Raises ClientDisconnect."""
        async with self._turn:
            self.hush()
            try:
                await self.send({"type": "http.response.body", "body": b"", "more_body": False})
            except OSError as error:
                raise ClientDisconnect from error

    def hush(self) -> None:
        """Write no more. Idempotent."""
        self._hushed = True
        self._timer.cancel()

    async def _begin(self) -> None:
        self.begun = True
        told = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        await self.send({"type": "http.response.start", "status": 200, "headers": HEADERS + told})

    def _listen(self) -> None:
        """Break the silence, if it has lasted long enough; and look again when it may have."""
        if self.begun and self._config.ping <= 0:
            return
        patience = self._config.ping if self.begun else self._config.hold
        left = self._spoke + patience - self._loop.time()
        if left <= 0 and not self._turn.locked():
            self._comment = self._loop.create_task(self._write_comment())
            left = self._config.ping
        self._timer = self._loop.call_later(max(left, 0.01), self._listen)

    async def _write_comment(self) -> None:
        with suppress(ClientDisconnect):
            await self.write(comment("wait"))
