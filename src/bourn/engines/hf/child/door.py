"""Where a child finds its parent: open only while one is expected, and for that child alone."""

from __future__ import annotations

import asyncio
import socket

from bourn.engines import OnProgress
from bourn.engines.berth import Berth
from bourn.engines.hf.child.link import Link
from bourn.errors import BournError


class Door:
    """At a berth. link: to the latest child, once it has proved who it is."""

    def __init__(self, berth: Berth, on_progress: OnProgress | None) -> None:
        self.link: Link | None = None
        self._berth = berth
        self._on_progress = on_progress
        self._listener: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._guests: set[Link] = set()
        self._arrived = asyncio.Event()

    def open(self) -> None:
        """Expect one. From here on its predecessor counts no more.

        Raises:
            OSError: something else is there.
        """
        self.close()
        self._arrived.clear()
        self._listener = _listener(self._berth)

    async def settled(self) -> bool:
        """Whether it has come, and said whether it is ready; waits for that."""
        if self._server is None and self._listener is not None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._guest, sock=self._listener)
        await self._arrived.wait()
        assert self.link is not None
        return await self.link.settled()

    def close(self, why: BournError | None = None) -> None:
        """Expect nobody, and hang up; those who wait for an answer are told why. Idempotent."""
        self._shut()
        link, self.link = self.link, None
        if link is not None:
            link.failure = link.failure or why
            link.hang_up()

    def _guest(self) -> Link:
        """Somebody who has yet to prove who they are."""
        guest = Link(self._berth.key, self._welcome, self._on_progress)
        self._guests.add(guest)
        return guest

    def _welcome(self, link: Link) -> None:
        self._guests.discard(link)
        self._shut()
        self.link = link
        self._arrived.set()

    def _shut(self) -> None:
        for part in (self._server, self._listener):
            if part is not None:
                part.close()
        self._server = self._listener = None
        self._berth.clear()
        for guest in self._guests:
            guest.hang_up()
        self._guests.clear()


def _listener(berth: Berth) -> socket.socket:
    """Raises OSError: something else is there."""
    if berth.path is None:
        listener = socket.create_server((berth.host, berth.port))
    else:
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(berth.path))
            berth.path.chmod(0o600)  # the folder is closed to all others already
            listener.listen()
        except OSError:
            listener.close()
            raise
    listener.setblocking(False)  # noqa: FBT003 (the name says it)
    return listener
