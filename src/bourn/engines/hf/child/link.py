"""The parent's end of the line: what became of each request.

It knows no processes: whether the child lives is others' matter.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import AsyncGenerator, Callable
from itertools import count

from bourn.engines import OnProgress
from bourn.engines.base import ModelInfo
from bourn.engines.hf.child.frames import (
    Ask,
    Cancel,
    Count,
    Counted,
    Ended,
    Failed,
    Frame,
    Hello,
    Hold,
    Loading,
    Ready,
    Step,
    abroad,
)
from bourn.engines.hf.child.line import Line
from bourn.errors import BournError, ConnectionFailed
from bourn.types import Piece, Request

MOST = 512
"""Pieces that wait for a slow reader before the child is told to hold that request."""

_AGAIN = 64  # pieces that still wait when it is told to go on
_GREETING = 1024  # bytes of the first frame: until then it may be anybody


class Reply:
    """The pieces of one request that nobody has taken yet, and how it ended."""

    def __init__(self) -> None:
        self.pieces: deque[Piece] = deque()
        self.held = False
        self.ended = False
        self.error: Exception | None = None
        self._news: asyncio.Future[None] | None = None

    def put(self, piece: Piece) -> None:
        if not self.ended:
            self.pieces.append(piece)
            self._wake()

    def end(self, error: Exception | None = None) -> None:
        """The first end is the end."""
        if not self.ended:
            self.ended = True
            self.error = error
            self._wake()

    async def news(self) -> None:
        """Wait for something to take, or for the end."""
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class Link(Line):
    """The connection to one life of the child.

    info: what it is, once it is ready. failure: why it will not be, or is no more.
    """

    def __init__(
        self, key: str, welcome: Callable[[Link], None], on_progress: OnProgress | None
    ) -> None:
        super().__init__(limit=_GREETING)
        self.info: ModelInfo | None = None
        self.failure: BournError | None = None
        self._key = key
        self._welcome: Callable[[Link], None] | None = welcome
        self._on_progress = on_progress
        self._settled = asyncio.Event()
        self._ids = count(1)
        self._replies: dict[int, Reply] = {}
        self._counts: dict[int, asyncio.Future[int | None]] = {}

    async def settled(self) -> bool:
        """Whether it said what it is, or why it cannot be; waits for that, or for the end."""
        await self._settled.wait()
        return self.info is not None or self.failure is not None

    async def ask(self, request: Request) -> AsyncGenerator[Piece, None]:
        """The pieces of one request; leaving cancels it.

        Raises:
            InvalidRequest: it holds what cannot be sent.
            ConnectionFailed: the child is gone.
            BournError: what its engine raised.
        """
        id_, reply = next(self._ids), Reply()
        await self.room()
        self._say(Ask(id_, request))
        self._replies[id_] = reply
        try:
            while reply.pieces or not reply.ended:
                if reply.pieces:
                    yield reply.pieces.popleft()
                    self._go_on(id_, reply)
                else:
                    await reply.news()
        finally:
            del self._replies[id_]
            if not reply.ended:
                self.say(Cancel(id_))
        if reply.error is not None:
            raise reply.error

    async def count(self, request: Request) -> int | None:
        """How many tokens its prompt is. Raises what `ask` raises."""
        id_ = next(self._ids)
        self._say(Count(id_, request))
        self._counts[id_] = asyncio.get_running_loop().create_future()
        try:
            return await self._counts[id_]
        except asyncio.CancelledError:
            self.say(Cancel(id_))
            raise
        finally:
            del self._counts[id_]

    def _say(self, frame: Frame) -> None:
        if self.gone:
            raise self._broken()
        self.say(frame)

    def _go_on(self, id_: int, reply: Reply) -> None:
        if reply.held and len(reply.pieces) <= _AGAIN:
            reply.held = False
            self.say(Hold(id_, on=False))

    # -- what the child says -----------------------------------------------------------------------

    def heard(self, frame: Frame) -> None:
        if self._welcome is not None:
            self._greet(frame)
        elif isinstance(frame, Step):
            for id_, piece in frame.pieces:
                self._take(id_, piece)
        else:
            self._news(frame)

    def _greet(self, frame: Frame) -> None:
        if not isinstance(frame, Hello) or not self._knows(frame.key):
            self.hang_up("somebody else has called")
        elif self._welcome is not None:
            self._welcome(self)
            self._welcome = None
            self.trust()

    def _knows(self, key: str) -> bool:
        return hmac.compare_digest(key.encode(errors="replace"), self._key.encode())

    def _take(self, id_: int, piece: Piece) -> None:
        reply = self._replies.get(id_)
        if reply is None:
            return  # cancelled, and said before that was heard
        reply.put(piece)
        if len(reply.pieces) >= MOST and not reply.held:
            reply.held = True
            self.say(Hold(id_))

    def _news(self, frame: Frame) -> None:
        match frame:
            case Ended() if frame.id in self._replies:
                self._replies[frame.id].end()
            case Counted() if waiting := self._waiting(frame.id):
                waiting.set_result(frame.tokens)
            case Failed():
                self._fail(frame.id, frame.error)
            case Loading():
                if self._on_progress is not None:
                    self._on_progress(frame.done, frame.total)
            case Ready():
                self.info = abroad(frame.info)
                self._settled.set()

    def _fail(self, id_: int | None, error: Exception) -> None:
        if id_ is None and isinstance(error, BournError):
            self.failure = error
            self._settled.set()
        elif id_ in self._replies:
            self._replies[id_].end(error)
        elif waiting := self._waiting(id_):
            waiting.set_exception(error)

    def _waiting(self, id_: int | None) -> asyncio.Future[int | None] | None:
        """Who waits for that count, and has not given up."""
        waiting = None if id_ is None else self._counts.get(id_)
        return None if waiting is None or waiting.done() else waiting

    def lost(self) -> None:
        """The end for all who wait. What they were told is theirs."""
        if self.fault and self.failure is None:
            self.failure = self._broken()
        self._settled.set()
        for reply in self._replies.values():
            reply.end(self._broken())
        for waiting in self._counts.values():
            if not waiting.done():
                waiting.set_exception(self._broken())

    def _broken(self) -> BournError:
        if self.failure is not None:
            return self.failure
        return ConnectionFailed(
            f"the model's process hung up{self.fault and f': {self.fault}'}",
            hint="ask again: it is started anew",
        )
