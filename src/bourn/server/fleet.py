"""The models of a server: each an engine on standby, and a hub before it.

It knows no HTTP. That a server is about to stop is said here, since hubs are given out here.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from bourn.archive import Archive
from bourn.engines.base import ModelInfo
from bourn.errors import BournError, ModelNotFound, Overloaded
from bourn.generation import Generation, journal_of
from bourn.hub import Hub
from bourn.server.standby import RETRY_AFTER, Readiness, Standby
from bourn.sharing import Key
from bourn.terms import Terms
from bourn.types import Request, Sampling

logger = logging.getLogger(__name__)

LEARNING = 10.0
"""Seconds after a load for which requests wait, at most, to share an answer with others."""

T = TypeVar("T")

OnEnd = Callable[[Generation, str], object]
"""Told of each generation that has ended, and of which model."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that is to be served, by the name of its engine.

    sampling: the user's own settings. key: makes what tells which requests may share an answer; it
    may read the whole model, and is called in a thread. None shares none.
    """

    engine: Standby
    sampling: Sampling = field(default_factory=Sampling)
    key: Callable[[], Key] | None = None


class Found(NamedTuple):
    """The hub to ask for a stream, and the name of the model that it is of."""

    model: str
    hub: Hub


class Fleet:
    """Hubs by the names of their models. Belongs to an event loop.

    queue_limit: requests that may wait for a slot, of each model. on_end: may be set later.
    """

    def __init__(
        self, offers: Sequence[Offer], *, queue_limit: int = 256, archive: Archive | None = None
    ) -> None:
        self.draining = False
        self.on_end: OnEnd | None = None
        self._archive = archive or Archive()
        self._members = {
            offer.engine.name: Member(offer, self._archive, queue_limit, self._ended)
            for offer in offers
        }
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to load all, and take in what earlier runs left. Raises StoreFailed."""
        for member in self._members.values():
            for work in (member.load(), member.learn()):
                task = asyncio.create_task(work)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        await self._archive.start()

    @property
    def names(self) -> tuple[str, ...]:
        """As clients know them; the first is for those who name none."""
        return tuple(self._members)

    @property
    def hubs(self) -> dict[str, Hub]:
        return {name: member.hub for name, member in self._members.items()}

    @property
    def ready(self) -> bool:
        """Whether each model is loaded, or would be at the next request."""
        return not self.draining and {"loading", "failed"}.isdisjoint(self.states().values())

    @property
    def live(self) -> int:
        """How many choices are being generated, and requests waiting."""
        return sum(member.hub.live for member in self._members.values())

    def states(self) -> dict[str, Readiness]:
        return {name: member.engine.state for name, member in self._members.items()}

    def failures(self) -> dict[str, Exception]:
        """Why those that could not be loaded could not."""
        engines = [member.engine for member in self._members.values()]
        return {each.name: each.failure for each in engines if each.failure is not None}

    async def hub(self, name: str | None = None) -> Hub:
        """The hub of a model, once that is loaded for the first time; of the first for None.

        Raises:
            ModelNotFound: there is none of that name.
            LoadFailed, ConnectionFailed, Unauthorized: it cannot be loaded, or could not just now.
            Overloaded: the server is about to stop, or loading takes longer than requests wait.
        """
        member = self._members.get(self.names[0] if name is None else name)
        if member is None:
            what = f"there is no model `{name:.100}` here"
            raise ModelNotFound(what, hint=f"there {_are(self.names)}")
        if self.draining:
            what = "the server is about to stop"
            raise Overloaded(what, retry_after=RETRY_AFTER, hint="ask again in a moment")
        return await member.opened()

    def find(self, seat: str) -> Found:
        """Where to look for a seat: with the hub that holds it, else with that of its model.

        The model's name is that of the answer, also where an earlier run served it and this one
        does not.
        """
        for name, hub in self.hubs.items():
            if seat in hub:
                return Found(name, hub)
        name = self._archive.model(journal_of(seat)) or self.names[0]
        return Found(name, self.hubs.get(name) or self.hubs[self.names[0]])

    def break_off(self, why: BournError) -> None:
        """End what still runs, and what waits, with an error that its readers are told."""
        for member in self._members.values():
            member.engine.break_off(why)

    async def aclose(self) -> None:
        """End all, and give everything back: processes, memory, files. Idempotent."""
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*(member.hub.aclose() for member in self._members.values()))
        finally:
            await self._archive.aclose()

    def _ended(self, generation: Generation, name: str) -> None:
        if self.on_end is not None:
            self.on_end(generation, name)


class Member:
    """One model."""

    def __init__(self, offer: Offer, archive: Archive, queue_limit: int, on_end: OnEnd) -> None:
        self.engine = offer.engine
        self.hub = Hub(
            offer.engine,
            sampling=offer.sampling,
            archive=archive,
            queue_limit=queue_limit,
            key=self._key_of,
            on_end=lambda generation: on_end(generation, offer.engine.name),
        )
        self._offer = offer
        self._key: Key | None = None
        self._learned = asyncio.Event()
        self._started = False
        self._starting = asyncio.Lock()

    async def learn(self) -> None:
        """What the model is, so that its answers can be shared; till then they are not."""
        try:
            if self._offer.key is not None:
                self._key = await _aside(self._offer.key)
        except OSError as error:
            name = self.engine.name
            logger.warning("%s cannot be read, so its answers are not shared: %s", name, error)
        finally:
            self._learned.set()

    def _key_of(self, asked: Request, sent: Request, info: ModelInfo, terms: Terms) -> str | None:
        return None if self._key is None else self._key(asked, sent, info, terms)

    async def load(self) -> None:
        """As soon as may be, however long that takes. What goes wrong, the engine tells."""
        with suppress(BournError):
            await asyncio.wait({self.engine.begin()})
            await self.opened()

    async def opened(self) -> Hub:
        """The hub, once it knows its model. Later loads are the business of each generation.

        It is known, too, what the model is, unless that takes long.
        """
        if not self._started:
            await self.engine.start()
            async with self._starting:
                if not self._started:
                    await self.hub.start()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._learned.wait(), LEARNING)
                    self._started = True
        return self.hub


async def _aside(work: Callable[[], T]) -> T:
    """What it gives, in a thread that is not waited for at the end: it may read for minutes."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def tell(how: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed, nobody waits any more
            loop.call_soon_threadsafe(lambda: result.cancelled() or how())

    def run() -> None:
        try:
            made = work()
        except Exception as error:  # noqa: BLE001 (whatever it is, it is for who waits)
            tell(partial(result.set_exception, error))
        else:
            tell(partial(result.set_result, made))

    threading.Thread(target=run, name="bourn-aside", daemon=True).start()
    return await result


def _are(names: Sequence[str]) -> str:
    return f"is {names[0]}" if len(names) == 1 else f"are {', '.join(names)}"
