"""The least client there can be: bytes out, and the moments at which events come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

Place = int | Path
"""A port of this machine, or a unix socket."""

_END = b"data: [DONE]"


def request_of(body: Mapping[str, Any]) -> bytes:
    """A chat that is asked for, as it goes over the wire."""
    sent = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent


def question(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "stream": True, **more}


@dataclass(slots=True)
class Stream:
    """One that is being read. moments: at which its events came, the empty ones too."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    began: float
    moments: list[float] = field(default_factory=list)
    tail: bytes = b""

    async def read(self, least: int = 1 << 60) -> Stream:
        """Until there were so many events, or to its end."""
        if not self.tail:
            await self._head()
        while len(self.moments) < least and _END not in self.tail:
            data = await self.reader.read(1 << 16)
            now = perf_counter()
            if not data:
                raise RuntimeError(f"the stream broke off after {self.tail!r}")
            ends = data.count(b"\n\n") + (self.tail.endswith(b"\n") and data.startswith(b"\n"))
            self.moments += [now] * ends
            self.tail = (self.tail + data)[-100:]
        return self

    async def _head(self) -> None:
        self.tail = await self.reader.readuntil(b"\r\n\r\n")
        if not self.tail.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"refused: {self.tail + await self.reader.read(2000)!r}")

    def leave(self) -> None:
        self.writer.transport.abort()


async def connect(place: Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(place, int):
        return await asyncio.open_connection("127.0.0.1", place)
    return await asyncio.open_unix_connection(str(place))


async def begin(place: Place, body: Mapping[str, Any]) -> Stream:
    """Ask, on a connection of its own."""
    began = perf_counter()
    reader, writer = await connect(place)
    writer.write(request_of(body))
    return Stream(reader, writer, began)


async def whole(place: Place, body: Mapping[str, Any]) -> Stream:
    """Ask, and read to the end."""
    stream = await begin(place, body)
    await stream.read()
    stream.leave()
    return stream
