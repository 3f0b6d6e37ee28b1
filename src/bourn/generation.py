"""One answer being made, and the seats of those who want it.

A seat is one client's claim on a generation. Its connections come and go, readers each with an
offset of their own; when the last has been gone for as long as the terms allow, the seat is given
up, and with the last seat the generation ends.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

from bourn.admission import Ticket
from bourn.choices import Choices
from bourn.engines.base import Engine, ModelInfo
from bourn.errors import AnswerTimeout, EngineTimeout, Interrupted, Overloaded
from bourn.journal.base import Journal
from bourn.metrics import Recorder
from bourn.stream import Origin, Reader
from bourn.terms import Terms, Timeouts
from bourn.types import (
    Delta,
    Done,
    Event,
    Finished,
    FinishReason,
    Queued,
    Request,
    Started,
    State,
    text_of,
)


class Seat:
    """One client's claim on an answer, by an id that nobody else knows.

    generation: what makes it; None where it was made before.
    patience: seconds without a connection after which it is given up. give_up: called once then;
    whether the generation ends by it.
    """

    def __init__(
        self,
        journal: Journal,
        terms: Terms,
        *,
        patience: float,
        give_up: Callable[[Seat], bool],
        origin: Origin = "miss",
        generation: Generation | None = None,
    ) -> None:
        self.id = f"{journal.id}.{secrets.token_urlsafe(8)}"
        self.journal = journal
        self.generation = generation
        self.terms = terms
        self.origin = origin
        self._patience = patience
        self._give_up = give_up
        self._readers: set[Reader] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._taken = True

    @property
    def live(self) -> bool:
        """Whether its answer is still being made."""
        return self.generation is not None and self.generation.live

    @property
    def readers(self) -> int:
        """How many connections there are at this moment."""
        return len(self._readers)

    def attach(self, after: int = 0) -> Reader:
        """One reader more, who has seen the events up to number `after`, the end not among them."""
        self._wait_no_more()
        if self.journal.ended:
            after = min(after, self.journal.head - 1)
        reader = Reader(
            self.journal,
            after=after,
            detach=self._detach,
            id=self.id,
            origin=self.origin,
            resumable=self._patience > 0,
        )
        self._readers.add(reader)
        return reader

    def cancel(self) -> bool:
        """Give it up now; its readers are told. Whether the generation ends by it. Idempotent."""
        ends = self._leave()
        for reader in list(self._readers):
            reader.dismiss(told=ends)
        return ends

    def _detach(self, reader: Reader, *, patient: bool) -> bool:
        self._readers.discard(reader)
        if not patient:
            return self.cancel()
        if self._readers or not self._taken:
            return False
        if self._patience > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._patience, self._leave)
            return False
        return self._leave()

    def _leave(self) -> bool:
        self._wait_no_more()
        if not self._taken:
            return False
        self._taken = False
        return self._give_up(self)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def journal_of(seat: str) -> str:
    """The id of the journal that a seat of that id is at."""
    return seat.partition(".")[0]


class Generation:
    """One answer being made: its journal, its task, and the seats it is made for."""

    def __init__(self, journal: Journal, request: Request, timeouts: Timeouts) -> None:
        self.journal = journal
        self.request = request
        self.seats: set[Seat] = set()
        self.promised = False  # to be there for somebody who comes back
        self.done: Done | None = None
        self.reasons: list[FinishReason] = []
        self.assumed = False  # whether an end of it was never told
        self.empty = True
        self.recorder = Recorder()
        self._timeouts = timeouts
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    @property
    def live(self) -> bool:
        """Whether it goes on, and somebody still wants it."""
        return self.done is None and not self._cancelled

    def cancel(self) -> None:
        """End it now. Once only, so that the end itself can be written down in peace."""
        if not self._cancelled:
            self._cancelled = True
            if self._task is not None:
                self._task.cancel()

    async def run(self, engine: Engine, info: ModelInfo, ticket: Ticket) -> Done:
        """From its place in the queue to its `Done`. It raises nothing: readers are told."""
        state: State = "complete"
        error: BaseException | None = None
        try:
            if not self._cancelled:  # else: cancelled before the first step of this task
                self._task = asyncio.current_task()
                await self._admit(ticket)
                self.recorder.admitted()
                await self.journal.append(Started(self.request.sampling))
                await self._generate(engine, info)
        except asyncio.CancelledError:
            pass
        except Exception as raised:  # noqa: BLE001 (whatever it is, it belongs to the readers)
            state, error = "failed", raised
        finally:
            ticket.leave()
        if self._cancelled and error is None:
            state = "cancelled"
        done = self.done = Done(state, self.recorder.usage, self.recorder.metrics(), error)
        await self.journal.append(done)
        return done

    async def _admit(self, ticket: Ticket) -> None:
        waited = self._timeouts.queue
        full = Overloaded(f"no slot was free for {waited} s", hint="try again in a moment")
        async with _at_most(waited, full):
            place = ticket.place
            while place:
                await self.journal.append(Queued(place))
                place = await ticket.moved()

    async def _generate(self, engine: Engine, info: ModelInfo) -> None:
        await engine.start()  # a dead engine is started anew
        choices = Choices(self.request, info)
        try:
            await self._follow(engine, choices)
        finally:
            await self._tell(choices.rest())
        if choices.live:
            raise Interrupted(
                "the answer ended without a reason",
                hint="the engine broke off; what came before is kept, ask again for a whole answer",
            )

    async def _follow(self, engine: Engine, choices: Choices) -> None:
        """The engine's pieces, as long as it keeps to its times."""
        first, total = self._timeouts.first_token, self._timeouts.total
        async with (
            _at_most(total, _too_long(total)),
            _at_most(first, EngineTimeout(f"no token came within {first} s")) as patience,
            aclosing(engine.generate(self.request)) as pieces,
        ):
            async for piece in pieces:
                self.recorder.piece(piece)
                if first is not None and patience.when() is not None:
                    now = asyncio.get_running_loop().time()
                    patience.reschedule(None if piece.tokens else now + first)
                await self._tell(choices.feed(piece))
                if not choices.live and choices.cut:
                    break  # else the engine ends by itself, once it has told the usage

    async def _tell(self, events: list[Event]) -> None:
        if events:
            self._note(events)
            await self.journal.append(*events)
            if self.recorder.waits_for_text and any(map(text_of, events)):
                self.recorder.text()

    def _note(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Finished):
                self.reasons.append(event.reason)
                self.assumed |= event.assumed
            elif isinstance(event, Delta) and (event.text or event.tool):
                self.empty = False


def _too_long(total: float | None) -> AnswerTimeout:
    hint = "ask for a shorter answer, or allow it more time"
    return AnswerTimeout(f"the answer was not whole after {total} s", hint=hint)


@asynccontextmanager
async def _at_most(
    seconds: float | None, error: Exception
) -> AsyncGenerator[asyncio.Timeout, None]:
    try:
        async with asyncio.timeout(seconds) as timeout:
            yield timeout
    except TimeoutError as reached:
        if not timeout.expired():
            raise
        raise error from reached
