"""One answer in the making, apart from who looks at it.

A task reads the answer from the model's hub and keeps the conversation in the store. Those who look
at it watch: they are told that something is new, at the pace of a screen, and take what they want
to show from the attributes. It knows no page.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, MutableMapping
from contextlib import suppress
from dataclasses import replace
from typing import TypedDict

from bourn.chat import Chat, Room, Turn
from bourn.errors import BournError
from bourn.hub import ABANDONED
from bourn.server.fleet import Fleet
from bourn.types import FinishReason, Metrics
from bourn.web.exchange import Exchange, Question, Stopped
from bourn.web.heard import Phase

__all__ = ["CUT_OFF", "WRONG", "Answering", "Phase", "in_plain_words"]

logger = logging.getLogger(__name__)

CUT_OFF = "the server was stopped"
"""Why an answer broke off that was being made when the server ended."""

WRONG = "something went wrong here; the server's log tells what"

_FIRST_WATCHER = 15.0
"""Seconds in which somebody has to begin to watch."""

_BETWEEN_SAVES = 3.0  # seconds


class Marks(TypedDict):
    """How a turn ended."""

    finish_reason: FinishReason | None
    error: str | None


class Answering:
    """Begins with `begin`. Belongs to the event loop.

    keep: writes the conversation down; called in a thread. rooms: what is known of the windows of
    models, by name; shared by all answers.

    snapshot: the conversation as it was when it was last looked at; for other threads.
    """

    def __init__(
        self,
        question: Question,
        fleet: Fleet,
        keep: Callable[[Chat], None],
        rooms: MutableMapping[str, Room],
    ) -> None:
        question = replace(question, chat=_unmarked(question.chat))
        self.question = question
        self.snapshot = replace(question.chat, bridge=None)
        self.error: str | None = None
        self._keep = keep
        self._exchange = Exchange(question, fleet, rooms, self._changed)
        self._chat: Chat | None = None
        self._keep_going = question.wishes.keep_going
        self._ended = False
        self._cut_off: str | None = None
        self._watchers: set[asyncio.Event] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> asyncio.Task[None]:
        """Make it, in a task that ends once all is kept, and raises nothing."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_FIRST_WATCHER, self._unwatched)
        self._task = loop.create_task(self._run())
        return self._task

    # -- what there is -----------------------------------------------------------------------------

    @property
    def talk(self) -> str:
        return self.question.talk

    @property
    def owner(self) -> str:
        return self.question.owner

    @property
    def model(self) -> str | None:
        """Its name, once it is known."""
        return self._exchange.model

    @property
    def phase(self) -> Phase:
        return Phase.ENDED if self._ended else self._exchange.phase

    @property
    def place(self) -> int | None:
        """In the queue; 1 is next."""
        return self._exchange.heard.place

    @property
    def progress(self) -> tuple[int, int] | None:
        """Tokens of the prompt that were read, and how many there are."""
        return self._exchange.heard.progress

    @property
    def tokens(self) -> int:
        return self._exchange.heard.tokens

    @property
    def speed(self) -> float | None:
        """Tokens a second since the first one, while they come."""
        return self._exchange.heard.speed

    @property
    def text(self) -> str:
        """What came of the answer now; of one that is gone on with, only what is new."""
        return self._exchange.heard.text

    @property
    def reasoning(self) -> str:
        return self._exchange.heard.reasoning

    @property
    def metrics(self) -> Metrics | None:
        """Once it has ended."""
        return None if self._exchange.heard.state is None else self._exchange.heard.metrics

    @property
    def notice(self) -> str:
        """What a visitor should know beside the answer, such as what was left out, or ""."""
        return "; ".join(filter(None, self._exchange.notices.values()))

    @property
    def chat(self) -> Chat:
        """The conversation, with what there is of the answer."""
        if self._chat is None:
            self._chat = self.snapshot = self._made()
        return self._chat

    @property
    def keep_going(self) -> bool:
        """Whether it goes on when nobody watches. May be changed at any time."""
        return self._keep_going

    @keep_going.setter
    def keep_going(self, wanted: bool) -> None:
        self._keep_going = wanted
        if not self._watchers and not self._ended and self._task is not None:
            self._unwatched()

    # -- who looks at it ---------------------------------------------------------------------------

    async def watch(self, interval: float = 0.05) -> AsyncGenerator[None, None]:
        """Yields at once, and then when something is new, at most every `interval` seconds.

        The last time is after the end. When the last who watches has gone, the answer is stopped,
        unless it is to keep going.
        """
        news = asyncio.Event()
        self._watchers.add(news)
        self._wait_no_more()
        try:
            while True:
                ended = self._ended
                news.clear()
                yield
                if ended:
                    return
                await asyncio.sleep(interval)
                await news.wait()
        finally:
            self._watchers.discard(news)
            if not self._watchers:
                self._unwatched()

    def stop(self) -> None:
        """It is wanted no more; what there is stays. Idempotent, and never waits."""
        if not self._over.is_set():
            self._exchange.stop()

    def cut_off(self, why: str = CUT_OFF) -> None:
        """Stop it for a reason that is nobody's wish; what is not whole then tells it."""
        self._cut_off = why
        self.stop()

    async def end(self) -> None:
        """Wait until it has ended and is kept."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def _unwatched(self) -> None:
        self._wait_no_more()
        if self._ended:
            return
        if self._keep_going:
            self._timer = asyncio.get_running_loop().call_later(ABANDONED, self.stop)
        else:
            self.stop()

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _changed(self) -> None:
        self._chat = None
        for news in self._watchers:
            news.set()

    # -- making it ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        keeping = asyncio.create_task(self._keep_up())
        try:
            await self._try()
        finally:
            self._wait_no_more()
            self._over.set()
            self._changed()
            try:
                await keeping
            finally:
                self._ended = True
                self._changed()

    async def _try(self) -> None:
        try:
            await self._exchange.run()
        except Stopped:
            pass
        except BournError as error:
            self.error = in_plain_words(error)
        except Exception:  # whatever it is, the page goes on
            logger.exception("an answer for the web page failed")
            self.error = WRONG

    # -- the conversation --------------------------------------------------------------------------

    def _made(self) -> Chat:
        heard = self._exchange.heard
        asked = self._exchange.asked
        there = heard.there
        chat = asked.answered(heard, model=self.model) if there else replace(asked, bridge=None)
        return chat.marked(**self._marks(chat.turns[-1])) if self._over.is_set() else chat

    def _marks(self, last: Turn) -> Marks:
        """How it ended."""
        complete = self._exchange.heard.state == "complete"
        error = self.error if complete else self._cut_off or self.error
        if error is not None:
            return {"finish_reason": None, "error": error}
        stopped = FinishReason.CANCELLED if self._exchange.stopped else None
        return {"finish_reason": last.finish_reason or stopped, "error": None}

    async def _keep_up(self) -> None:
        """Write it down at the beginning, again and again while it grows, and at the end."""
        kept: Chat | None = None
        while True:
            over, chat = self._over.is_set(), self.chat
            if chat is not kept:
                await self._write(chat if over else chat.marked(error=CUT_OFF))
                kept = chat
            if over:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_BETWEEN_SAVES):
                    await self._over.wait()

    async def _write(self, chat: Chat) -> None:
        try:
            await asyncio.to_thread(self._keep, chat)
        except BournError as error:  # the answer goes on
            logger.warning("a conversation is not kept: %s", error)
            self._exchange.notices["kept"] = f"this conversation is not kept: {error.message}"
        else:
            self._exchange.notices["kept"] = ""


def in_plain_words(error: BournError) -> str:
    """What happened, and what to do about it."""
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _unmarked(chat: Chat) -> Chat:
    """Without what an earlier attempt left on a question that has no answer."""
    if not chat.turns or chat.turns[-1].answer is not None:
        return chat
    return chat.marked()
