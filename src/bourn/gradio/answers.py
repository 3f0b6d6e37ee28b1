"""Answers on their way to pages: made in the model's event loop, watched from Gradio's.

Whoever watches only waits. Leaving ends the answer, at once and without waiting for its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, cast

from bourn import aio, sync
from bourn.asking import Options
from bourn.chat import Chat, Fitted, Room
from bourn.chat.sending import Sending
from bourn.errors import BournError, EngineError, PromptTooLong, StreamClosed
from bourn.gradio.given import message_of, messages_of, options_of, titles_of
from bourn.gradio.shown import Shown
from bourn.stream import Answer, Reader
from bourn.types import (
    DEFAULT_MAX_NEW_TOKENS,
    Channel,
    Delta,
    Event,
    Message,
    Progress,
    Queued,
    Request,
    Started,
)

logger = logging.getLogger(__name__)

INTERVAL = aio.SNAPSHOT_INTERVAL
"""Seconds between two changes of the page."""

BEAT = 0.2
"""Seconds after which the same is told again, since only then Gradio sees that a tab is closed."""


class Answers:
    """The answers of one model to the pages of one function."""

    def __init__(
        self, model: sync.Model | aio.Model, inputs: tuple[str, ...], options: Mapping[str, Any]
    ) -> None:
        self._keep = model  # a model that nobody holds any more is closed
        self._model = model._model if isinstance(model, sync.Model) else model
        self._inputs = inputs
        self._options = dict(options)
        # what is wrong is refused now, not by the first page
        self._model.request([Message("user", "?")], cast("Options", self._options))

    async def watch(
        self, message: Any, history: Any, given: Sequence[Any]
    ) -> AsyncGenerator[Shown, None]:
        """What there is of one answer, again and again. Leaving it ends the answer."""
        try:
            home = self._home()
        except BournError as error:
            yield Shown(error=_told(error), ended=True)
            return
        slot = Slot()
        making = asyncio.run_coroutine_threadsafe(
            self._make(message, history, given, slot.put), home
        )
        try:
            shown = Shown()
            while not shown.ended:
                shown = await slot.take(BEAT)
                yield shown
        finally:
            making.cancel()  # which waits for nothing: this may be a loop that serves others

    def _home(self) -> asyncio.AbstractEventLoop:
        """The loop in which the model lives."""
        home = self._model.hub.loop
        if home.is_closed():
            raise StreamClosed("the model is closed", hint="keep it open as long as the page")
        return home

    async def _make(
        self, message: Any, history: Any, given: Sequence[Any], show: Callable[[Shown], None]
    ) -> None:
        """One answer, in the model's loop. Being cancelled is how it is left."""
        shown = Shown()
        try:
            async with aclosing(self._answer(message, history, given)) as changes:
                async for shown in changes:
                    show(shown)
        except Exception as error:  # noqa: BLE001 (the page is told, whatever it was)
            shown = replace(shown, error=_told(error))
        show(replace(shown, status="", ended=True))

    async def _answer(
        self, message: Any, history: Any, given: Sequence[Any]
    ) -> AsyncGenerator[Shown, None]:
        options = self._options | options_of(self._inputs, given)
        history = list(history or ())
        asked = await asyncio.to_thread(self._asked, message, history, options)
        sending = Sending(asked, await asked.afit(self._count, self._room(options)))
        while True:
            fitted = sending.fitted
            notice = "" if fitted.notice in titles_of(history) else fitted.notice
            answer = Watched(self._model.hub.open(self._request(fitted, options)))
            async with aclosing(answer.changes()) as changes:
                async for shown in changes:
                    yield replace(shown, notice=notice)
            if answer.text or not isinstance(answer.error, PromptTooLong):
                break
            sending = sending.shorter(answer.error)
        answer.check()

    def _request(self, fitted: Fitted, options: Mapping[str, Any]) -> Request:
        own = {"system": None, "max_new_tokens": fitted.max_new_tokens}  # it is in the messages
        return self._model.request(fitted.messages, cast("Options", {**options, **own}))

    def _asked(self, message: Any, history: Sequence[Any], options: Mapping[str, Any]) -> Chat:
        """The conversation. Reads images."""
        images = "images" in self._model.info.honours
        talk = Chat.of(messages_of(history, images=images))
        if talk.system is None:
            talk = talk.with_system(options.get("system", self._model.settings.system))
        # a question that was stopped before its answer began is not asked again
        talk = replace(talk, turns=tuple(turn for turn in talk.turns if turn.answer))
        return talk.ask(message_of("user", message, images=images))

    def _room(self, options: Mapping[str, Any]) -> Room:
        most = self._model.settings.max_new_tokens or DEFAULT_MAX_NEW_TOKENS
        return Room(self._model.info.window, options.get("max_new_tokens", most))

    async def _count(self, messages: Sequence[Message]) -> int | None:
        return await self._model.count(messages, system=None)


class Slot:
    """The newest that one event loop tells another; what was not taken is replaced."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._told = asyncio.Event()
        self._shown = Shown()

    def put(self, shown: Shown) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._put, shown)

    def _put(self, shown: Shown) -> None:
        self._shown = shown
        self._told.set()

    async def take(self, patience: float) -> Shown:
        """The next, or after so many seconds the same again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._told.wait()
        self._told.clear()
        return self._shown


class Watched(Answer):
    """One answer, as it is seen on a page. Lives in the model's loop."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader.id, self._look)
        self._reader = reader
        self._status = ""
        self._thinking: float | None = None  # since when
        self._seconds: float | None = None

    async def changes(self) -> AsyncGenerator[Shown, None]:
        """What there is of it after each change, joined. It is over when this is left."""
        try:
            while batch := await self._reader.next():
                for event in batch:
                    self._see(event)
                yield Shown(self._status, "", self.reasoning, self._seconds, self.text)
                await asyncio.sleep(0 if self.state else INTERVAL)
        finally:
            self._reader.leave()

    def check(self) -> None:
        """Raises what it failed with."""
        self._check()

    def _look(self, event: Event) -> None:
        match event:
            case Queued(place):
                self._status = f"Waiting, at place {place} of the queue"
            case Progress(done, total):
                self._status = f"Reading the prompt, {100 * done // max(total, 1)} %"
            case Started():
                self._status = ""
            case Delta(text=text, channel=channel) if text:
                self._status = ""
                self._clock(channel)

    def _clock(self, channel: Channel) -> None:
        now = asyncio.get_running_loop().time()
        if channel is Channel.REASONING:
            self._thinking = self._thinking or now
        elif self._thinking and self._seconds is None:
            self._seconds = round(now - self._thinking, 1)


def _told(error: Exception) -> tuple[str, str]:
    """What happened, and what to do, for a person to read."""
    if isinstance(error, BournError):
        if isinstance(error, EngineError):
            logger.warning("an answer failed: %s", error)
        return error.message, error.hint
    logger.error("an answer failed", exc_info=error)
    return "Something went wrong here", "The server's log tells what."
