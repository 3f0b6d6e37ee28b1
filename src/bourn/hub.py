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
from bourn.archive import Archive
from bourn.engines.base import Engine, ModelInfo, check
from bourn.errors import NotCached, StreamClosed
from bourn.generation import Generation, Seat, journal_of
from bourn.journal.base import Journal
from bourn.sharing import Key
from bourn.stream import Origin, Reader
from bourn.terms import Terms
from bourn.types import DEFAULT_SAMPLING, Request, Sampling

ABANDONED = 600.0
"""Seconds that a `background` answer goes on, and then stays, while nobody reads it."""


class Hub:
    """Opens streams on one engine. Lives in one event loop; not to be shared between threads.

    sampling: the user's own settings, between the request's and the model's.
    queue_limit: how many requests may wait for a slot.
    archive: where answers are kept; hubs may share one. key: tells which requests may share an
    answer; None shares none.
    on_end: called with each generation that has ended.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        sampling: Sampling = Sampling(),  # noqa: B008 (frozen)
        archive: Archive | None = None,
        queue_limit: int = 256,
        key: Key | None = None,
        on_end: Callable[[Generation], object] | None = None,
    ) -> None:
        self.engine = engine
        self.sampling = sampling
        self.archive = archive or Archive()
        self.queue_limit = queue_limit
        self.loop = asyncio.get_running_loop()
        self._key = key
        self._on_end = on_end
        self._generations: set[Generation] = set()
        self._seats: dict[str, Seat] = {}
        self._shared: dict[str, Generation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._info: ModelInfo | None = None
        self._closing = False
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

    @property
    def readers(self) -> int:
        """How many connections read an answer, one that is made or one that is there."""
        return sum(seat.readers for seat in self._seats.values())

    def open(self, request: Request, terms: Terms = Terms()) -> Reader:  # noqa: B008 (frozen)
        """Begin an answer, or take a seat at one that will do; its first reader.

        Raises:
            UnsupportedField, TemplateError, InvalidRequest: before anything is started.
            QueueFull: too many are waiting.
            NotCached: only an answer that is there was wanted.
        """
        asked, request = request, self._resolve(request)
        key = self._key(asked, request, self.info, terms) if self._key else None
        if key is not None and terms.cache.read and (seat := self._seat_at_known(key, terms)):
            return seat.attach()
        if terms.cache.only:
            raise NotCached("this answer is not there", hint="ask without `only-if-cached`")
        return self._begin(request, key if terms.cache.write else None, terms).attach()

    def __contains__(self, id: object) -> bool:  # noqa: A002 (it is what it is called)
        """Whether it holds that seat."""
        return id in self._seats

    def attach(self, id: str, *, after: int = 0, owner: str = "") -> Reader:  # noqa: A002
        """A further reader for a seat that is not given up, from event number `after + 1`.

        Raises:
            KeyError: there is none, or it is somebody else's.
        """
        return self._seat_of(id, owner).attach(after)

    def cancel(self, id: str, *, owner: str = "") -> bool:  # noqa: A002
        """Give a seat up. The last one ends the generation. Idempotent.

        Whether its answer was still being made: one that is whole already is only let go.
        """
        seat = self._seats.get(id)
        if seat is None or seat.terms.owner != owner:
            return False
        live = seat.live
        seat.cancel()
        return live

    async def aclose(self) -> None:
        """Cancel every generation, wait for their ends, and close the engine. Idempotent.

        What was promised to be kept stays in the archive.
        """
        self._closing = True
        for generation in self._generations:
            generation.cancel()
        for seat in list(self._seats.values()):
            seat.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        await self.engine.aclose()

    # -- seats -------------------------------------------------------------------------------------

    def _seat_at_known(self, key: str, terms: Terms) -> Seat | None:
        """A seat at an answer that is there, or at one that is being made."""
        making = self._shared.get(key)
        if making is not None and making.live:
            return self._seat(making.journal, terms, "shared", making)
        journal = self.archive.find(key, terms.cache.max_age)
        return None if journal is None else self._seat(journal, terms, "hit")

    def _seat(
        self, journal: Journal, terms: Terms, origin: Origin, generation: Generation | None = None
    ) -> Seat:
        patience = ABANDONED if terms.background else terms.grace
        seat = Seat(
            journal,
            terms,
            patience=patience,
            give_up=self._given_up,
            origin=origin,
            generation=generation,
        )
        self._seats[seat.id] = seat
        if generation is not None:
            generation.seats.add(seat)
            generation.promised |= terms.resumable
        return seat

    def _seat_of(self, id: str, owner: str) -> Seat:  # noqa: A002
        seat = self._seats.get(id)
        if seat is None:
            return self._recalled(journal_of(id), owner)
        if seat.terms.owner != owner:
            raise KeyError(id)
        return seat

    def _recalled(self, id: str, owner: str) -> Seat:  # noqa: A002
        """The one seat at an answer of an earlier run, which only a store on disk remembers."""
        journal = self.archive.recall(id, owner)
        if journal is None:
            raise KeyError(id)
        if id not in self._seats:
            terms = Terms(owner, background=True)
            seat = Seat(journal, terms, patience=ABANDONED, give_up=self._given_up, origin="hit")
            seat.id = id
            self._seats[id] = seat
        return self._seats[id]

    def _given_up(self, seat: Seat) -> bool:
        del self._seats[seat.id]
        generation = seat.generation
        if generation is None:
            return False
        generation.seats.discard(seat)
        if generation.seats:
            return False
        live = generation.live
        generation.cancel()
        if generation.done is not None:
            self._release(generation)
        return live

    # -- generations -------------------------------------------------------------------------------

    def _begin(self, request: Request, key: str | None, terms: Terms) -> Seat:
        if terms.resumable and not self.archive.room(terms.owner):
            terms = replace(terms, grace=0.0, background=False)
        ticket = self._admission.enter(request.n, terms.owner)
        journal = self.archive.begin(terms, key, self.info.name)
        generation = Generation(journal, request, terms.timeouts)
        self._generations.add(generation)
        if key is not None:
            self._shared[key] = generation
        seat = self._seat(generation.journal, terms, "miss", generation)
        self._spawn(self._make(generation, ticket, key, cut=terms.cache.cut))
        return seat

    async def _make(
        self, generation: Generation, ticket: Ticket, key: str | None, *, cut: bool
    ) -> None:
        done = await generation.run(self.engine, self.info, ticket)
        self._generations.discard(generation)
        if key is not None and self._shared.get(key) is generation:
            del self._shared[key]
        reasons, empty = generation.reasons, generation.empty
        if generation.assumed:
            reasons = []
        await self.archive.ended(generation.journal, done.state, reasons, empty=empty, cut=cut)
        if not generation.seats:
            self._release(generation)
        if self._on_end is not None:
            self._on_end(generation)

    def _release(self, generation: Generation) -> None:
        """Nobody has a seat at it any more."""
        if not (self._closing and generation.promised):
            self._spawn(self.archive.release(generation.journal))

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
