from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from bourn.server.config import ServerConfig
from bourn.server.keys import OWNER
from bourn.server.limits import AtOnce, Limits
from tests.support.served_app import Told, ask, hello, scope_of, serving

SMALL = ServerConfig(largest_body=1000)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    message = await receive()
    assert not message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"], "more_body": False})


def post(**headers: str) -> Scope:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return scope_of(method="POST", headers=named)


@pytest.mark.parametrize("parts", [(), (b"x" * 1000,), (b"ab", b"", b"cd", b"e"), (b"x",) * 1000])
async def test_the_application_gets_the_body_whole(parts: tuple[bytes, ...]) -> None:
    told = await ask(Limits(echo, SMALL), post(content_length="1000"), *parts)
    assert (told.status, told.bodies) == (200, [b"".join(parts)])


async def never(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("it is not asked")


async def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    told = Told()

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    await Limits(never, SMALL)(post(content_length="1001"), receive, told.send)
    assert told.status == 413
    assert (told.error["code"], told.error["status"]) == ("request_too_large", 413)
    assert "1000" in told.error["message"]


@pytest.mark.parametrize("parts", [(b"x" * 1001,), (b"x" * 999, b"xx"), (b"x" * 600,) * 3])
async def test_one_that_does_not_say_so_is_read_until_it_is(parts: tuple[bytes, ...]) -> None:
    told = await ask(Limits(never, SMALL), post(transfer_encoding="chunked"), *parts)
    assert told.status == 413


async def drip(*pieces: tuple[float, bytes], limits: Limits) -> Told:
    """A client that sends a piece after so many seconds, and then nothing."""
    told = Told()
    left = list(pieces)

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        seconds, body = left.pop(0)
        await asyncio.sleep(seconds)
        return {"type": "http.request", "body": body, "more_body": body != b"end"}

    await limits(post(), receive, told.send)
    return told


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    told = await drip((0, b"ab"), limits=Limits(never, SMALL, patience=0.05))
    assert told.status == 408
    assert told.headers["connection"] == "close"
    assert told.error["code"] == "request_timeout"


async def test_a_body_byte_by_byte_does_not_last_forever() -> None:
    slow = [(0.02, b"x")] * 100
    told = await drip(*slow, limits=Limits(never, SMALL, patience=0.05))
    assert told.status == 408


async def test_a_body_that_grows_at_its_pace_has_all_the_time_it_takes() -> None:
    steady = [(0.25, b"x" * 100)] * 5  # longer than the patience, and with half of it to spare
    told = await drip(*steady, (0.25, b"end"), limits=Limits(echo, SMALL, patience=1.0, pace=200))
    assert told.status == 200
    assert len(told.bodies[0]) == 503


async def test_a_client_that_hangs_up_before_its_body_is_there_is_not_answered() -> None:
    told = Told()
    messages: list[Message] = [
        {"type": "http.request", "body": b"a", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return messages.pop(0)

    await Limits(never, SMALL)(post(), receive, told.send)
    assert (told.status, told.bodies) == (0, [])


async def test_after_the_body_the_client_is_heard_by_the_application_itself() -> None:
    gone: Message = {"type": "http.disconnect"}
    messages: list[Message] = [{"type": "http.request", "body": b"a", "more_body": False}, gone]
    heard: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.extend([await receive(), await receive()])

    await Limits(app, SMALL)(post(), receive, Told().send)
    assert heard[0]["body"] == b"a"
    assert heard[1] is gone


async def test_what_is_no_request_is_passed_on() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    await ask(Limits(app, SMALL), {"type": "lifespan"})
    assert seen == [{"type": "lifespan"}]


# -- on a connection -------------------------------------------------------------------------------


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status and the body of one answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if "content-length" not in head:
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return int(head.split()[1]), body
    length = int(head.partition("content-length:")[2].split()[0])
    return int(head.split()[1]), await reader.readexactly(length)


GREETING = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\n"
NEXT = GREETING + b"Content-Length: 2\r\n\r\nhi"
LARGE = 300_000


@pytest.mark.parametrize(
    "request_",
    [b"Content-Length: %d\r\n\r\n%b", b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"],
)
async def test_after_a_refusal_the_connection_can_be_used(request_: bytes) -> None:
    async with serving(Limits(echo, SMALL)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GREETING + request_ % (LARGE, b"x" * LARGE))
        await writer.drain()
        status, body = await answer(reader)
        writer.write(NEXT)
        assert (status, b"request_too_large" in body) == (413, True)
        assert await answer(reader) == (200, b"hi")
        writer.close()


async def test_a_client_that_asks_before_it_sends_need_not_send() -> None:
    async with serving(Limits(echo, SMALL)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GREETING + b"Content-Length: 5000\r\nExpect: 100-continue\r\n\r\n")
        status, _ = await answer(reader)
        assert status == 413
        writer.close()


async def test_a_slow_connection_is_closed() -> None:
    async with serving(Limits(echo, SMALL, patience=0.05)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GREETING + b"Content-Length: 5\r\n\r\nab")
        status, _ = await answer(reader)
        assert status == 408
        assert await reader.read() == b""
        writer.close()


# -- requests at once ------------------------------------------------------------------------------


class Slow:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.go.wait()
        await hello(scope, receive, send)


def owned(owner: str) -> Scope:
    scope = scope_of()
    scope[OWNER] = owner
    return scope


async def test_a_key_has_so_many_requests_open_and_no_more() -> None:
    slow = Slow()
    app = AtOnce(slow, most=2)
    open_ = [asyncio.ensure_future(ask(app, owned("a"))) for _ in range(2)]
    await asyncio.sleep(0)
    refused = await ask(app, owned("a"))
    assert (refused.status, refused.error["code"]) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) >= 1
    other = asyncio.ensure_future(ask(app, owned("b")))
    slow.go.set()
    assert [told.status for told in await asyncio.gather(*open_, other)] == [200] * 3
    assert (await ask(app, owned("a"))).status == 200


async def test_one_that_failed_or_was_given_up_is_open_no_more() -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("broken")

    app = AtOnce(fail, most=1)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await ask(app, owned("a"))
    waiting = AtOnce(Slow(), most=1)
    for _ in range(2):
        task = asyncio.ensure_future(ask(waiting, owned("a")))
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_routes_for_everybody_are_not_counted() -> None:
    slow = Slow()
    app = AtOnce(slow, most=1)
    asked = [asyncio.ensure_future(ask(app, scope_of("/health"))) for _ in range(3)]
    slow.go.set()
    assert [told.status for told in await asyncio.gather(*asked)] == [200] * 3
