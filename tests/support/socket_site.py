"""The whole server in this process, as it is in life, but for signals: it listens at a port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp

from bourn.archive import Archive
from bourn.engines.base import Engine
from bourn.hub import Hub
from bourn.server.app import application
from bourn.server.config import ServerConfig
from bourn.server.fleet import Fleet, Offer
from bourn.server.life import Server
from bourn.server.listening import listen
from bourn.server.standby import Standby
from bourn.sharing import key_for
from tests.support.connection import Connection, text_in
from tests.support.scripted_site import CHAT

GUARD = 25.0
"""Seconds after which something hangs."""


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(GUARD):
        while not true():
            await asyncio.sleep(0.001)


@dataclass(frozen=True)
class SocketSite:
    port: int
    server: Server
    fleet: Fleet

    @property
    def hub(self) -> Hub:
        return self.fleet.hubs["m"]

    async def quiet(self) -> None:
        """Nothing is computed, nobody waits, and no connection is open."""
        state = self.server.server_state
        await until(lambda: not (self.fleet.live or state.tasks or state.connections))

    async def ask(self, path: str, told: Any = None, **more: Any) -> Connection:
        return await Connection.ask(self.port, path, told, **more)

    async def text(self, told: Any) -> str:
        """The answer to it, streamed, in full."""
        with await self.ask(CHAT, told | {"stream": True}) as asked:
            await asked.head()
            return "".join([text_in(frame) async for frame in asked.frames()])


@asynccontextmanager
async def socket_site(
    engine: Engine,
    *,
    archive: Archive | None = None,
    around: Callable[[ASGIApp], ASGIApp] = lambda app: app,
) -> AsyncIterator[SocketSite]:
    """One model, `m`, whose answers may be shared. around: what stands before the application."""
    fleet = Fleet(
        [Offer(Standby("m", lambda _: engine), key=lambda: key_for("m"))], archive=archive
    )
    listener = listen("127.0.0.1", 0)
    listening = asyncio.Event()
    server = Server(around(application(fleet, ServerConfig())), listening.set)
    await fleet.start()
    await until(lambda: fleet.ready and fleet._members["m"]._key)
    serving = asyncio.create_task(server.serve([listener.socket]))
    await listening.wait()
    try:
        yield SocketSite(int(listener.url.rpartition(":")[2]), server, fleet)
    finally:
        server.should_exit = server.force_exit = True
        await serving
        await fleet.aclose()
        listener.close()
