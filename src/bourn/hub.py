"""The only place that starts a generation, and the only one that ends it early.

A hub stands before one engine. `open` resolves a request's settings, queues it for a slot, and runs
engine ▸ pipeline ▸ journal in a task of its own; whoever wants the answer reads the journal. When
nobody has read for `grace` seconds the generation is cancelled and its journal dropped.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from bourn.admission import Admission, Ticket
from bourn.engines.base import Engine, ModelInfo, check
from bourn.errors import Interrupted, StreamClosed
from bourn.journal.base import Journal, Journals
from bourn.journal.memory import MemoryJournals
from bourn.metrics import Recorder
from bourn.stream import Reader
from bourn.text.pipeline import Pipeline
from bourn.types import (
    DEFAULT_SAMPLING,
    Done,
    Event,
    Finished,
    FinishReason,
    Piece,
    Progress,
    Queued,
    Request,
    Sampling,
    Started,
    State,
    text_of,
)


class Generation:
    """One answer being made: its journal, its task, and how many read it."""

    def __init__(self, hub: Hub, journal: Journal, grace: float) -> None:
        self.id = journal.id
        self.journal = journal
        self.task: asyncio.Task[None] | None = None
        self.cancelled = False
        self._hub = hub
        self._grace = grace
        self._readers = 0
        self._patience: asyncio.TimerHandle | None = None

    def attach(self, after: int = 0) -> Reader:
        """One reader more, who has seen the events up to number `after`."""
        self._readers += 1
        if self._patience is not None:
            self._patience.cancel()
        return Reader(self.journal, after=after, detach=self._detach)

    def cancel(self) -> None:
        """End it now. Once only, so that the end itself can be written down in peace."""
        if not self.cancelled:
            self.cancelled = True
            if self.task is not None:
                self.task.cancel()

    def _detach(self, *, patient: bool) -> bool:
        self._readers -= 1
        if self._readers:
            return False
        if patient and self._grace > 0:
            self._patience = self._hub.loop.call_later(self._grace, self._hub.forget, self)
        else:
            self._hub.forget(self)
        return True


class Hub:
    """Opens streams on one engine. Lives in one event loop; not to be shared between threads.

    sampling: the user's own settings, between the request's and the model's.
    queue_limit: how many requests may wait for a slot.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        sampling: Sampling = Sampling(),  # noqa: B008 (frozen)
        journals: Journals | None = None,
        queue_limit: int = 256,
    ) -> None:
        self.engine = engine
        self.sampling = sampling
        self.journals: Journals = journals or MemoryJournals()
        self.queue_limit = queue_limit
        self.loop = asyncio.get_running_loop()
        self._generations: dict[str, Generation] = {}
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
    def live(self) -> int:
        """How many choices are being generated, and requests waiting."""
        return self._admission.used + self._admission.waiting

    def open(self, request: Request, *, grace: float = 0.0) -> Reader:
        """Begin an answer; its first reader.

        grace: seconds for which the generation, or its finished journal, waits for a reader.

        Raises:
            UnsupportedField, TemplateError, InvalidRequest: before anything is started.
            QueueFull: too many are waiting.
        """
        request = self._resolve(request)
        ticket = self._admission.enter(request.n)
        journal = self.journals.create(secrets.token_urlsafe(16))
        generation = Generation(self, journal, grace)
        self._generations[generation.id] = generation
        self._spawn(self._run(generation, request, ticket))
        return generation.attach()

    def attach(self, id: str, *, after: int = 0) -> Reader:  # noqa: A002
        """A further reader of a generation that is there still, from event number `after + 1`.

        Raises:
            KeyError: there is no such generation, or it is forgotten.
        """
        return self._generations[id].attach(after)

    def cancel(self, id: str) -> None:  # noqa: A002
        """End a generation whoever reads it. Idempotent; an unknown id is nothing to end."""
        if (generation := self._generations.get(id)) is not None:
            generation.cancel()

    def forget(self, generation: Generation) -> None:
        """End it if it is still running, and drop its journal."""
        if self._generations.pop(generation.id, None) is not None:
            generation.cancel()
            self._spawn(self.journals.delete(generation.id))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Cancel every generation, wait for their ends, and close the engine. Idempotent."""
        for generation in list(self._generations.values()):
            self.forget(generation)
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        await self.engine.aclose()

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
        return replace(asked, sampling=sampling, reuse_prompt=reuse)

    async def _run(self, generation: Generation, request: Request, ticket: Ticket) -> None:
        recorder = Recorder()
        state: State = "complete"
        error: BaseException | None = None
        try:
            if not generation.cancelled:  # else: cancelled before the first step of this task
                generation.task = asyncio.current_task()
                await self._admit(ticket, generation.journal)
                recorder.admitted()
                await generation.journal.append(Started(request.sampling))
                await self._generate(request, generation.journal, recorder)
        except asyncio.CancelledError:
            pass
        except Exception as raised:  # noqa: BLE001 (whatever it is, it belongs to the readers)
            state, error = "failed", raised
        finally:
            ticket.leave()
        if generation.cancelled and error is None:
            state = "cancelled"
        await generation.journal.append(Done(state, recorder.usage, recorder.metrics(), error))

    async def _admit(self, ticket: Ticket, journal: Journal) -> None:
        place = ticket.place
        while place:
            await journal.append(Queued(place))
            place = await ticket.moved()

    async def _generate(self, request: Request, journal: Journal, recorder: Recorder) -> None:
        await self.engine.start()  # a dead engine is started anew
        choices = Choices(request, self.info.channels)
        try:
            async with aclosing(self.engine.generate(request)) as pieces:
                async for piece in pieces:
                    recorder.piece(piece)
                    await self._tell(choices.feed(piece), journal, recorder)
                    if choices.cut and not choices.live:
                        break  # else the engine ends by itself, once it has told the usage
        finally:
            await self._tell(choices.rest(), journal, recorder)
        if choices.live:
            raise Interrupted(
                "the answer ended without a reason",
                hint="the engine broke off; what came before is kept, ask again for a whole answer",
            )

    async def _tell(self, events: list[Event], journal: Journal, recorder: Recorder) -> None:
        if events:
            await journal.append(*events)
            if recorder.waits_for_text and any(map(text_of, events)):
                recorder.text()


class Choices:
    """The pipelines of one request's answers, and which of them go on."""

    def __init__(self, request: Request, channels: str | None) -> None:
        self._pipelines = [Pipeline(request.stop, channels) for _ in range(request.n)]
        self._ended = [False] * request.n

    @property
    def live(self) -> bool:
        return not all(self._ended)

    @property
    def cut(self) -> bool:
        """Whether a stop string ended one of them: the engine does not know, and would go on."""
        return any(pipeline.stopped is not None for pipeline in self._pipelines)

    def feed(self, piece: Piece) -> list[Event]:
        """What a reader may see of this piece, now that it is certain."""
        if piece.prompt_total is not None and piece.prompt_done is not None:
            return [Progress(piece.prompt_done, piece.prompt_total)]
        choice = piece.choice
        if not 0 <= choice < len(self._ended) or self._ended[choice]:
            return []
        pipeline = self._pipelines[choice]
        events: list[Event] = [*pipeline.feed(piece)]
        if piece.finish is not None:
            events += pipeline.flush()
        # looked at after the flush: a stop string may be found in what was held
        reason = piece.finish if pipeline.stopped is None else FinishReason.STOP
        if reason is not None:
            self._ended[choice] = True
            events.append(Finished(reason, choice, pipeline.stopped))
        return events

    def rest(self) -> list[Event]:
        """What is held of choices that broke off: text that was generated is not lost."""
        broken = zip(self._pipelines, self._ended, strict=True)
        return [event for pipeline, ended in broken if not ended for event in pipeline.flush()]
