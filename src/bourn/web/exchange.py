"""One question, put to a model until it is answered, or refused for good.

It knows who asks; it knows no watcher, no store and no page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from bourn.chat import Chat, Room, suited
from bourn.chat.sending import Sending, in_words
from bourn.engines.base import ModelInfo
from bourn.errors import InvalidRequest, PromptTooLong, TemplateError
from bourn.hub import Hub
from bourn.server.fleet import Fleet
from bourn.stream import Reader
from bourn.terms import CacheWish, Terms, Timeouts
from bourn.types import DEFAULT_MAX_NEW_TOKENS, Delta, Done, Event, Message, Request
from bourn.web.heard import Heard, Phase
from bourn.web.wishes import Wishes

T = TypeVar("T")

_EVERYBODY = "examples"
"""The owner of what the page itself asks."""

_LONGEST_REPLAY = 3.0  # seconds
_SHORTEST_PAUSE = 0.01  # seconds


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be answered: the conversation as it was asked, in which an answer is wanted.

    talk: the conversation's id. example: one of the page's own questions, whose answer may be given
    to others, and one that was made for others will do.
    """

    owner: str
    talk: str
    chat: Chat
    wishes: Wishes
    example: bool = False
    timeouts: Timeouts = field(default_factory=Timeouts)

    @property
    def terms(self) -> Terms:
        """What a visitor wrote is kept in the conversation alone, and is gone with that."""
        public = self.example and len(self.chat.turns) == 1 and not self.chat.system
        cache = CacheWish(write=public, sampled=public, cut=public)
        return Terms(_EVERYBODY if public else self.owner, cache=cache, timeouts=self.timeouts)


class Stopped(Exception):
    """It is not wanted any more."""


