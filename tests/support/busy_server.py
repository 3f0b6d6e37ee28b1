"""A server that takes its time: so many tokens, one after the other, wanted or not.

What a client's hang-up does to it is what it is for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field

from tests.support.openai_server import chunk, listing, sse, usage


@dataclass
class BusyServer:
    """stops: whether it does when its client has gone. serial: one answer at a time.

    gauge: the page that tells what it is doing, `/slots` or `/metrics`. pace: seconds a token.
    ends: tokens after which any answer is over.
    """

    stops: bool = True
    serial: bool = False
    gauge: str = ""
    pace: float = 0.005
    ends: int = 100_000
    url: str = ""
    running: int = 0
    made: int = 0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if head.startswith("GET"):
                writer.write(_whole(self._page(head.split()[1])))
            else:
                length = int(head.lower().partition("content-length:")[2].split()[0])
                asked = json.loads(await reader.readexactly(length))
                async with self._turn if self.serial else nullcontext():
                    await self._answer(min(asked["max_tokens"], self.ends), reader, writer)
            writer.close()
            await writer.wait_closed()

    async def _answer(
        self, tokens: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.running += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        writer.write(sse(chunk(None, role="assistant"), done=False))
        for number in range(tokens):
            await asyncio.sleep(self.pace)
            if self.stops and (reader.at_eof() or reader.exception()):
                break
            self.made += 1
            if not writer.is_closing():
                writer.write(sse(chunk(f"{number} "), done=False))
        writer.write(sse(chunk(finish="length"), usage(5, tokens)))
        self.running -= 1

    def _page(self, path: str) -> bytes:
        if path == "/v1/models":
            return bytes(listing("busy").listed[0])  # type: ignore[arg-type]  # bytes, as written
        if path != self.gauge:
            return b""
        if path == "/slots":
            return json.dumps([{"id": 0, "is_processing": self.running > 0}]).encode()
        return b'# TYPE x gauge\nvllm:num_requests_running{model="m"} %d.0\n' % self.running


def _whole(body: bytes) -> bytes:
    status = b"200 OK" if body else b"404 Not Found"
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


@asynccontextmanager
async def busy(server: BusyServer) -> AsyncIterator[BusyServer]:
    """The server, for the time of a test."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await server.serve(reader, writer)
        except asyncio.CancelledError:  # the test is over, and so is this task
            writer.transport.abort()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
