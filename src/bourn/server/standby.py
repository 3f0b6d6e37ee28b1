"""An engine that is there when it is wanted: loaded once for all who ask, given back by and by.

It is an engine itself, so that a hub need not know any of this. It knows no model and no client.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Literal

from bourn.engines import OnProgress
from bourn.engines.base import Engine, ModelInfo
from bourn.errors import BournError, EngineCrashed, EngineError, Overloaded
from bourn.types import Piece, Request

logger = logging.getLogger(__name__)

Readiness = Literal["loading", "ready", "unloaded", "failed"]

RETRY_AFTER = 5.0
"""Seconds after which to ask again for a model that is not loaded yet."""

_LONGEST_PAUSE = 60.0
_BETWEEN_TELLINGS = 2.0  # seconds

Build = Callable[[OnProgress], Engine]
"""Makes the engine, which may begin to load by that; in a thread, unless it is for `prepare`."""


class Standby:
    """The engine that `build` makes. It begins to load with `prepare`, `begin`, or a request.

    name: as clients know it. keep_alive: seconds without a request after which it is given back, to
    be loaded again by the next one; None never. patience: seconds that a request waits for a load;
    None without end.
    """

    def __init__(
        self,
        name: str,
        build: Build,
        *,
        keep_alive: float | None = None,
        patience: float | None = None,
    ) -> None:
        self.name = name
        self.state: Readiness = "loading"
        self._build = build
        self._keep_alive = keep_alive
        self._patience = patience
        self._engine: Engine | None = None
        self._loading: asyncio.Task[ModelInfo] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._running: dict[object, asyncio.Task[object] | None] = {}
        self._timer: asyncio.TimerHandle | None = None  # to unload it, or to try it again
        self._trouble = Trouble()
        self._since = self._told = time.monotonic()
        self._end: BournError | None = None

    def __repr__(self) -> str:
        return f"Standby({self.name!r}, {self.state})"

    @property
    def failure(self) -> Exception | None:
        """Why it could not be loaded the last time, if it could not."""
        return self._trouble.error

    def prepare(self) -> None:
        """Make the engine now, before there is an event loop. Raises what `build` raises."""
        self._engine = self._build(self._progress)

    def begin(self) -> asyncio.Task[ModelInfo]:
        """Load it, or see that it is still well; once for all who want that now.

        Raises:
            BournError: it could not be loaded a moment ago, and is not tried again yet.
        """
        self._check_open()
        if self._loading is None:
            if self.state != "ready":
                self._trouble.check()
                self.state = "loading"
            self._wake()
            self._loading = asyncio.create_task(self._load())
            self._loading.add_done_callback(self._loaded)
        return self._loading

    # -- as an engine ------------------------------------------------------------------------------

    async def start(self) -> ModelInfo:
        """Loaded, or loaded anew. Whoever waits may leave, the load goes on.

        Raises:
            LoadFailed, ModelNotFound, ConnectionFailed, Unauthorized: it cannot be loaded.
            Overloaded: that takes longer than `patience`.
        """
        loading = self.begin()
        await asyncio.wait({loading}, timeout=self._patience)
        self._check_open()
        if not loading.done():
            what = f"{self.name} is still being loaded"
            raise Overloaded(what, retry_after=RETRY_AFTER, hint="try again in a moment")
        return loading.result()

    async def generate(self, request: Request) -> AsyncGenerator[Piece, None]:
        """The pieces of one request, whose sampling is resolved."""
        async with self._in_use() as engine, aclosing(engine.generate(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def count(self, request: Request) -> int | None:
        """How many tokens its prompt is, template included."""
        async with self._in_use() as engine:
            return await engine.count(request)

    def break_off(self, why: BournError) -> None:
        """End all that is generated, and all that waits for it, with this error. For good."""
        self._end = self._end or why
        for task in self._running.values():
            if task is not None:
                task.cancel()
        if self._loading is not None:
            self._loading.cancel()
        self._wake()

    async def aclose(self) -> None:
        """Give everything back, for good. Idempotent."""
        self.break_off(EngineError("this engine was closed", hint="load the model anew"))
        busy = [task for task in (self._loading, self._leaving) if task is not None]
        await asyncio.gather(*busy, return_exceptions=True)
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.aclose()

    def _check_open(self) -> None:
        if self._end is not None:
            raise self._end.with_traceback(None)  # else it would grow with each that is told

    # -- loading -----------------------------------------------------------------------------------

    async def _load(self) -> ModelInfo:
        if self._leaving is not None:
            await asyncio.wait({self._leaving})  # its memory is needed
        try:
            if self._engine is None:
                logger.info("%s is being loaded", self.name)
                self._since = self._told = time.monotonic()
                self._engine = await asyncio.to_thread(self._build, self._progress)
            info = await self._engine.start()
        except Exception as error:  # whatever it is, who waits for the load is told
            self._fail(error)
            raise
        if self.state != "ready":
            logger.info("%s is ready, after %.1f s", self.name, time.monotonic() - self._since)
            if info.notice:
                logger.warning("%s: %s", self.name, info.notice)
        self.state = "ready"
        self._trouble.forget()
        return replace(info, name=self.name)

    def _loaded(self, loading: asyncio.Task[ModelInfo]) -> None:
        self._loading = None
        if not loading.cancelled() and loading.exception() is None:
            self._rest()

    def _fail(self, error: Exception) -> None:
        pause = self._trouble.remember(error)
        self.state = "failed"
        logger.error("%s cannot be loaded: %s", self.name, _in_words(error))
        self._give_back()
        if isinstance(error, BournError) and error.retryable:  # it may pass by itself
            self._timer = asyncio.get_running_loop().call_later(pause, self._retry)

    def _retry(self) -> None:
        self._trouble.ease()
        self.begin()

    def _revive(self, death: EngineCrashed) -> None:
        """Its process died: start it anew at once, so that the next who asks need not wait."""
        if self.state == "ready" and self._end is None:
            logger.error("%s has died, and is started anew: %s", self.name, death)
            self._since = time.monotonic()
            self.state = "loading"
            self.begin()

    def _progress(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done and now >= self._told + _BETWEEN_TELLINGS:
            self._told = now
            logger.info("%s: %.0f%% of the weights are loaded", self.name, 100 * done / total)

    # -- who uses it, and when nobody does ---------------------------------------------------------

    @asynccontextmanager
    async def _in_use(self) -> AsyncGenerator[Engine, None]:
        while (engine := self._engine) is None or self.state != "ready":
            await self.start()
        self._check_open()
        self._wake()
        use = object()
        self._running[use] = asyncio.current_task()
        try:
            yield engine
        except asyncio.CancelledError:
            if self._end is not None and (task := asyncio.current_task()) is not None:
                task.uncancel()  # it was `break_off`, and this is the end of it
                self._check_open()
            raise
        except EngineCrashed as error:
            self._revive(error)
            raise
        finally:
            del self._running[use]
            self._rest()

    def _rest(self) -> None:
        """Give it back later, if nobody wants it till then."""
        idle = not self._running and self._loading is None and self.state == "ready"
        if self._keep_alive is not None and idle:
            self._wake()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._keep_alive, self._unload)

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _unload(self) -> None:
        logger.info("%s is unloaded, after %g s without a request", self.name, self._keep_alive)
        self.state = "unloaded"
        self._give_back()

    def _give_back(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            self._leaving = asyncio.create_task(self._closed(engine))

    async def _closed(self, engine: Engine) -> None:
        try:
            await engine.aclose()
        except Exception:  # nobody waits for it, and there is nothing more to do
            logger.exception("%s could not be given back", self.name)


class Trouble:
    """What went wrong the last time, and how long to leave it alone: longer each time."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._times = 0
        self._until = 0.0

    def remember(self, error: Exception) -> float:
        """Seconds for which it is left alone."""
        self.error = error
        pause = min(2.0**self._times, _LONGEST_PAUSE)
        self._times += 1
        self._until = time.monotonic() + pause
        return pause

    def ease(self) -> None:
        """It may be tried again."""
        self._until = 0.0

    def forget(self) -> None:
        self.error, self._times, self._until = None, 0, 0.0

    def check(self) -> None:
        """Raise the error again, as long as it is left alone."""
        if self.error is not None and time.monotonic() < self._until:
            raise self.error.with_traceback(None)


def _in_words(error: Exception) -> str:
    hint = error.hint if isinstance(error, BournError) else ""
    return f"{error or type(error).__name__}" + (f" ({hint})" if hint else "")
