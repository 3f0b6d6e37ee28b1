"""What runs inside the child: an engine that answers its parent over one socket.

    python -m bourn.engines.hf.child.worker   (one line of JSON on stdin, see `Config`)

It calls its parent, says when it is ready, and ends when the parent hangs up or dies. Which engine
it is makes no difference here.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bourn.engines import OnProgress
from bourn.engines.base import Engine
from bourn.engines.hf.child.frames import (
    Ask,
    Cancel,
    Count,
    Counted,
    Ended,
    Failed,
    Frame,
    Hello,
    Hold,
    Loading,
    Ready,
    Step,
    encode,
)
from bourn.engines.hf.child.line import Line
from bourn.engines.llamacpp_worker import die_with
from bourn.errors import BournError, Interrupted, InvalidRequest, LoadFailed
from bourn.types import Piece, Request

logger = logging.getLogger("bourn.engines")


@dataclass(frozen=True, slots=True)
class Config:
    """What the child is told.

    host: the path of the unix socket where its parent waits; or an address, with `port`, and `key`
    to prove who it is. window: tokens for each of `slots`; None is the model's own. The others are
    those of `loading.load`.
    """

    folder: str
    name: str = ""
    slots: int = 8
    window: int | None = None
    dtype: str = "auto"
    device: str = "auto"
    quantization: str | None = None
    chat_template: str | None = None
    trust_remote_code: bool = False
    threads: int | None = None
    compiled: bool = False
    host: str = ""
    port: int = 0
    key: str = ""

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    def connect(self) -> socket.socket:
        """A connection to the parent.

        Raises:
            OSError: it does not wait there any more.
        """
        if self.port:
            return socket.create_connection((self.host, self.port))
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.host)
        return connection


Build = Callable[[Config, OnProgress], Engine]
"""Makes the engine; what it is given may be called from any thread."""


def main() -> None:
    run(here)


def here(config: Config, on_progress: OnProgress | None = None) -> Engine:
    """The engine of `config` in this process; it loads when it is started."""
    from bourn.engines.hf.engine import Transformers
    from bourn.engines.hf.weights.loading import load

    wanted = partial(
        load,
        Path(config.folder),
        dtype=config.dtype,
        device=config.device,
        quantization=config.quantization,
        chat_template=config.chat_template,
        trust_remote_code=config.trust_remote_code,
        threads=config.threads,
        on_progress=on_progress,
    )
    return Transformers(
        wanted,
        slots=config.slots,
        window=config.window,
        name=config.name,
        compiled=config.compiled,
    )


def run(build: Build) -> None:
    """The whole life of the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()  # where C code dies, these are the last words
    stdin = open(0, "rb", buffering=0)  # noqa: SIM115 (for life)
    line = stdin.readline()
    if line:  # else: whoever started us is gone
        die_with(stdin.fileno())
        asyncio.run(_work(build, Config(**json.loads(line))))


async def _work(build: Build, config: Config) -> None:
    loop = asyncio.get_running_loop()

    def tell(done: int, total: int) -> None:
        loop.call_soon_threadsafe(attendant.say, Loading(done, total))

    attendant = Attendant(build(config, tell), key=config.key)
    await attendant.attend(config.connect())
    os._exit(0)  # whatever still computes, nobody wants it


async def serve(engine: Engine, connection: socket.socket, *, key: str = "") -> None:
    """Let the other end of a connection use an engine, until it hangs up. The engine stays open."""
    await Attendant(engine, key=key).attend(connection)


class Attendant(Line):
    """Stands between one engine and one parent.

    All pieces of one turn of the event loop go out as one frame. A request is made no faster than
    its reader, and the parent, take it in.
    """

    def __init__(self, engine: Engine, *, key: str = "") -> None:
        super().__init__()
        self._engine = engine
        self._key = key
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._held: dict[int, asyncio.Event] = {}
        self._pieces: list[tuple[int, Piece]] = []
        self._ends: list[Frame] = []

    async def attend(self, connection: socket.socket) -> None:
        """Until the parent hangs up."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, sock=connection)
        self.say(Hello(self._key))
        starting = loop.create_task(self._start())
        try:
            await self.end()
        finally:
            self.hang_up()
            tasks = [starting, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self) -> None:
        try:
            self.say(Ready(await self._engine.start()))
        except BournError as error:
            self.say(Failed(None, error))
        except Exception as error:  # whatever it is, the parent wants to know it
            logger.exception("the model could not be loaded")
            said = f"{type(error).__name__}: {error}"
            self.say(Failed(None, LoadFailed(said, hint="the log tells where it happened")))

    def heard(self, frame: Frame) -> None:
        match frame:
            case Ask():
                self._begin(frame.id, self._answer(frame.id, frame.request))
            case Count():
                self._begin(frame.id, self._count(frame.id, frame.request))
            case Cancel() if frame.id in self._tasks:
                self._tasks[frame.id].cancel()
            case Hold() if frame.id in self._tasks:
                self._hold(frame.id, on=frame.on)

    # -- one request -------------------------------------------------------------------------------

    def _begin(self, id_: int, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[id_] = task
        task.add_done_callback(partial(self._done, id_))

    def _done(self, id_: int, task: asyncio.Task[None]) -> None:
        del self._tasks[id_]
        self._held.pop(id_, None)
        error = Interrupted("it was cancelled") if task.cancelled() else task.exception()
        if error is None:
            self._tell_end(Ended(id_))
        elif isinstance(error, Exception):
            if not isinstance(error, BournError):
                logger.error("a request failed", exc_info=error)
            self._tell_end(Failed(id_, error))

    async def _answer(self, id_: int, request: Request) -> None:
        async with aclosing(self._engine.generate(request)) as pieces:
            async for piece in pieces:
                self._tell(id_, piece)
                if id_ in self._held:
                    await self._held[id_].wait()
                if not self.flowing:
                    await self.room()

    async def _count(self, id_: int, request: Request) -> None:
        self._tell_end(Counted(id_, await self._engine.count(request)))

    def _hold(self, id_: int, *, on: bool) -> None:
        if on:
            self._held.setdefault(id_, asyncio.Event())
        elif id_ in self._held:
            self._held.pop(id_).set()

    # -- what was said in this turn ----------------------------------------------------------------

    def _tell(self, id_: int, piece: Piece) -> None:
        self._soon()
        self._pieces.append((id_, piece))

    def _tell_end(self, frame: Frame) -> None:
        self._soon()
        self._ends.append(frame)

    def _soon(self) -> None:
        """Say it when all who are ready now have had their turn."""
        if not self._pieces and not self._ends:
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        ends, self._ends = self._ends, []
        if pieces:
            self.write(self._step(pieces))
        for frame in ends:
            self.say(frame)

    def _step(self, pieces: list[tuple[int, Piece]]) -> bytes:
        """One frame; where it cannot be said in one, one each, and where that cannot be, why."""
        try:
            return encode(Step(tuple(pieces)))
        except InvalidRequest as error:
            if len(pieces) > 1:
                return b"".join(self._step([each]) for each in pieces)
            id_ = pieces[0][0]
            if id_ in self._tasks:
                self._tasks[id_].cancel()
            return encode(Failed(id_, error))


if __name__ == "__main__":
    main()
