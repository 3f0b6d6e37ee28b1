"""The light transport, as any user of httpx meets it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from bourn.engines.sockets import SocketTransport
from tests.support.openai_server import JSON, Answer, Cue, serving


def client(transport: SocketTransport | None = None) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=transport or SocketTransport())


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
async def test_a_body_in_every_framing(framing: str) -> None:
    answer = Answer([b'{"a"', b": 1}"], 201, JSON | {"X-Twice": "1"}, framing=framing)
    async with serving(answer) as server, client() as http:
        got = await http.post(server.url, content=b"x" * 100_000, headers={"A": "b"})
        assert (got.status_code, got.json(), got.headers["x-twice"]) == (201, {"a": 1}, "1")
        assert got.reason_phrase == "Created"
        (asked,) = server.requests
        assert asked.body == b"x" * 100_000
        assert asked.headers["a"] == "b"
        assert asked.headers["connection"] == "close"


async def test_over_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    async with serving(Answer(b"hi"), socket=path) as server:
        async with client(SocketTransport(str(path))) as http:
            got = await http.post("http://any.name/some/path?q=1", content=b"")
        assert got.text == "hi"
        assert server.requests[0].path == "/some/path?q=1"
        assert server.requests[0].headers["host"] == "any.name"


async def test_parts_come_as_they_are_sent() -> None:
    more = asyncio.Event()
    async with (
        serving(Answer([b"a", more, b"b"])) as server,
        client() as http,
        http.stream("POST", server.url) as got,
    ):
        parts = got.aiter_raw()
        assert await anext(parts) == b"a"
        more.set()
        assert await anext(parts) == b"b"
        assert await anext(parts, None) is None


async def test_an_informal_head_is_no_head() -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    async with serving(Answer(b"hi", before=[hint])) as server, client() as http:
        assert (await http.post(server.url)).text == "hi"


async def test_a_refusal_before_the_body_was_read_is_an_answer() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with client() as http:
            try:
                got = await http.post(f"http://127.0.0.1:{port}/", content=b"x" * 10_000_000)
                assert (got.status_code, got.text) == (413, "no")
            except httpx2.ReadError:  # the system may throw the answer away with the connection
                pass


FAULTS: dict[str, tuple[Answer, type[httpx2.TransportError]]] = {
    "cut before the head": (Answer(before=[Cue.ABORT]), httpx2.TransportError),
    "cut in the body": (Answer([b"a", Cue.ABORT]), httpx2.TransportError),
    "no HTTP": (Answer(before=[b"what?\r\n\r\n"]), httpx2.RemoteProtocolError),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_faults_have_the_usual_names(
    fault: tuple[Answer, type[httpx2.TransportError]],
) -> None:
    answer, kind = fault
    async with serving(answer) as server, client() as http:
        with pytest.raises(kind):
            await http.post(server.url)


async def test_nobody_there(tmp_path: Path) -> None:
    async with serving() as server:
        url = server.url
    with pytest.raises(httpx2.ConnectError):
        await client().get(url)
    with pytest.raises(httpx2.ConnectError):
        await client(SocketTransport(str(tmp_path / "none"))).get(url)


async def test_limits() -> None:
    async with serving(Answer([b"a", Cue.HANG])) as server, client() as http:
        with pytest.raises(httpx2.ReadTimeout):
            await http.post(server.url, timeout=0.05)
        await server.hung_up.wait()


async def test_a_connection_has_a_limit_of_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(httpx2.ConnectTimeout):
            await client().post(url, timeout=httpx2.Timeout(None, connect=0.0))


async def test_a_response_that_is_closed_early_hangs_up() -> None:
    async with serving(Answer([b"a", Cue.HANG])) as server, client() as http:
        async with http.stream("POST", server.url):
            assert not server.hung_up.is_set()
        async with asyncio.timeout(20):
            await server.hung_up.wait()
