"""The whole server over scripted engines, and requests to it that are watched while they last."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from starlette.types import ASGIApp, Message

from bourn.archive import Archive
from bourn.engines.base import Engine
from bourn.engines.scripted import Script, Scripted
from bourn.hub import Hub
from bourn.server.app import application
from bourn.server.config import ServerConfig
from bourn.server.fleet import Fleet, Offer
from bourn.server.standby import Standby
from bourn.sharing import Key
from bourn.types import Request
from tests.support.served_app import Told, scope_of

T = TypeVar("T")

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
AS_IT_COMES = ServerConfig()
HELLO = Script(["Hel", "lo"])


class Call:
    """One request that is being answered."""

    def __init__(self, app: ASGIApp, path: str, body: bytes, **scope: Any) -> None:
        self.told = Told()
        self.stalled = False  # whether the client reads nothing for now
        self._gone = asyncio.Event()
        self._moved = asyncio.Event()
        self._body = [body]
        more = {"root_path": "", "query_string": b"", "state": {}, **scope}
        self.task = asyncio.ensure_future(app(scope_of(path, **more), self._receive, self._send))
        self.task.add_done_callback(lambda _: self._moved.set())

    @property
    def text(self) -> str:
        return b"".join(self.told.bodies).decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def chunks(self) -> list[Any]:
        """The objects of a stream. It has to end with `[DONE]`."""
        *data, last = [frame.data for frame in frames(self.text)]
        assert last == "[DONE]"
        return [json.loads(each) for each in data]

    def hang_up(self) -> None:
        self._gone.set()
        self._moved.set()

    def read_on(self) -> None:
        self.stalled = False
        self._moved.set()

    async def whole(self) -> Call:
        await self.task
        return self

    async def until(self, condition: Callable[[], object]) -> None:
        """Something was sent that makes it true."""
        while not condition():
            assert not self.task.done(), self.text
            self._moved.clear()
            await self._moved.wait()

    async def _receive(self) -> Message:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        while self.stalled and not self._gone.is_set():
            self._moved.clear()
            await self._moved.wait()
        if not self._gone.is_set():
            await self.told.send(message)
            self._moved.set()


@dataclass(frozen=True)
class Frame:
    """An event of a stream, as it was written."""

    data: str
    id: str = ""
    number: int = 0


def frames(text: str) -> list[Frame]:
    """What is in a stream; each frame whole, comments left out."""
    assert "\r" not in text
    assert text.endswith("\n\n") or not text
    made = []
    for block in text.split("\n\n")[:-1]:
        lines = [line.split(": ", 1) for line in block.split("\n")]
        fields = {name: value for name, value in lines if name}
        assert len(fields) == len(lines) or not fields
        if fields:
            assert fields.keys() <= {"id", "data"}
            number = fields.get("id", ":0").rpartition(":")[2]
            made.append(Frame(fields["data"], fields.get("id", ""), int(number)))
    return made


@dataclass(frozen=True)
class Site:
    app: ASGIApp
    fleet: Fleet
    engines: Mapping[str, Any]

    @property
    def engine(self) -> Scripted:
        """The first one."""
        engine: Scripted = next(iter(self.engines.values()))
        return engine

    @property
    def hub(self) -> Hub:
        return next(iter(self.fleet.hubs.values()))

    def begin(self, path: str, told: Any = None, *, method: str = "", **headers: str) -> Call:
        """Ask, and be there. A GET without a body, else a POST."""
        body = (
            told if isinstance(told, bytes) else b"" if told is None else json.dumps(told).encode()
        )
        path, _, query = path.partition("?")
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return Call(
            self.app,
            path,
            body,
            method=method or ("GET" if told is None else "POST"),
            headers={"content-type": "application/json", **names},
            query_string=query.encode(),
        )

    async def ask(self, path: str, told: Any = None, *, method: str = "", **headers: str) -> Call:
        """Ask, and wait for the whole answer."""
        return await self.begin(path, told, method=method, **headers).whole()

    async def idle(self) -> None:
        """Nothing is computed, and nobody waits; the test's own timeout is the limit."""
        while self.fleet.live or any(engine.running for engine in self.engines.values()):
            await asyncio.sleep(0.001)


@asynccontextmanager
async def site(
    script: Script | Callable[[Request], Script] = HELLO,
    *,
    config: ServerConfig = AS_IT_COMES,
    key: Key | None = None,
    queue_limit: int = 256,
    engines: Mapping[str, Engine] | None = None,
    archive: Archive | None = None,
    patience: float | None = None,
    **facts: Any,
) -> AsyncIterator[Site]:
    """A server with one model, `m`, or with these. facts: of its `ModelInfo`.

    patience: seconds that a request waits for a load.
    """
    engines = engines or {"m": Scripted(script, **facts)}
    standbys = [
        Standby(name, partial(_same, engine), patience=patience) for name, engine in engines.items()
    ]
    given = None if key is None else partial(_same, key, None)
    offers = [Offer(standby, key=given) for standby in standbys]
    fleet = Fleet(offers, queue_limit=queue_limit, archive=archive)
    await fleet.start()
    try:
        yield Site(application(fleet, config), fleet, engines)
    finally:
        await fleet.aclose()


def _same(given: T, _: object) -> T:
    return given