class Exchange:
    """What came of a question so far; all of it once `run` has returned.

    rooms: what is known of the windows of models, by name; shared by all. on_news: called when
    something has changed.
    """

    def __init__(
        self,
        question: Question,
        fleet: Fleet,
        rooms: MutableMapping[str, Room],
        on_news: Callable[[], object],
    ) -> None:
        self.question = question
        self.asked = question.chat
        self.model: str | None = None
        self.heard = Heard()
        self.notices: dict[str, str] = {}
        self._fleet = fleet
        self._rooms = rooms
        self._news = on_news
        self._folds = False
        self._reader: Reader | None = None
        self._stop = asyncio.Event()

    @property
    def phase(self) -> Phase:
        name = self.model or self.question.wishes.model or self._fleet.names[0]
        is_loaded = self._fleet.states().get(name, "ready") == "ready"
        return self.heard.phase if is_loaded or self.heard.tokens else Phase.LOADING

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """End it; what there is stays. Idempotent, and never waits."""
        self._stop.set()
        if self._reader is not None:
            self._reader.cancel()

    async def run(self) -> None:
        """Have it answered.

        Raises:
            Stopped: before it could be asked, or while an answer of before was shown.
            BournError: why it failed, or was refused. What came before that is there.
            Exception: what the engine raised.
        """
        hub = await self._unless_stopped(self._fleet.hub(self.question.wishes.model))
        self.model = hub.info.name
        self._news()
        asked: Chat | None = _for_model(self.question.chat, hub.info)
        while asked is not None:
            try:
                await self._ask(hub, asked)
            except InvalidRequest as refusal:
                if self.heard.there:
                    raise
                asked = self._otherwise(asked, refusal)
            else:
                asked = None

    async def _ask(self, hub: Hub, asked: Chat) -> None:
        """Have it answered, without the oldest turns where it is too long.

        Raises:
            BournError: why it failed, or was refused.
        """
        self.asked = replace(self.asked, bridge=asked.bridge)
        sending = await self._unless_stopped(self._fitted(hub, asked))
        while True:
            await self._attempt(hub, sending)
            failure = self.heard.error
            if not isinstance(failure, PromptTooLong) or self.heard.there:
                break
            sending = sending.shorter(failure)
        self._learn(hub, sending)
        if failure is not None:
            raise failure

    def _otherwise(self, asked: Chat, refusal: InvalidRequest) -> Chat:
        """What to ask instead of what was refused.

        Raises:
            InvalidRequest: `refusal`, where there is nothing.
        """
        if isinstance(refusal, TemplateError) and asked.system and not self._folds:
            self._folds = True
            self.notices["folded"] = "this model takes the system prompt with the first question"
            return asked
        return in_words(asked, refusal)

    async def _attempt(self, hub: Hub, sending: Sending) -> None:
        fitted = sending.fitted
        self.notices["fitted"] = fitted.notice
        reader = hub.open(
            self._request(fitted.messages, fitted.max_new_tokens), self.question.terms
        )
        is_there = reader.origin == "hit"
        self._reader, self.heard = reader, Heard(reader.id, replayed=is_there)
        if self._stop.is_set():
            reader.cancel()
        try:
            await (self._replay(reader) if is_there else self._follow(reader))
        finally:
            reader.leave()

    async def _follow(self, reader: Reader) -> None:
        while batch := await reader.next():
            for event in batch:
                self.heard.hear(event)
            self._news()

    async def _replay(self, reader: Reader) -> None:
        """An answer that is there already, in its steps and at its speed, or faster than that."""
        events: list[Event] = []
        while batch := await reader.next():
            events += batch
        now = asyncio.get_running_loop().time
        pause, due = _pause(events), now()
        for event in events:
            if isinstance(event, Delta):
                due += pause
                await self._rest(due - now())
            self.heard.hear(event)
        self._news()

    async def _rest(self, seconds: float) -> None:
        """Raises Stopped, where that is wanted meanwhile."""
        if seconds < _SHORTEST_PAUSE:
            return
        self._news()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()
            raise Stopped

    async def _fitted(self, hub: Hub, asked: Chat) -> Sending:
        most = self.question.wishes.max_new_tokens or DEFAULT_MAX_NEW_TOKENS
        known = self._rooms.get(hub.info.name, Room(hub.info.window))

        async def count(messages: Sequence[Message]) -> int | None:
            return await hub.engine.count(self._request(messages, 1))

        return Sending(asked, await asked.afit(count, replace(known, max_new_tokens=most)))

    def _learn(self, hub: Hub, sending: Sending) -> None:
        """What the model has room for, and how many tokens texts are, where that was a guess."""
        fitted, room = sending.fitted, sending.fitted.room
        if fitted.estimated:
            estimate = room.estimate.learned(fitted.messages, self.heard.usage)
            room = replace(room, estimate=estimate)
        self._rooms[hub.info.name] = room

    def _request(self, messages: Sequence[Message], max_new_tokens: int | None) -> Request:
        if self._folds:
            messages = suited(messages, system="mend", repeats="mend")
        return self.question.wishes.request(messages, max_new_tokens)

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """What it gives. Raises Stopped, once that is wanted, and ends it."""
        working = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.is_set():
                raise Stopped
            return working.result()
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)


def _pause(events: Sequence[Event]) -> float:
    """Seconds between two steps of an answer that was made before."""
    steps = sum(isinstance(event, Delta) for event in events)
    last = events[-1] if events else None
    if not isinstance(last, Done) or not steps:
        return 0.0
    told = last.metrics
    return min(told.total - (told.ttft or 0.0), _LONGEST_REPLAY) / steps


def _for_model(chat: Chat, info: ModelInfo) -> Chat:
    """What is sent of it: no turns that came to nothing, and gone on with as the model can."""
    *before, last = chat.turns
    if chat.bridge == "" and not (info.prefills and last.broken_off):
        chat = chat.continued(prefill=False)
    kept = [turn for turn in before if turn.answer is not None and _says(turn.answer)]
    return replace(chat, turns=(*kept, last))


def _says(answer: Message) -> bool:
    return bool(answer.text.strip() or answer.tool_calls)
