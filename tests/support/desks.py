"""A desk on scripted engines, and what happens at it while somebody watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bourn.chat import Chat
from bourn.engines.base import Engine
from bourn.engines.scripted import Script, Scripted
from bourn.server.fleet import Fleet, Offer
from bourn.server.standby import Standby
from bourn.sharing import Key
from bourn.types import Request
from bourn.web.answering import Answering
from bourn.web.desk import Desk
from bourn.web.wishes import Wishes

T = TypeVar("T")

GUARD = 25.0
"""Seconds after which something hangs."""

Says = Script | Callable[[Request], Script]

SLOW = Script(["so "] * 400, delay=0.005)


@dataclass(frozen=True)
class Place:
    desk: Desk
    fleet: Fleet
    engines: Mapping[str, Engine]
    store: Path

    @property
    def engine(self) -> Scripted:
        """The first one."""
        engine = next(iter(self.engines.values()))
        assert isinstance(engine, Scripted)
        return engine

    async def ask(
        self,
        asked: str | Chat = "Why?",
        wishes: Wishes = Wishes(),  # noqa: B008 (frozen)
        *,
        owner: str = "ann",
        talk: str = "t",
        **more: Any,
    ) -> Answering:
        chat = Chat().ask(asked) if isinstance(asked, str) else asked
        return await self.desk.ask(owner, talk, chat, wishes, **more)

    async def whole(self, *asked: Any, **more: Any) -> Answering:
        """Ask, and watch to the end."""
        answering = await self.ask(*asked, **more)
        async with asyncio.timeout(GUARD):
            async for _ in answering.watch(0.0):
                pass
        return answering

    def kept(self, talk: str = "t", owner: str = "ann") -> Chat:
        return self.desk.conversations(owner).load(talk)

    async def idle(self) -> None:
        """Nothing is computed, and nobody waits."""
        engines = [each for each in self.engines.values() if isinstance(each, Scripted)]
        await until(lambda: not (self.fleet.live or any(each.running for each in engines)))


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(GUARD):
        while not true():
            await asyncio.sleep(0.001)


async def watch_until(answering: Answering, true: Callable[[], object]) -> None:
    """Watch, and go away once it is true."""
    async with asyncio.timeout(GUARD):
        watching = answering.watch(0.0)
        async for _ in watching:
            if true():
                break
        await watching.aclose()


@asynccontextmanager
async def desk(
    tmp_path: Path,
    says: Says | Scripted = SLOW,
    *,
    engines: Mapping[str, Engine] | None = None,
    key: Key | None = None,
    queue_limit: int = 256,
    at_once: int = 8,
    **facts: Any,
) -> AsyncIterator[Place]:
    """One model, `m`, or these. facts: of its `ModelInfo`."""
    if engines is None:
        engines = {"m": _engine(says, **facts)}
    standbys = [Standby(name, partial(_same, engine)) for name, engine in engines.items()]
    given = None if key is None else partial(_same, key, None)
    fleet = Fleet([Offer(standby, key=given) for standby in standbys], queue_limit=queue_limit)
    await fleet.start()
    store = tmp_path / "conversations.db"
    at = Desk(fleet, store, at_once=at_once)
    try:
        yield Place(at, fleet, engines, store)
    finally:
        await at.aclose()
        await fleet.aclose()


def _engine(says: Says | Scripted, **facts: Any) -> Engine:
    return says if isinstance(says, Scripted) else Scripted(says, **facts)


def _same(given: T, _: object) -> T:
    return given
