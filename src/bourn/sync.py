"""The synchronous names: those of `bourn.aio` without `await`, over one background event loop.

    model = bourn.load("smollm2")
    with model.stream("Tell me a story") as stream:
        for text in stream: ...

Safe from any thread: each call hops to the loop, each stream is pumped from it into a queue.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Self, TypeVar, Unpack

from bourn import aio
from bourn.aio import SNAPSHOT_INTERVAL
from bourn.asking import Asked, Options
from bourn.engines.base import ModelInfo
from bourn.stream import Answer, Reader
from bourn.terms import Terms
from bourn.types import Event, Request, text_of

T = TypeVar("T")


class Bridge:
    """The one event loop behind all synchronous names, in a daemon thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        threading.Thread(target=self.loop.run_forever, name="bourn", daemon=True).start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop and wait for it; what interrupts the wait cancels the work."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:  # an interrupt too
            future.cancel()
            raise

    def post(self, act: Callable[[], object]) -> None:
        """Have `act` called in the loop, soon; from any thread, from signal handlers too."""
        self.loop.call_soon_threadsafe(act)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside everything else. To be called in the loop."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_lock = threading.Lock()
_bridge: Bridge | None = None
_models: weakref.WeakSet[Model] = weakref.WeakSet()


def _the_bridge() -> Bridge:
    global _bridge  # noqa: PLW0603 (one loop for the whole process is the point)
    with _lock:
        if _bridge is None:
            _bridge = Bridge()
            atexit.register(_close_all)
        return _bridge


def _close_all() -> None:
    for model in list(_models):
        with suppress(RuntimeError):  # too late for new threads; children end by their pipes
            model.close()


class Mailbox:
    """Events on their way from the loop to a thread; what a slow reader left waiting is merged."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Sequence[Event]] = SimpleQueue()
        self._ended = False

    async def fill(self, reader: Reader) -> None:
        try:
            while batch := await reader.next():
                self._queue.put(batch)
        finally:
            self._queue.put(())

    def take(self) -> list[Event]:
        """All that is there, at least one event; none after the end."""
        batch: list[Event] = []
        while not self._ended and not (batch and self._queue.empty()):
            got = self._queue.get()
            self._ended = not got
            batch += got
        return batch


class Stream(Answer):
    """One answer, read once: iterate for its text, or `events()`, `snapshots()`, `read()`.

    Leaving the loop, or the `with`, ends the reading, and with the last reader the computing.
    """

    def __init__(
        self,
        bridge: Bridge,
        reader: Reader,
        mailbox: Mailbox,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        super().__init__(reader.id, on_event)
        self._bridge = bridge
        self._reader = reader
        self._mailbox = mailbox
        # a stream that is dropped without being read must not compute for nobody
        weakref.finalize(self, bridge.post, reader.leave).atexit = False

    def events(self) -> Generator[Event, None, None]:
        """Every event, the `Done` last. A failure is in it; it is not raised here.

        Raises:
            StreamConsumed, StreamClosed: it was read, or closed, before.
        """
        self._begin()
        try:
            while batch := self._mailbox.take():
                for event in batch:
                    self._see(event)
                    yield event
        finally:
            self.close()

    def __iter__(self) -> Generator[str, None, None]:
        """The answer's text, as it becomes certain.

        Raises:
            BournError: the generation failed; the text before it has been given.
            StreamConsumed, StreamClosed: it was read, or closed, before.
        """
        for event in self.events():
            if text := text_of(event):
                yield text
        self._check()

    def snapshots(self, interval: float = SNAPSHOT_INTERVAL) -> Generator[str, None, None]:
        """The whole answer so far, again and again, at most every `interval` seconds.

        What came in between is in the next one; the last one is the whole answer. Raises as
        iterating does.
        """
        self._begin()
        try:
            while batch := self._mailbox.take():
                if self._see_all(batch):
                    yield self.text
                    time.sleep(0 if self.state else interval)
        finally:
            self.close()
        self._check()

    def read(self) -> str:
        """The whole answer, once it is there. Raises as iterating does."""
        if self.state is None:
            for _ in self.events():
                pass
        self._check()
        return self.text

    def cancel(self, *, wait: bool = True) -> None:
        """End the answer now. What came before stays; the finish reason is `cancelled`.

        Where it is being read, that reading comes to its end; else it is read here. wait: False
        leaves the reading to others and returns at once, as a signal handler must.
        """
        self._bridge.post(self._reader.cancel)
        if wait and not (self._consumed or self._closed):
            self.read()

    def close(self) -> None:
        """Read no more. Idempotent."""
        if not self._closed:
            self._closed = True
            self._bridge.post(self._reader.leave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Model:
    """A loaded model. Safe from any thread; what does not fit its slots waits."""

    def __init__(self, model: aio.Model) -> None:
        self._model = model
        self._bridge = _the_bridge()
        _models.add(self)

    @property
    def info(self) -> ModelInfo:
        return self._model.info

    def start(self) -> Self:
        """Load it, or connect to it. Raises what `Engine.start` raises."""
        self._bridge.call(self._model.start())
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

        on_event: called with each event, in the thread that reads.
        grace: seconds for which the answer goes on without a reader.
        options: see `bourn.asking.Options`.

        Raises:
            InvalidRequest: an option is unknown or wrong, or this engine cannot honour it.
            QueueFull: too many are waiting.
        """
        request = self._model.request(asked, options)
        return self._bridge.call(self._open(request, grace, on_event))

    async def _open(
        self, request: Request, grace: float, on_event: Callable[[Event], object] | None
    ) -> Stream:
        # made here, so that it ends what it began even where nobody waits for it any more
        reader = self._model.hub.open(request, Terms(grace=grace))
        mailbox = Mailbox()
        self._bridge.keep(mailbox.fill(reader))
        return Stream(self._bridge, reader, mailbox, on_event)

    def count(self, asked: Asked, **options: Unpack[Options]) -> int | None:
        """How many tokens the prompt would be, template included; None where nobody can tell."""
        return self._bridge.call(self._model.count(asked, **options))

    def close(self) -> None:
        """Cancel what runs, and give everything back. Idempotent."""
        _models.discard(self)
        self._bridge.call(self._model.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load(name: str | None = None, **settings: Any) -> Model:
    """A model by name, loaded.

    name: see the catalog; None is the user's own default. settings: fields of `Settings`, which go
    before the environment and the configuration file.

    Raises:
        ModelNotFound, SettingsError, LoadFailed, ConnectionFailed, Unauthorized: with what to do.
    """
    return _started(aio.load(name, **settings))


def hf(model: Any, tokenizer: Any, *, slots: int = 8, **options: Any) -> Model:
    """A model and a tokenizer of transformers that you have loaded, as `bourn.aio.hf` takes them.

    engine = bourn.hf(model, tokenizer, slots=8)
    for text in engine.stream("Tell me a story", stopping_criteria=[...]): ...

    Raises:
        SettingsError, LoadFailed: with what to do.
    """
    return _started(aio.hf(model, tokenizer, slots=slots, **options))


def _started(loaded: aio.Model) -> Model:
    model = Model(loaded)
    try:
        return model.start()
    except BaseException:  # an interrupt too must leave no process behind
        model.close()
        raise
