"""HTTP to an endpoint on this machine, over a unix socket or loopback: light, one connection each.

The usual transport costs two to three times the CPU for each event, most of it in layers for TLS,
proxies and pools that nothing here needs. h11 parses, but for bodies in chunks; asyncio reads. It
knows HTTP, and no models.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress

import h11
import httpx2

from bourn.engines.chunked import ChunkedBody

_READ = 64 * 1024


class SocketTransport(httpx2.AsyncBaseTransport):
    """A new connection for each request; closing the response closes it, at once.

    path: a unix socket. None connects to the request's own host and port, without TLS.
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        limits: Mapping[str, float | None] = request.extensions.get("timeout", {})
        connection = _Connection(*await self._connect(request, limits.get("connect")))
        connection.read_limit = limits.get("read")
        try:
            await connection.send(request)
            head = await connection.head()
        except BaseException:  # a cancelled request too must not leave its connection open
            connection.abort()
            raise
        return httpx2.Response(
            head.status_code,
            headers=head.headers.raw_items(),
            stream=_Body(connection, chunked=_is_chunked(head)),
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": head.reason},
        )

    async def _connect(
        self, request: httpx2.Request, limit: float | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(limit):
                if self._path is not None:
                    return await asyncio.open_unix_connection(self._path)
                return await asyncio.open_connection(request.url.host, request.url.port or 80)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout("no connection in time", request=request) from error
        except OSError as error:
            raise httpx2.ConnectError(error.strerror or str(error), request=request) from error


class _Connection:
    """One request and its response. `read_limit`: seconds of silence before it gives up."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)
        self.read_limit: float | None = None

    async def send(self, request: httpx2.Request) -> None:
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        headers = [pair for pair in request.headers.raw if pair[0].lower() != b"connection"]
        headers.append((b"Connection", b"close"))
        head = h11.Request(method=request.method, target=request.url.raw_path, headers=headers)
        self._write(head)
        with suppress(ConnectionError):  # refused before it was read in full: the answer says why
            async for part in request.stream:
                self._write(h11.Data(data=part))
                await self._writer.drain()
        self._write(h11.EndOfMessage())

    def _write(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")

    async def head(self) -> h11.Response:
        with _as_httpx():
            while not isinstance(event := self._http.next_event(), h11.Response):
                if event is h11.NEED_DATA:
                    await self._receive()
        return event

    async def body(self) -> AsyncIterator[bytes]:
        """The body as it comes: whatever one read holds, as one piece."""
        parts: list[bytes] = []
        with _as_httpx():
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Data):
                    parts.append(event.data)
                    continue
                if parts:
                    yield b"".join(parts)
                    parts.clear()
                if event is not h11.NEED_DATA:
                    return
                await self._receive()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The same of a body in chunks."""
        body = ChunkedBody()
        data, _ = self._http.trailing_data  # what has come with the head
        with _as_httpx():
            while True:
                if part := body.feed(data):
                    yield part
                if body.ended:
                    return
                if not (data := await self._read()):
                    raise ValueError("the connection was closed in the middle of the body")

    async def _receive(self) -> None:
        self._http.receive_data(await self._read())

    async def _read(self) -> bytes:
        if self.read_limit is None:
            return await self._reader.read(_READ)
        async with asyncio.timeout(self.read_limit):
            return await self._reader.read(_READ)

    def abort(self) -> None:
        """Hang up without waiting for anything. Idempotent."""
        self._writer.transport.abort()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, connection: _Connection, *, chunked: bool) -> None:
        self._connection = connection
        self._chunked = chunked

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._connection.chunks() if self._chunked else self._connection.body()

    async def aclose(self) -> None:
        self._connection.abort()


def _is_chunked(head: h11.Response) -> bool:
    """Whether its body, which these have none of, is in chunks."""
    return head.status_code not in (204, 304) and (b"transfer-encoding", b"chunked") in head.headers


@contextmanager
def _as_httpx() -> Iterator[None]:
    try:
        yield
    except (h11.RemoteProtocolError, ValueError) as error:
        raise httpx2.RemoteProtocolError(str(error)) from error
    except TimeoutError as error:
        raise httpx2.ReadTimeout("nothing came in time") from error
    except OSError as error:
        raise httpx2.ReadError(error.strerror or str(error)) from error
