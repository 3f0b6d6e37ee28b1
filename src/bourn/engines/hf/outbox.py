"""From the engine's thread to the event loop: one wake-up for all that a step has said."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress

from bourn.engines.hf.sequence import Sink
from bourn.types import Piece

Said = Piece | Exception


class Mailbox:
    """What the rows of one request have said and nobody has read yet. It belongs to the loop."""

    def __init__(self) -> None:
        self._said: deque[Said] = deque()
        self._news = asyncio.Event()

    def put(self, said: Said) -> None:
        self._said.append(said)
        self._news.set()

    async def take(self) -> Said:
        while not self._said:
            self._news.clear()
            await self._news.wait()
        return self._said.popleft()


class Outbox:
    """Collects in the engine's thread, delivers in the loop once it is told to `send`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._pending: list[tuple[Mailbox, Said]] = []

    def sink(self, mailbox: Mailbox) -> Sink:
        """What a row calls to reach this mailbox."""
        return lambda said: self._put(mailbox, said)

    def send(self) -> None:
        """Deliver what was said, soon."""
        with suppress(RuntimeError):  # the loop is closed, and nobody reads any more
            if self._pending:
                self._loop.call_soon_threadsafe(self._deliver)

    def _put(self, mailbox: Mailbox, said: Said) -> None:
        with self._lock:
            self._pending.append((mailbox, said))

    def _deliver(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, []
        for mailbox, said in pending:
            mailbox.put(said)
