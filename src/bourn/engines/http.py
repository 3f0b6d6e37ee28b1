"""One endpoint over HTTP: its client, its key, and its failures as ours.

It knows no models and no chunks: JSON objects and bytes pass through it.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import httpx2
import jiter

from bourn.engines.address import Address
from bourn.engines.retries import retry_after
from bourn.engines.sockets import SocketTransport
from bourn.errors import (
    BournError,
    ConnectionFailed,
    EngineError,
    EngineTimeout,
    SettingsError,
)
from bourn.wire.failures import failure_of

__all__ = ["Endpoint", "SocketTransport"]

CONNECT_LIMIT = 10.0
"""Seconds to wait for a connection. For the first token there is no limit unless asked for."""

_SETTLE = 0.05  # seconds for the end of a body that has said all, so that its connection is kept
_REFUSAL = 64 * 1024  # bytes of an error's body that are read
_REFUSAL_LIMIT = 5.0  # seconds for them


class Endpoint:
    """An address with a client of its own.

    api_key: None takes it from the environment, by host; "" is none. transport: a ready one; then
    the environment gives neither key nor proxy. idle_limit: seconds of silence that are a failure;
    any byte starts them anew. called: what it is called in messages; None is its address.
    """

    def __init__(
        self,
        address: Address,
        *,
        api_key: str | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        idle_limit: float | None = None,
        called: str | None = None,
    ) -> None:
        self._address = address
        self._called = called or address.shown
        if api_key is None and transport is None:
            api_key = address.key(os.environ)
        self._key = _checked_key(api_key)
        if transport is None and address.plain_local:
            transport = SocketTransport(address.socket)
        self._pooled = not isinstance(transport, SocketTransport)
        self._client = self._build(transport, idle_limit)

    def _build(
        self, transport: httpx2.AsyncBaseTransport | None, idle_limit: float | None
    ) -> httpx2.AsyncClient:
        try:
            return httpx2.AsyncClient(
                transport=transport,
                headers=self._headers(),
                params=self._address.query or None,
                timeout=httpx2.Timeout(None, connect=CONNECT_LIMIT, read=idle_limit),
                limits=httpx2.Limits(max_connections=None),
            )
        except (ImportError, ValueError, httpx2.InvalidURL) as error:  # it may hold a password
            raise SettingsError(
                "the proxy named in the environment cannot be used",
                hint="see HTTPS_PROXY, HTTP_PROXY and ALL_PROXY; NO_PROXY takes hosts out",
            ) from error

    def _headers(self) -> dict[str, str]:
        headers = {
            "User-Agent": "bourn",
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",  # what compresses a stream also holds it back
        }
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        elif self._address.login is not None:
            headers["Authorization"] = self._address.login
        return headers

    async def get(self, path: str, *, root: bool = False) -> Any:
        """The JSON at a path below the base URL, or below the server's root.

        None where there is no such path, or no JSON.

        Raises:
            BournError: it is refused, or cannot be reached.
        """
        return await self._json("GET", self._base(root=root) + path, None)

    async def is_up(self, path: str) -> bool:
        """Whether there is a good answer at a path below the server's root.

        Raises:
            BournError: there is none at all.
        """
        with self._mapped():
            async with self._client.stream("GET", self._base(root=True) + path) as response:
                return response.is_success

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """What the server answers to a JSON body, at a path below its root. As `get`."""
        return await self._json("POST", self._base(root=True) + path, _written(body))

    def _base(self, *, root: bool) -> str:
        return self._address.root if root else self._address.url

    async def _json(self, method: str, url: str, content: bytes | None) -> Any:
        with self._mapped():
            async with self._client.stream(method, url, content=content) as response:
                if response.status_code in (404, 405, 501):
                    return None
                if not response.is_success:
                    raise await self._refusal(response)
                body = await response.aread()
        try:
            return jiter.from_json(body)
        except ValueError:
            return None

    @asynccontextmanager
    async def post(
        self, path: str, body: Mapping[str, Any]
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The bytes of an answer as they come. Leaving early hangs up at once.

        Raises:
            BournError: it is refused, cannot be reached, or breaks off while it is read.
        """
        content = _written(body)
        url = self._address.url + path
        with self._mapped():
            async with self._client.stream("POST", url, content=content) as response:
                if not response.is_success:
                    raise await self._refusal(response)
                packed = response.headers.get("content-encoding", "identity") != "identity"
                parts = response.aiter_bytes() if packed else response.aiter_raw()
                yield parts
                if self._pooled:
                    await _settle(parts)

    @asynccontextmanager
    async def exchange(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, root: bool = False
    ) -> AsyncGenerator[httpx2.Response]:
        """A response with its head, whatever its status: for whoever looks at the wire itself.

        path: below the base URL, or below the server's root. Leaving early hangs up at once.

        Raises:
            BournError: the endpoint cannot be reached, or breaks off while it is read.
        """
        content = None if body is None else _written(body)
        with self._mapped():
            url = self._base(root=root) + path
            async with self._client.stream(method, url, content=content) as response:
                yield response

    def failure(self, status: int | None, told: str, after: float | None = None) -> BournError:
        """The error for what the server said, without our key in case that it repeats it."""
        if self._key:
            told = told.replace(self._key, "<key>")
        return failure_of(status, told, where=self._called, retry_after=after)

    async def _refusal(self, response: httpx2.Response) -> BournError:
        told = bytearray()
        with suppress(httpx2.TransportError, TimeoutError):
            async with asyncio.timeout(_REFUSAL_LIMIT):
                async for part in response.aiter_bytes():
                    told += part
                    if len(told) > _REFUSAL:
                        break
        after = retry_after(response.headers, time.time())
        return self.failure(response.status_code, told.decode("utf-8", "replace"), after)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """Foreign errors as ours. None of their texts holds a URL."""
        where = self._called
        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise ConnectionFailed(
                f"{where} cannot be reached: {_reason(error)}",
                hint="is it running, and is the URL right?",
            ) from error
        except httpx2.TimeoutException as error:
            raise EngineTimeout(
                f"{where} was silent for too long", hint="allow it more time, or shorten the prompt"
            ) from error
        except httpx2.TransportError as error:
            raise ConnectionFailed(
                f"the connection to {where} broke: {error}", hint="ask again"
            ) from error
        except httpx2.RequestError as error:
            raise EngineError(f"{where} sent what cannot be read: {error}") from error

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
        await self._client.aclose()


def _written(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


async def _settle(parts: AsyncIterator[bytes]) -> None:
    """Read the end of a body, if it comes now: only then its connection can be used again."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_SETTLE):
            async for _ in parts:
                pass


def _reason(error: BaseException) -> str:
    """The system's own words for why there is no connection, from as deep as they are."""
    words = str(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno:
            words = os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
        cause = cause.__cause__ or cause.__context__
    return words


def _checked_key(key: str | None) -> str | None:
    key = key and key.strip()
    if key and not (key.isascii() and key.isprintable()):
        raise SettingsError("the key holds characters that no key has", hint="copy it again")
    return key or None
