"""The asynchronous names: `async with bourn.aio.load("smollm2") as model`.

async with bourn.aio.load("smollm2") as model:
    async with model.stream("Tell me a story") as stream:
        async for text in stream: ...
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self, Unpack

from bourn.asking import Asked, Options, request_for
from bourn.engines import engine_for
from bourn.engines.base import Engine, ModelInfo
from bourn.errors import StreamClosed
from bourn.hub import Hub
from bourn.settings import Settings
from bourn.stream import Answer, Reader
from bourn.terms import Terms
from bourn.types import Event, Request, text_of

SNAPSHOT_INTERVAL = 0.05
"""Seconds between snapshots: 20 a second is all a screen needs."""


class Stream(Answer):
    """One answer, read once: iterate for its text, or `events()`, `snapshots()`, `read()`.

    Leaving the loop, or the `async with`, ends the reading, and with the last reader the computing.
    """

    def __init__(self, reader: Reader, on_event: Callable[[Event], object] | None = None) -> None:
        super().__init__(reader.id, on_event)
        self._reader = reader
        # a stream that is dropped without being read must not compute for nobody
        weakref.finalize(self, _leave, asyncio.get_running_loop(), reader).atexit = False

    async def events(self) -> AsyncGenerator[Event, None]:
        """Every event, the `Done` last. A failure is in it; it is not raised here.

        Raises:
            StreamConsumed, StreamClosed: it was read, or closed, before.
        """
        self._begin()
        try:
            while batch := await self._reader.next():
                for event in batch:
                    self._see(event)
                    yield event
        finally:
            await self.aclose()

    async def __aiter__(self) -> AsyncGenerator[str, None]:
        """The answer's text, as it becomes certain.

        Raises:
            BournError: the generation failed; the text before it has been given.
            StreamConsumed, StreamClosed: it was read, or closed, before.
        """
        async with aclosing(self.events()) as events:
            async for event in events:
                if text := text_of(event):
                    yield text
        self._check()

    async def snapshots(self, interval: float = SNAPSHOT_INTERVAL) -> AsyncGenerator[str, None]:
        """The whole answer so far, again and again, at most every `interval` seconds.

        What came in between is in the next one; the last one is the whole answer. Raises as
        iterating does.
        """
        self._begin()
        try:
            while batch := await self._reader.next():
                if self._see_all(batch):
                    yield self.text
                    await asyncio.sleep(0 if self.state else interval)
        finally:
            await self.aclose()
        self._check()

    async def read(self) -> str:
        """The whole answer, once it is there. Raises as iterating does."""
        if self.state is None:
            async for _ in self.events():
                pass
        self._check()
        return self.text

    async def cancel(self) -> None:
        """End the answer now. What came before stays; the finish reason is `cancelled`."""
        self._reader.cancel()
        if not (self._consumed or self._closed):
            await self.read()

    async def aclose(self) -> None:
        """Read no more. Idempotent."""
        self._closed = True
        self._reader.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _leave(loop: asyncio.AbstractEventLoop, reader: Reader) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(reader.leave)


class Model:
    """A loaded model. Many streams may be open at once; what does not fit its slots waits.

    engine: None finds and loads the one that the settings name, when this is started.
    """

    def __init__(self, engine: Engine | None = None, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._engine = engine
        self._hub: Hub | None = None

    @property
    def hub(self) -> Hub:
        if self._hub is None:
            raise StreamClosed("the model is not started", hint="use `async with` or await start()")
        return self._hub

    @property
    def info(self) -> ModelInfo:
        return self.hub.info

    async def start(self) -> Self:
        """Load it, or connect to it. Raises what `engine_for` and `Engine.start` raise."""
        if self._engine is None:  # which may read from disk, and download
            self._engine = await asyncio.to_thread(engine_for, self.settings)
        hub = Hub(self._engine, sampling=self.settings.sampling)
        await hub.start()
        self._hub = hub
        return self

    def stream(
        self,
        asked: Asked,
        *,
        on_event: Callable[[Event], object] | None = None,
        grace: float = 0.0,
        **options: Unpack[Options],
    ) -> Stream:
        """Begin to answer a text, a message or a list of messages.

        on_event: called with each event as it is read.
        grace: seconds for which the answer goes on without a reader (`hub.attach` comes back).
        options: see `bourn.asking.Options`.

        Raises:
            InvalidRequest: an option is unknown or wrong, or this engine cannot honour it.
            QueueFull: too many are waiting.
        """
        request = self.request(asked, options)
        return Stream(self.hub.open(request, Terms(grace=grace)), on_event)

    def request(self, asked: Asked, options: Options) -> Request:
        """What `stream` would send. Raises InvalidRequest."""
        own = getattr(self._engine, "generation_config", None)
        return request_for(asked, options, self.settings, own)

    async def count(self, asked: Asked, **options: Unpack[Options]) -> int | None:
        """How many tokens the prompt would be, template included; None where nobody can tell."""
        return await self.hub.engine.count(self.request(asked, options))

    async def aclose(self) -> None:
        """Cancel what runs, and give everything back. Idempotent."""
        if self._hub is not None:
            await self._hub.aclose()
        elif self._engine is not None:
            await self._engine.aclose()

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:  # a cancelled start too must leave no process behind
            await self.aclose()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def load(name: str | None = None, **settings: Any) -> Model:
    """A model by name, not started yet: use it with `async with`, or await its `start()`.

    name: see the catalog; None is the user's own default. settings: fields of `Settings`, which go
    before the environment and the configuration file.

    Raises:
        SettingsError: one of them is wrong.
    """
    return Model(settings=Settings.load({"model": name, **settings}))


def hf(
    model: Any,
    tokenizer: Any,
    *,
    slots: int = 8,
    window: int | None = None,
    chat_template: str | None = None,
    **settings: Any,
) -> Model:
    """A model and a tokenizer of transformers that you have loaded, not started yet: as `load`.

    The model stays yours; while this is open its attention goes through bourn's, which leaves what
    you do with it yourself as it was.

    slots: answers at once. window: tokens of prompt and answer together, None as many as the model
    and memory allow. chat_template: a name or a file, in place of the model's own.

    Raises:
        SettingsError: a setting is wrong, or there is no such template.
    """
    from bourn.catalog.templates import template
    from bourn.engines.hf.engine import Transformers
    from bourn.engines.hf.weights.loading import Loaded

    text = None if chat_template is None else template(chat_template)
    where = getattr(getattr(model, "config", None), "name_or_path", "")
    loaded = Loaded(model, tokenizer, text)
    engine = Transformers(
        lambda: loaded, slots=slots, window=window, name=Path(where).name or type(model).__name__
    )
    return Model(engine, Settings.load({**settings, "chat_template": chat_template}))
