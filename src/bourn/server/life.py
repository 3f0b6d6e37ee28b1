"""The life of a server: from listening to the last answer.

The first signal to stop lets running answers come to their end, for a while; the second ends them
at once. What is served is `app`'s business, and what answers is the fleet's.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from bourn.errors import BournError, Overloaded
from bourn.server.asgi import lingers
from bourn.server.config import ServerConfig
from bourn.server.fleet import Fleet
from bourn.server.framing import Framing
from bourn.server.listening import BACKLOG, Listener

logger = logging.getLogger(__name__)

KEEP_ALIVE = 75
"""Seconds for which an idle connection stays open: longer than proxies keep theirs, so that it is
never closed here while a request is on its way."""

LARGEST_HEAD = 16 * 1024
"""Bytes of a request before its body."""

LAST_WORDS = 2.0
"""Seconds to tell those who read answers that were cut off."""

LAST_LOOK = 0.5
"""Seconds to bring pages up to date that are open when all is answered. Less than uvicorn waits."""

_GIVING_BACK = 5.0
_TICK = 0.05


async def live(
    app: ASGIApp,
    fleet: Fleet,
    config: ServerConfig,
    listener: Listener,
    on_listening: Callable[[], object] = lambda: None,
) -> int:
    """Serve until a signal says to stop. The exit status: 0, or that of a second signal.

    on_listening: called once requests are answered, though models may still be loading.

    Raises:
        StoreFailed: what is kept on disk is not ours to use.
        BournError: the application could not be started.
    """
    _open_many_files()
    server = Server(app, on_listening)
    with _signals() as signals:
        try:
            await fleet.start()
            serving = asyncio.create_task(server.serve([listener.socket]))
            await _first(serving, signals.stop.wait())
            await _first(serving, signals.now.wait(), _drain(fleet, server, config.drain))
            await _cut(fleet, server)
            server.close()
            await serving
        finally:
            await _give_back(fleet)
    return signals.status


def _open_many_files() -> None:
    """Have as many connections as this user may: the usual limit, 1,024, is for old programs."""
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):  # macOS calls no limit at all what it refuses
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _drain(fleet: Fleet, server: Server, seconds: float) -> None:
    """Let what runs come to its end, and be read."""
    fleet.draining = True
    if fleet.live:
        logger.info("about to stop: what runs, %d now, has %g s to end", fleet.live, seconds)
    await _quiet(fleet, server, seconds)


async def _cut(fleet: Fleet, server: Server) -> None:
    """End what still runs, and tell those who read it."""
    if fleet.live or server.busy:
        logger.warning("stopped before all was answered: %d cut off", fleet.live or server.busy)
    fleet.break_off(Overloaded("the server was stopped", hint="ask again in a moment"))
    if not await _quiet(fleet, server, LAST_WORDS):
        server.hang_up()


async def _quiet(fleet: Fleet, server: Server, seconds: float) -> bool:
    """Whether nothing runs, and nobody reads any more, within so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while fleet.live or server.busy:  # noqa: ASYNC110 (uvicorn tells nobody)
                await asyncio.sleep(_TICK)
    return not (fleet.live or server.busy)


async def _give_back(fleet: Fleet) -> None:
    try:
        async with asyncio.timeout(_GIVING_BACK):
            await fleet.aclose()
    except TimeoutError:
        logger.warning("a model takes long to end; it goes with this process")


async def _first(serving: asyncio.Task[None], *others: Coroutine[Any, Any, object]) -> None:
    """Wait until one of them has come to its end, and end the others, but for the serving."""
    tasks = [asyncio.create_task(other) for other in others]
    try:
        await asyncio.wait({serving, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Connection(H11Protocol):
    """Uvicorn's own, but it forgets a client that is gone at once, however it went.

    Where a client resets its connection, as most do that leave early, uvicorn leaves the timer of
    an idle connection running, and that holds the last request for as long.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = Framing(h11.SERVER, LARGEST_HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def _unsupported_upgrade_warning(self) -> None:
        """There are no web sockets here: it is answered as if nothing of them had been said."""


class Server(uvicorn.Server):
    """Uvicorn on a socket of ours, which leaves signals to us."""

    def __init__(self, app: ASGIApp, on_listening: Callable[[], object]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=1,
            )
        )
        self._on_listening = on_listening

    @property
    def busy(self) -> int:
        """How many requests are being answered, without those that only linger."""
        return sum(not lingers(task) for task in self.server_state.tasks)

    async def startup(self, sockets: Any = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            what = "the server could not be started"
            raise BournError(what, hint="the log tells why") from None
        self._on_listening()

    def close(self) -> None:
        """Take no more requests, and leave those that linger."""
        self.should_exit = True
        asyncio.get_running_loop().call_later(LAST_LOOK, self.hang_up)

    def hang_up(self) -> None:
        """Leave those who do not read what they asked for."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


class Signals:
    """What was signalled. status: the exit status of the second."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.now = asyncio.Event()
        self.status = 0

    def take(self, number: int) -> None:
        if self.stop.is_set():
            self.status = 128 + number
            self.now.set()
        self.stop.set()


@contextmanager
def _signals() -> Iterator[Signals]:
    signals = Signals()
    loop = asyncio.get_running_loop()

    def take(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(signals.take, number)

    known = (getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"))
    numbers = [n for n in known if n is not None and signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, take) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
