from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import openai
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bourn.engines.scripted import Script, Scripted
from bourn.hub import Hub
from bourn.server.asgi import lingers
from bourn.server.config import ServerConfig
from bourn.server.gate import Parted, gate
from bourn.server.telemetry import Telemetry
from bourn.types import Delta
from bourn.types import Message as Said
from bourn.types import Request as Wish
from tests.support.served_app import Told, ask, hello, scope_of, serving

ALL = ServerConfig(keys=frozenset({"sk-1"}), origins=("https://chat.example.com",))
HEADERS = {
    "host": "h",
    "authorization": "Bearer sk-1",
    "origin": "https://chat.example.com",
    "accept-encoding": "gzip, br",
}


@pytest.fixture(autouse=True)
def _written_down(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bourn.access")


def everything(app: ASGIApp) -> ASGIApp:
    """All that a gate can be made of."""
    return gate(app, ALL, telemetry=Telemetry(), access_log=True, at_once=5)


class Streaming:
    """Sends tokens when it is told to, and notes when it hears that its client has gone."""

    def __init__(self) -> None:
        self.tokens: asyncio.Queue[bytes] = asyncio.Queue()
        self.reached = asyncio.Event()
        self.gone = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        self.reached.set()
        speaking = asyncio.create_task(self._speak(send))
        assert await receive() == {"type": "http.disconnect"}
        self.gone.set()
        speaking.cancel()

    async def _speak(self, send: Send) -> None:
        token = await self.tokens.get()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while True:
            await send({"type": "http.response.body", "body": token, "more_body": True})
            token = await self.tokens.get()


class Client:
    """Asks, and hangs up when it is told to."""

    def __init__(self) -> None:
        self.hung_up = asyncio.Event()
        self.told = Told()
        self._body = [b'{"stream": true}']

    async def receive(self) -> Message:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self.hung_up.wait()
        return {"type": "http.disconnect"}


@pytest.mark.parametrize("tokens", [0, 3], ids=["before the first token", "at the third"])
@pytest.mark.parametrize("wrap", [everything, lambda app: app], ids=["gate", "no gate"])
async def test_a_hang_up_is_heard_in_the_next_turn_of_the_loop(
    tokens: int, wrap: Callable[[ASGIApp], ASGIApp]
) -> None:
    app, client = Streaming(), Client()
    scope = scope_of("/v1/completions", method="POST", headers=HEADERS)
    asked = asyncio.ensure_future(wrap(app)(scope, client.receive, client.told.send))
    await app.reached.wait()
    for _ in range(tokens):
        app.tokens.put_nowait(b"data: token\n\n")
        await asyncio.sleep(0)
    assert client.told.bodies == [b"data: token\n\n"] * tokens
    client.hung_up.set()
    await asyncio.sleep(0)
    assert app.gone.is_set()
    await asked


POST = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer sk-1\r\n"


@asynccontextmanager
async def asking(app: ASGIApp) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which something has been asked. It is closed as the client closes it."""
    async with serving(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(POST + b"Content-Length: 2\r\n\r\n{}")
        yield reader, writer
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("tokens", [0, 3], ids=["before the first token", "at the third"])
async def test_a_hang_up_on_a_real_connection(tokens: int) -> None:
    app = Streaming()
    async with asking(everything(app)) as (reader, writer):
        await app.reached.wait()
        for number in range(tokens):
            app.tokens.put_nowait(b"token %d" % number)
            await reader.readuntil(b"token %d" % number)
        assert not app.gone.is_set()
        writer.transport.abort()
        await app.gone.wait()


@pytest.mark.parametrize("tokens", [0, 3], ids=["before the first token", "at the third"])
async def test_nothing_is_computed_for_a_client_that_has_hung_up(tokens: int) -> None:
    engine = Scripted(Script(["token "] * 10_000, delay=0.002 if tokens else 60))
    hub = Hub(engine)
    await hub.start()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        reader = hub.open(Wish(messages=(Said("user", "go on"),), max_new_tokens=None))
        gone = asyncio.ensure_future(receive())
        gone.add_done_callback(lambda _: reader.leave())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while batch := await reader.next():
            text = "".join(event.text for event in batch if isinstance(event, Delta))
            body = text.encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})

    async with asking(everything(app)) as (reader, writer):
        while engine.running == 0:
            await asyncio.sleep(0.001)
        for _ in range(tokens):
            await reader.readuntil(b"token")
        writer.transport.abort()
        while hub.live:
            await asyncio.sleep(0.001)
    assert engine.running == 0
    await hub.aclose()


async def test_what_is_sent_goes_out_as_it_is_and_at_once() -> None:
    messages: list[Message] = [
        {"type": "http.response.start", "status": 200, "headers": [(b"x", b"y")]},
        {"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True},
        {"type": "http.response.body", "body": b"", "more_body": False},
    ]
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for number, message in enumerate(messages, 1):
            await send(message)
            assert len(sent) == number

    await everything(app)(scope_of(headers=HEADERS), Client().receive, send)
    assert all(one is other for one, other in zip(sent, messages, strict=True))
    names = [name for name, _ in messages[0]["headers"]]
    assert b"x" in names
    assert b"content-encoding" not in names


async def test_no_body_is_read_of_a_client_without_a_key() -> None:
    async def receive() -> Message:
        raise AssertionError("nothing is read")

    told = Told()
    scope = scope_of(method="POST", headers={"content-length": "99999999999"})
    await everything(hello)(scope, receive, told.send)
    assert told.status == 401


async def test_a_page_can_read_why_it_was_refused() -> None:
    headers = {"host": "h", "origin": "https://chat.example.com"}
    told = await ask(everything(hello), scope_of(headers=headers))
    assert told.status == 401
    assert told.headers["access-control-allow-origin"] == "https://chat.example.com"


async def test_a_browser_asks_beforehand_without_a_key() -> None:
    headers = {
        "origin": "https://chat.example.com",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    told = await ask(everything(hello), scope_of(method="OPTIONS", headers=headers))
    assert told.status == 200


async def test_what_is_refused_is_written_down_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    telemetry = Telemetry()
    app = gate(hello, ServerConfig(), telemetry=telemetry, access_log=True)
    await ask(app, scope_of(headers={"host": "evil.example.com"}))
    assert caplog.messages[0].startswith("GET /v1/models 403 ")
    assert telemetry.responses == {403: 1}


async def test_the_official_client_knows_its_errors() -> None:
    for config, app, error in (
        (ALL, hello, openai.AuthenticationError),
        (ServerConfig(origins=("https://chat.example.com",)), hello, openai.PermissionDeniedError),
        (ServerConfig(largest_body=1), hello, openai.APIStatusError),
    ):
        async with (
            serving(gate(app, config)) as port,
            openai.AsyncOpenAI(
                base_url=f"http://127.0.0.1:{port}/v1",
                api_key="sk-wrong",
                max_retries=0,
                default_headers={"origin": "https://evil.example.com"} if config.origins else {},
            ) as client,
        ):
            with pytest.raises(error) as raised:
                await client.completions.create(model="m", prompt="what people write")
        assert raised.value.status_code in {401, 403, 413}
        assert raised.value.code in {"unauthorized", "forbidden", "request_too_large"}


async def test_the_least_gate_is_no_wall() -> None:
    told = await ask(gate(hello, ServerConfig()), scope_of(headers={"host": "localhost:8000"}))
    assert (told.status, told.bodies) == (200, [b"hello"])


async def test_the_life_of_the_application_is_passed_on() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    await ask(everything(app), {"type": "lifespan"})
    assert seen == [{"type": "lifespan"}]


# -- the page beside the API -----------------------------------------------------------------------


def said(name: str, seen: list[str]) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        seen.append(f"{name}, {'lingers' if lingers(task) else 'is waited for'}")
        if scope["type"] == "http":
            await hello(scope, receive, send)

    return app


API = "api, is waited for"
PAGE = "page, lingers"


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/models", API),
        ("/v1", API),
        ("/v1/nothing", API),
        ("/health", API),
        ("/ready", API),
        ("/metrics", API),
        ("/metrics/", API),
        ("/docs", API),
        ("/openapi.json", API),
        ("/", PAGE),
        ("/v10", PAGE),
        ("/V1/models", PAGE),
        ("/login", PAGE),
        ("/healthy", PAGE),
        ("/gradio_api/heartbeat/x", PAGE),
        ("/gradio_api/v1/models", PAGE),
    ],
)
async def test_what_is_not_the_apis_is_the_pages(path: str, told: str) -> None:
    seen: list[str] = []
    app = Parted(said("api", seen), said("page", seen), ServerConfig())
    task = asyncio.create_task(ask(app, scope_of(path)))
    assert (await task).status == 200
    assert seen == [told]


async def test_a_page_below_a_root_is_seen_as_the_routes_see_it() -> None:
    seen: list[str] = []
    app = Parted(said("api", seen), said("page", seen), ServerConfig())
    for path in ("/llm/v1/models", "/llm/"):
        await asyncio.create_task(ask(app, scope_of(path, root_path="/llm")))
    assert seen == [API, PAGE]


async def test_the_page_begins_and_ends_with_the_application() -> None:
    seen: list[str] = []
    app = Parted(said("api", seen), said("page", seen), ServerConfig())
    await ask(app, {"type": "lifespan"})
    assert seen == ["page, is waited for"]


@pytest.mark.parametrize("origins", [(), ("*",), ("https://chat.example.com",)])
async def test_a_page_is_guarded_from_strangers_whoever_may_use_the_api(
    origins: tuple[str, ...],
) -> None:
    seen: list[str] = []
    config = ServerConfig(origins=origins)
    app = Parted(said("api", seen), said("page", seen), config)
    for strange in (
        {"host": "evil.example.com"},
        {"host": "localhost", "origin": "https://chat.example.com"},
    ):
        told = await ask(app, scope_of("/", headers=strange))
        assert told.status == 403
        assert "access-control-allow-origin" not in told.headers
    assert seen == []
