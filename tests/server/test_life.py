"""From listening to the last answer: signals, draining, and what is left of it all."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from bourn.engines.base import Engine
from bourn.engines.scripted import Script, Scripted
from bourn.errors import BournError, StoreFailed
from bourn.server.app import application
from bourn.server.config import ServerConfig
from bourn.server.fleet import Fleet, Offer
from bourn.server.life import live
from bourn.server.listening import listen
from bourn.server.standby import Standby

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

CONFIG = ServerConfig(port=0, drain=5.0)
SHORT = Script(["x "] * 40, delay=0.01)
LONG = Script(["x "] * 10_000, delay=0.01)


@dataclass
class Alive:
    """A server in this process, and a client of it."""

    client: httpx2.AsyncClient
    fleet: Fleet
    engine: Scripted
    living: asyncio.Task[int]

    async def answer(self, **body: Any) -> tuple[int, list[dict[str, Any]]]:
        """The status of a streamed answer, and what its frames hold; the last is `[DONE]`."""
        whole = {"messages": [{"role": "user", "content": "Hi"}], "stream": True} | body
        async with self.client.stream("POST", "/v1/chat/completions", json=whole) as response:
            lines = [line async for line in response.aiter_lines()]
        frames = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        if frames:
            assert frames.pop() == "[DONE]"
        return response.status_code, [json.loads(frame) for frame in frames]

    async def running(self, number: int) -> None:
        await until(lambda: self.fleet.live >= number)


@asynccontextmanager
async def alive(
    script: Script,
    config: ServerConfig = CONFIG,
    engine: Scripted | None = None,
    page: ASGIApp | None = None,
    **facts: Any,
) -> AsyncIterator[Alive]:
    served = engine or Scripted(script, **facts)

    def build(_: object) -> Engine:
        return served

    fleet = Fleet([Offer(Standby("m", build))])
    listener = listen("127.0.0.1", 0)
    listening = asyncio.Event()
    app = application(fleet, config, page)
    living = asyncio.create_task(live(app, fleet, config, listener, listening.set))
    await asyncio.wait(
        {living, asyncio.ensure_future(listening.wait())}, return_when="FIRST_COMPLETED"
    )
    async with httpx2.AsyncClient(base_url=listener.url, timeout=10) as client:
        try:
            yield Alive(client, fleet, served, living)
        finally:
            if not living.done():
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGTERM)
            await asyncio.wait({living}, timeout=10)
            listener.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.001)


def words(frames: list[dict[str, Any]]) -> int:
    texts = [
        frame["choices"][0]["delta"].get("content") or "" for frame in frames if frame["choices"]
    ]
    return len("".join(texts).split())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_stopped_while_idle_it_ends_at_once_with_open_connections(number: int) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    async with alive(SHORT) as server:
        assert (await server.client.get("/health")).status_code == 200  # and it is kept open
        began = time.monotonic()
        signal.raise_signal(number)
        assert await server.living == 0
        assert time.monotonic() - began < 10
    after = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    assert after == before


async def test_as_many_connections_as_this_user_may_have() -> None:
    import resource

    few, most = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = most - 1 if most > 0 else few  # without any limit it is -1
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    try:
        async with alive(SHORT):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_drain_lets_answers_end_and_begins_no_new_ones() -> None:
    async with alive(SHORT, slots=1) as server:
        answers = [asyncio.create_task(server.answer()) for _ in range(2)]  # one of them waits
        await server.running(2)
        assert (await server.client.get("/ready")).status_code == 200
        signal.raise_signal(signal.SIGTERM)
        await until(lambda: server.fleet.draining)
        refused = await server.client.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}]}
        )
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        assert (await server.client.get("/ready")).status_code == 503
        assert (await server.client.get("/health")).status_code == 200
        for status, frames in await asyncio.gather(*answers):
            assert (status, words(frames)) == (200, 40)
            assert "error" not in frames[-1]
        assert await server.living == 0


async def test_nobody_waits_for_a_page_that_is_open() -> None:
    gone = asyncio.Event()

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        """Says something, and then nothing until its browser leaves, whatever that takes."""
        if scope["type"] == "lifespan":
            await starts_and_ends(receive, send)
            return
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"alive", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    async with alive(SHORT, replace(CONFIG, drain=60), page=page) as server:
        async with server.client.stream("GET", "/heartbeat") as response:
            assert await anext(response.aiter_bytes()) == b"alive"
            began = time.monotonic()
            signal.raise_signal(signal.SIGTERM)
            assert await server.living == 0
            assert time.monotonic() - began < 20
        assert gone.is_set()


async def starts_and_ends(receive: Receive, send: Send) -> None:
    for told in ("startup", "shutdown"):
        assert (await receive())["type"] == f"lifespan.{told}"
        await send({"type": f"lifespan.{told}.complete"})


async def test_a_page_that_cannot_start_is_an_error() -> None:
    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("no page today")

    engine = Scripted(SHORT)
    fleet = Fleet([Offer(Standby("m", lambda _: engine))])
    listener = listen("127.0.0.1", 0)
    with pytest.raises(BournError, match="could not be started"):
        await live(application(fleet, CONFIG, page), fleet, CONFIG, listener)
    listener.close()


async def test_what_takes_longer_is_cut_off_with_an_error() -> None:
    async with alive(LONG, replace(CONFIG, drain=0.2), slots=2) as server:
        answers = [asyncio.create_task(server.answer()) for _ in range(3)]
        await server.running(3)
        await until(lambda: server.engine.running == 2)
        await asyncio.sleep(0.1)
        signal.raise_signal(signal.SIGTERM)
        told = await asyncio.gather(*answers)
        cut = [frames for status, frames in told if status == 200]
        assert len(cut) == 2
        for frames in cut:
            assert frames[-1]["error"]["message"] == "the server was stopped"
            assert words(frames[:-1]) > 0
        assert [status for status, _ in told if status != 200] == [503]  # it had not begun
        assert await server.living == 0
        assert server.engine.running == 0


async def test_a_second_signal_ends_all_at_once() -> None:
    async with alive(LONG, replace(CONFIG, drain=60)) as server:
        answer = asyncio.create_task(server.answer())
        await server.running(1)
        await until(lambda: server.engine.running == 1)
        await asyncio.sleep(0.1)
        signal.raise_signal(signal.SIGTERM)
        await until(lambda: server.fleet.draining)
        began = time.monotonic()
        signal.raise_signal(signal.SIGINT)
        assert await server.living == 128 + signal.SIGINT
        assert time.monotonic() - began < 20
        _, frames = await answer
        assert frames[-1]["error"]["message"] == "the server was stopped"


async def test_who_waits_for_a_model_that_is_being_loaded_is_not_lost_by_a_drain() -> None:
    gate = asyncio.Event()

    class Gated(Scripted):
        async def start(self) -> Any:
            await gate.wait()
            return await super().start()

    async with alive(SHORT, engine=Gated(SHORT)) as server:
        assert (await server.client.get("/ready")).status_code == 503
        answer = asyncio.create_task(server.answer())
        await asyncio.sleep(0.1)
        signal.raise_signal(signal.SIGTERM)
        await until(lambda: server.fleet.draining)
        gate.set()
        status, frames = await answer
        assert (status, words(frames)) == (200, 40)
        assert await server.living == 0


async def test_a_reader_who_does_not_read_cannot_hold_the_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bourn.server.life.LAST_WORDS", 0.2)
    flood = Script(["x" * 5000 + " "] * 3000)
    async with alive(flood, replace(CONFIG, drain=0.2)) as server:
        port = int(str(server.client.base_url).rstrip("/").rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "stream": True})
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n"
        writer.write((head + "Content-Type: application/json\r\n\r\n" + body).encode())
        await reader.readline()
        began = time.monotonic()
        signal.raise_signal(signal.SIGTERM)
        assert await server.living == 0
        assert time.monotonic() - began < 20
        writer.close()
    assert "Traceback" not in caplog.text


async def test_a_store_that_is_not_ours_is_told_and_nothing_is_served() -> None:
    class Store(Fleet):
        async def start(self) -> None:
            raise StoreFailed("another program's")

    engine = Scripted(SHORT)
    fleet = Store([Offer(Standby("m", lambda _: engine))])
    listener = listen("127.0.0.1", 0)
    with pytest.raises(StoreFailed):
        await live(application(fleet, CONFIG), fleet, CONFIG, listener)
    listener.close()


async def test_who_asks_for_a_web_socket_is_answered_without_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with alive(SHORT) as served:
        wish = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        assert (await served.client.get("/health", headers=wish)).status_code == 200
    assert "WebSocket" not in caplog.text
    assert "upgrade" not in caplog.text
