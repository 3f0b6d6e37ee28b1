"""One request on a connection of its own, read as it comes, and left whenever the test likes."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Self

from tests.support.scripted_site import Frame


class Connection:
    """Plain asyncio and bytes, so that nothing is read that was not asked for.

    status, headers: of the response, once `head` was awaited.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._reader = reader
        self._writer = writer

    @classmethod
    async def ask(
        cls,
        port: int,
        path: str,
        told: Any = None,
        *,
        method: str = "",
        buffer: int | None = None,
        **headers: str,
    ) -> Connection:
        """Send a request to this machine. A GET without a body, else a POST.

        buffer: bytes that the kernel may hold of the answer, about.
        """
        body = b"" if told is None else json.dumps(told).encode()
        named = {"Host": "x", "Content-Type": "application/json", "Content-Length": str(len(body))}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method or ('POST' if body else 'GET')} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in named.items()]
        reader, writer = await _connected(port, buffer)
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        return cls(reader, writer)

    async def head(self) -> Connection:
        """Wait for the head of the response."""
        self.status = int((await self._reader.readline()).split()[1])
        while (line := (await self._reader.readline()).decode("latin-1").strip()) != "":
            name, _, value = line.partition(": ")
            self.headers[name.lower()] = value
        return self

    async def frames(self) -> AsyncIterator[Frame]:
        """The events of a stream up to its `[DONE]`, or until the connection breaks."""
        number, id_ = 0, ""
        with suppress(ConnectionError):
            async for (
                line
            ) in self._reader:  # lines of the framing around end in \r\n, and have no name
                if line.startswith(b"id: "):
                    id_ = line[4:-1].decode()
                    number = int(id_.rpartition(":")[2])
                elif line.startswith(b"data: "):
                    yield Frame(line[6:-1].decode(), id_, number)
                    number, id_ = 0, ""
                    if line == b"data: [DONE]\n":
                        return

    async def json(self) -> Any:
        """The whole body of an answer that is no stream."""
        if not self.status:
            await self.head()
        return json.loads(await self._reader.readexactly(int(self.headers["content-length"])))

    async def some(self, most: int) -> bytes:
        """Bytes as they lie there, at most so many; none at the end."""
        return await self._reader.read(most)

    def hang_up(self, *, reset: bool = False) -> None:
        """Be gone at once, whatever is on its way; reset: and not in order. Idempotent."""
        if reset:
            now = struct.pack("ii", 1, 0)
            self._writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, now
            )
        self._writer.transport.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()


async def _connected(
    port: int, buffer: int | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connected = socket.socket()
    connected.setblocking(False)
    if buffer is not None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=connected, limit=buffer or 2**20)


def text_in(frame: Frame) -> str:
    """What a frame adds to the answer of a chat."""
    if frame.data == "[DONE]":
        return ""
    chunk = json.loads(frame.data)
    assert "error" not in chunk, chunk
    return "".join(each["delta"].get("content") or "" for each in chunk["choices"])
