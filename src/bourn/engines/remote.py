"""The engine for any OpenAI-compatible endpoint: hosted, or a server that runs elsewhere.

It finds out what kind of endpoint it is (`dialects`), asks in its dialect, and reads the answer
(`wire.reply`). It knows nothing of sockets and status codes, and is cheap to import.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from bourn.engines.address import Address
from bourn.engines.base import ModelInfo
from bourn.engines.counting import count
from bourn.engines.dialects import (
    LLAMACPP,
    SGLANG,
    VLLM,
    dialect_of,
    dialect_of_host,
    info_of,
    models_in,
    names_of,
)
from bourn.engines.retries import Retries
from bourn.errors import (
    BournError,
    ConnectionFailed,
    EngineError,
    EngineTimeout,
    Interrupted,
    ModelNotFound,
    Overloaded,
)
from bourn.types import Piece, Request
from bourn.wire.dialect import Dialect
from bourn.wire.openai import body_of
from bourn.wire.reply import ReplyReader

if TYPE_CHECKING:
    import httpx2

    from bourn.engines.http import Endpoint

RETRIES = 3
"""How often a request is asked again, where nobody says."""

_LINGER = 2.0
"""Seconds to wait for the usage after the last finish reason: some servers send neither it nor an
end of the stream."""


class Remote:
    """An engine behind a URL. Any number of requests at once, as far as the endpoint goes.

    base_url: `https://host/v1`, `http://…`, or `unix:/path/to.sock`. model: None takes the only one
    there is. api_key: None takes the one in the environment that belongs to the host; "" is none.
    dialect: None finds it out. transport: a ready one; then the environment gives no key. retries:
    how often a request is asked again that failed before its first token. idle_limit: seconds of
    silence that are a failure; None, the default, waits for ever, as long prompts need. called:
    what it is called in messages; None is its address.

    Raises:
        SettingsError: `base_url` is no URL of an endpoint.
    """

    def __init__(  # noqa: PLR0913 (all but the first are by name)
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        dialect: Dialect | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        retries: int = RETRIES,
        idle_limit: float | None = None,
        called: str | None = None,
    ) -> None:
        self._address = Address.of(base_url)
        self._model = model
        self._api_key = api_key
        self._dialect = dialect or dialect_of_host(self._address.host)
        self._transport = transport
        self._retries = retries
        self._idle_limit = idle_limit
        self._called = called
        self._endpoint: Endpoint | None = None
        self._info: ModelInfo | None = None
        self._starting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"Remote({self._address.shown!r}, model={self._model!r})"

    @property
    def info(self) -> ModelInfo:
        """What `start` found out.

        Raises:
            EngineError: it is not started.
        """
        if self._info is None:
            raise EngineError(f"{self!r} is not started", hint="await start() first")
        return self._info

    @property
    def endpoint(self) -> Endpoint:
        """The connection itself, for whoever looks at what goes over the wire."""
        return self._connected()

    async def start(self) -> ModelInfo:
        """Find out what is there. Idempotent.

        Raises:
            ConnectionFailed, Unauthorized, ModelNotFound: with what to do.
        """
        async with self._starting:
            if self._info is None:
                self._info = await self._find_out()
        return self._info

    async def generate(self, request: Request) -> AsyncGenerator[Piece, None]:
        """The pieces of one request. Its stop strings are not sent: see `body_of`.

        A request is asked again only as long as no token has come, and only after failures that may
        pass. The last finish reason comes at the very end, with the final usage.

        Raises:
            BournError: in the server's own words.
        """
        await self.start()
        body = self._body(request)
        retries = Retries(self._retries)
        while True:
            began = False
            try:
                async with aclosing(self._attempt(request, body)) as pieces:
                    async for piece in pieces:
                        began = began or _is_output(piece)
                        yield piece
                return
            except BournError as error:
                if began and isinstance(error, ConnectionFailed):
                    raise _broken_off(error) from error
                if began or not self._may_pass(error):
                    raise
                await retries.wait(error)

    async def count(self, request: Request) -> int | None:
        """Tokens of its prompt; None where the endpoint does not tell."""
        await self.start()
        assert self._model is not None
        assert self._dialect is not None
        return await count(self._connected(), request, self._model, self._dialect)

    async def aclose(self) -> None:
        """Close the connections. Idempotent; `start` opens it anew."""
        endpoint, self._endpoint, self._info = self._endpoint, None, None
        if endpoint is not None:
            await endpoint.aclose()

    # -- an answer ---------------------------------------------------------------------------------

    def _body(self, request: Request) -> dict[str, Any]:
        assert self._model is not None
        assert self._dialect is not None
        return body_of(request, self._model, self._dialect)

    async def _attempt(
        self, request: Request, body: Mapping[str, Any]
    ) -> AsyncGenerator[Piece, None]:
        endpoint = self._connected()
        reader = ReplyReader(request.n, request.logprobs, endpoint.failure)
        path = "/chat/completions" if request.prompt is None else "/completions"
        try:
            async with endpoint.post(path, body) as parts:
                while not reader.done:
                    part = await _next(parts, _LINGER if reader.finished else None)
                    if part is None:
                        break
                    for piece in reader.feed(part):
                        yield piece
        except ConnectionFailed:
            if not reader.finished:
                raise
        for piece in reader.close():
            yield piece

    def _may_pass(self, error: BournError) -> bool:
        """Whether to ask again. The caller's own limit is not stretched by that."""
        if isinstance(error, EngineTimeout):
            return self._idle_limit is None
        return isinstance(error, Overloaded | ConnectionFailed)

    def _connected(self) -> Endpoint:
        if self._endpoint is None:
            from bourn.engines.http import Endpoint  # httpx2 takes 150 ms to import

            self._endpoint = Endpoint(
                self._address,
                api_key=self._api_key,
                transport=self._transport,
                idle_limit=self._idle_limit,
                called=self._called,
            )
        return self._endpoint

    # -- finding out -------------------------------------------------------------------------------

    async def _find_out(self) -> ModelInfo:
        listed = await self._list()
        dialect = self._dialect or dialect_of(listed)
        model = self._pick(listed, dialect)
        about = await self._about(dialect)
        self._dialect = dialect
        self._model = self._model or str(model["id"])
        return info_of(self._model, dialect, model, about)

    async def _list(self) -> Sequence[Mapping[str, Any]]:
        """The models it offers; none where it does not tell, or nothing is to be learnt from it."""
        if self._model is not None and self._dialect is not None and not self._dialect.tells:
            return ()
        retries = Retries(self._retries)
        while True:
            try:
                return models_in(await self._connected().get("/models"))
            except Overloaded as error:
                await retries.wait(error)

    def _pick(self, listed: Sequence[Mapping[str, Any]], dialect: Dialect) -> Mapping[str, Any]:
        """The entry of the model to use, where there is one."""
        if self._model is None:
            return self._only(listed, dialect)
        if not listed:
            return {}
        for model in listed:
            if not _spellings(self._model).isdisjoint(names_of(model)):
                return model
        names = list(dict.fromkeys(name for model in listed for name in names_of(model)))
        near = get_close_matches(self._model, names, 3) or names[:3]
        raise ModelNotFound(
            f"{self._address.shown} has no model {self._model!r}",
            hint=f"it has {', '.join(near)}{_more(names, near)}",
        )

    def _only(self, listed: Sequence[Mapping[str, Any]], dialect: Dialect) -> Mapping[str, Any]:
        if not listed:
            raise ModelNotFound(
                f"{self._address.shown} does not tell its models", hint="name one: URL#model"
            )
        if len(listed) == 1 or dialect in _ONE_MODEL:
            return listed[0]
        names = [str(model["id"]) for model in listed]
        raise ModelNotFound(
            f"{self._address.shown} has {len(names)} models, and none was named",
            hint=f"name one, URL#model: {', '.join(names[:8])}{_more(names, names[:8])}",
        )

    async def _about(self, dialect: Dialect) -> Mapping[str, Any]:
        if dialect.about is None:
            return {}
        try:
            told = await self._connected().get(dialect.about, root=True)
        except BournError:  # good to know, but nothing to fail for
            return {}
        return told if isinstance(told, Mapping) else {}


_ONE_MODEL = (LLAMACPP, VLLM, SGLANG)
"""Servers of one model, which may list adapters of it after it."""


async def _next(parts: AsyncIterator[bytes], limit: float | None) -> bytes | None:
    """The next part of a body; None at its end, or after `limit` seconds."""
    if limit is None:
        return await anext(parts, None)
    try:
        async with asyncio.timeout(limit):
            return await anext(parts, None)
    except TimeoutError:
        return None


def _is_output(piece: Piece) -> bool:
    return piece.tokens > 0 or bool(piece.text) or piece.tool is not None


def _broken_off(error: BournError) -> Interrupted:
    return Interrupted(
        f"the answer broke off: {error}", hint="what came before is kept; ask again for all of it"
    )


def _spellings(name: str) -> set[str]:
    """Ollama's `:latest` may be left out; OpenRouter's variants (`:free`) are not in its list."""
    return {name, f"{name}:latest", name.partition(":")[0]}


def _more(names: Sequence[str], shown: Sequence[str]) -> str:
    return f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
