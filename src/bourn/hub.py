"""The only place that starts a generation, and the only one that ends it early.

A hub stands before one engine. `open` resolves a request's settings and finds an answer that will
do, made already or being made; else it queues the request for a slot, and lets a `Generation` run
engine ▸ pipeline ▸ journal in a task of its own. Whoever wants the answer reads the journal.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from bourn.admission import Admission, Ticket
from bourn.engines.base import Engine, ModelInfo, check
from bourn.errors import NotCached, StreamClosed
from bourn.generation import Generation, Seat
from bourn.journal.base import Journals
from bourn.journal.memory import MemoryJournals
from bourn.stream import Origin, Reader
from bourn.terms import Terms
from bourn.types import DEFAULT_SAMPLING, Request, Sampling

ABANDONED = 600.0
"""Seconds that a `background` answer goes on, and then stays, while nobody reads it."""

Key = Callable[[Request, ModelInfo, Terms], str | None]
"""What is the same for requests that one answer will do for; None where each wants its own."""


class Hub:
    """Opens streams on one engine. Lives in one event loop; not to be shared between threads.

    sampling: the user's own settings, between the request's and the model's.
    queue_limit: how many requests may wait for a slot.
    key: tells which requests may share an answer; None shares none.
    on_end: called with each generation that has ended.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        sampling: Sampling = Sampling(),  # noqa: B008 (frozen)
        journals: Journals | None = None,
        queue_limit: int = 256,
        key: Key | None = None,
        on_end: Callable[[Generation], object] | None = None,
    ) -> None:
        self.engine = engine
        self.sampling = sampling
        self.journals: Journals = journals or MemoryJournals()
        self.queue_limit = queue_limit
        self.loop = asyncio.get_running_loop()
        self._key = key
        self._on_end = on_end
        self._generations: dict[str, Generation] = {}
        self._shared: dict[str, Generation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._info: ModelInfo | None = None
        self._admission = Admission(None, queue_limit)

    async def start(self) -> ModelInfo:
        """Make the engine ready. Raises what `Engine.start` raises."""
        self._info = await self.engine.start()
        self._admission = Admission(self._info.slots, self.queue_limit)
        return self._info

    @property
    def info(self) -> ModelInfo:
        if self._info is None:
            raise StreamClosed("the model is not started", hint="use it in a `with` block")
        return self._info

    @property
    def running(self) -> int:
        """How many choices are being generated."""
        return self._admission.used

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot."""
        return self._admission.waiting

    @property
    def live(self) -> int:
        """How many choices are being generated, and requests waiting."""
        return self.running + self.waiting

    def open(self, request: Request, terms: Terms = Terms()) -> Reader:  # noqa: B008 (frozen)
        """Begin an answer, or take a seat at one that will do; its first reader.

        Raises:
            UnsupportedField, TemplateError, InvalidRequest: before anything is started.
            QueueFull: too many are waiting.
            NotCached: only an answer that is there was wanted.
        """
        request = self._resolve(request)
        key = self._key(request, self.info, terms) if self._key else None
        if key is not None and terms.cache.read and (found := self._found(key)):
            return self._seat(found, terms, "shared" if found.live else "hit").attach()
        if terms.cache.only:
            raise NotCached("this answer is not there", hint="ask without `only-if-cached`")
        ticket = self._admission.enter(request.n, terms.owner)
        generation = Generation(
            self.journals.create(secrets.token_urlsafe(16)), request, terms.timeouts
        )
        self._generations[generation.journal.id] = generation
        if key is not None and terms.cache.write:
            self._shared[key] = generation
        reader = self._seat(generation, terms, "miss").attach()
        self._spawn(self._make(generation, ticket, key))
        return reader

    def attach(self, id: str, *, after: int = 0, owner: str = "") -> Reader:  # noqa: A002
        """A further reader for a seat that is not given up, from event number `after + 1`.

        Raises:
            KeyError: there is none, or it is somebody else's.
        """
        return self._seat_of(id, owner).attach(after)

    def cancel(self, id: str, *, owner: str = "") -> bool:  # noqa: A002
        """Give a seat up; whether there was one. The last one ends the generation. Idempotent."""
        try:
            self._seat_of(id, owner).cancel()
        except KeyError:
            return False
        return True

    async def aclose(self) -> None:
        """Cancel every generation, wait for their ends, and close the engine. Idempotent."""
        for generation in list(self._generations.values()):
            self._forget(generation)
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        await self.engine.aclose()

    # -- seats -------------------------------------------------------------------------------------

    def _seat(self, generation: Generation, terms: Terms, origin: Origin) -> Seat:
        patience = ABANDONED if terms.background else terms.grace
        seat = Seat(generation, terms, patience=patience, give_up=self._given_up, origin=origin)
        generation.seats[seat.id] = seat
        return seat

    def _seat_of(self, id: str, owner: str) -> Seat:  # noqa: A002
        seat = self._generations[id.partition(".")[0]].seats[id]
        if seat.terms.owner != owner:
            raise KeyError(id)
        return seat

    def _given_up(self, seat: Seat) -> bool:
        generation = seat.generation
        del generation.seats[seat.id]
        if generation.seats:
            return False
        live = generation.live
        self._forget(generation)
        return live

    def _found(self, key: str) -> Generation | None:
        found = self._shared.get(key)
        return found if found is not None and found.live else None

    # -- generations -------------------------------------------------------------------------------

    async def _make(self, generation: Generation, ticket: Ticket, key: str | None) -> None:
        await generation.run(self.engine, self.info, ticket)
        if key is not None and self._shared.get(key) is generation:
            del self._shared[key]
        if self._on_end is not None:
            self._on_end(generation)

    def _forget(self, generation: Generation) -> None:
        """End it if it is still running, and drop its journal."""
        if self._generations.pop(generation.journal.id, None) is not None:
            generation.cancel()
            self._spawn(self.journals.delete(generation.journal.id))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _resolve(self, request: Request) -> Request:
        """The one order of settings: request, user, model, bourn."""
        info = self.info
        asked = replace(request, sampling=request.sampling.over(self.sampling))
        check(asked, info)
        lower = info.defaults.over(DEFAULT_SAMPLING) if info.resolves else info.defaults
        known = {name: value for name, value in lower.given().items() if name in info.honours}
        sampling = asked.sampling.over(Sampling(**known))
        if sampling.seed is None and "seed" in info.honours:
            sampling = replace(sampling, seed=secrets.randbelow(2**31))
        # who gives a seed wants the same answer again, whatever was asked before
        reuse = asked.reuse_prompt and asked.sampling.seed is None
        stop = asked.stop
        if asked.messages and not asked.ignore_eos:
            stop = tuple(dict.fromkeys((*stop, *info.stop)))
        return replace(asked, sampling=sampling, reuse_prompt=reuse, stop=stop)
