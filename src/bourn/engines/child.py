"""A process that bourn looks after: ready when it says so, started anew when it died.

A `Child` is a command that may live many times; each `Life` is one process of it. It knows nothing
of models and wires: whether the child is ready is asked of a function.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence

from bourn.engines.life import Life, Process
from bourn.errors import LoadFailed


class Child:
    """A supervised process: started when needed, anew after a death, later and later if it goes on.

    command: the program and its arguments; no secrets, since everybody can read them.
    feed: written to its stdin once, which then stays open and silent until it shall end.
    env: its whole environment, ours when None.
    prepare: called before each start.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str = "child",
        env: Mapping[str, str] | None = None,
        feed: bytes = b"",
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.life: Life | None = None
        self._command = tuple(command)
        self._env = env
        self._feed = feed
        self._prepare = prepare
        self._deaths = 0  # of lives before this one, since the last success
        self._ready: Life | None = None
        self._failed: Life | None = None
        self._spawning = threading.Lock()
        self._starting = asyncio.Lock()
        self._guard: Callable[[], object] = lambda: None

    @property
    def alive(self) -> bool:
        return self.life is not None and not self.life.dead

    @property
    def deaths(self) -> int:
        """How often it died of itself since it last succeeded."""
        return self._deaths + (self.life is not None and self.life.dead and not self.life.ended)

    @property
    def pause(self) -> float:
        """Seconds to let pass before the next start: none after one death, then 0.5, 1, 2 … 30."""
        if self.life is None or self.deaths < 2:
            return 0.0
        wait = min(0.5 * 2.0 ** min(self.deaths - 2, 10), 30.0)
        return max(0.0, self.life.died_at + wait - time.monotonic())

    def succeeded(self) -> None:
        """It has done what it is for, so that the deaths before do not count any more."""
        self._deaths = 0

    def spawn(self) -> Life:
        """The running process; started now if none is. Does not wait for anything.

        Raises:
            LoadFailed: it cannot be started.
        """
        with self._spawning:
            if self.life is not None and not self.life.dead:
                return self.life
            deaths = self.deaths
            try:
                life = self._born()
            except OSError as error:
                raise LoadFailed(
                    f"{self.name} cannot be started: {error}", hint="is the path right?"
                ) from error
            self._deaths, self.life = deaths, life
            self._guard()
            self._guard = weakref.finalize(self, life.kill).detach
            return life

    def _born(self) -> Life:
        self._prepare()
        return Process(self._command, name=self.name, env=self._env, feed=self._feed)

    async def start(self, check: Callable[[], Awaitable[bool]]) -> Life:
        """Ready to be asked: started if need be, and waited for until `check` says yes.

        However long that takes: only a death ends it early.

        Raises:
            LoadFailed: it died before it was ready; with its last words.
        """
        async with self._starting:
            life = self.life
            if life is None or self._is_past(life):
                await asyncio.sleep(self.pause)
                life = self.spawn()
            if life is not self._ready:
                try:
                    await _until(check, life)
                except LoadFailed:
                    self._failed = life
                    raise
                self._ready = life
            return life

    def _is_past(self, life: Life) -> bool:
        """Whether it is dead, and that is no news to whoever starts it."""
        return life.dead and (life.ended or life in (self._ready, self._failed))

    def terminate(self) -> None:
        """End it, and wait for that, a few seconds at most. Idempotent, from any thread."""
        with self._spawning:
            if self.life is not None:
                self.life.end()


async def _until(check: Callable[[], Awaitable[bool]], life: Life) -> None:
    ready = asyncio.create_task(_poll(check))
    death = asyncio.create_task(life.died())
    try:
        await asyncio.wait({ready, death}, return_when=asyncio.FIRST_COMPLETED)
        if life.dead:
            raise load_failed(life)
        ready.result()
    finally:
        ready.cancel()
        death.cancel()
        await asyncio.gather(ready, death, return_exceptions=True)


async def _poll(check: Callable[[], Awaitable[bool]]) -> None:
    pause = 0.01
    while not await check():
        await asyncio.sleep(pause)
        pause = min(pause * 1.1, 0.25)


def load_failed(life: Life) -> LoadFailed:
    words = "\n  ".join((life.exit_text, *life.last_words))
    return LoadFailed(words, hint="the lines above are the last that it wrote")
