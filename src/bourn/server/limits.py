"""How much a client may ask of the server before it is heard: bytes, time, and requests at once."""

from __future__ import annotations

import asyncio
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bourn.errors import RateLimited, RequestTimeout, RequestTooLarge
from bourn.server.asgi import headers
from bourn.server.config import ServerConfig
from bourn.server.keys import OWNER
from bourn.server.refusals import refusal


class Limits:
    """Reads the body of a request, whole, before the application is asked.

    One with more than `config.largest_body` bytes is refused: at once where its head says so, else
    where it goes too far. patience: seconds that a body may take, and as many more as its bytes
    take at `pace` bytes a second. After its body a request is in the application's own hands.
    """

    def __init__(
        self, app: ASGIApp, config: ServerConfig, *, patience: float = 20.0, pace: int = 16 * 1024
    ) -> None:
        self._app = app
        self._largest = config.largest_body
        self._patience = patience
        self._pace = pace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(max(map(_number, headers(scope, b"content-length")), default=0))
            body = await self._body(receive)
        except RequestTooLarge as error:
            await refusal(error)(scope, receive, send)
        except RequestTimeout as error:
            answer = refusal(error)
            answer.headers["connection"] = "close"  # the rest of it is not waited for
            await answer(scope, receive, send)
        else:
            if body is not None:
                await self._app(scope, _beginning_with(body, receive), send)

    async def _body(self, receive: Receive) -> Message | None:
        """The whole body as one message; None where the client has hung up."""
        parts: list[bytes] = []
        size = 0
        begun = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._patience) as patience:
                while (message := await receive())["type"] == "http.request":
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    self._check(size)
                    if not message.get("more_body", False):
                        return {"type": "http.request", "body": b"".join(parts), "more_body": False}
                    patience.reschedule(begun + self._patience + size / self._pace)
        except TimeoutError as late:
            raise RequestTimeout(
                f"the body did not come in time, after {size} bytes", hint="send it faster"
            ) from late
        return None

    def _check(self, size: int) -> None:
        if size > self._largest:
            raise RequestTooLarge(
                f"the body has more than {self._largest} bytes",
                hint="send less, or start the server with a larger limit",
            )


class AtOnce:
    """How many requests of one key may be open at the same time.

    A request is open until its answer has ended, or its client has gone. It stands behind `Keys`.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner: str | None = scope.get(OWNER)
        if owner is None:
            await self._app(scope, receive, send)
        elif self._open[owner] >= self._most:
            error = RateLimited(
                f"{self._most} requests with this key are open already",
                hint="ask again when one of them has ended",
            )
            await refusal(error)(scope, receive, send)
        else:
            await self._counted(owner, scope, receive, send)

    async def _counted(self, owner: str, scope: Scope, receive: Receive, send: Send) -> None:
        self._open[owner] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open[owner] -= 1
            if not self._open[owner]:
                del self._open[owner]


def _beginning_with(body: Message, receive: Receive) -> Receive:
    """The body once, and then whatever the client does: above all, that it hangs up."""
    told = False

    async def first_the_body() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return body

    return first_the_body


def _number(told: str) -> int:
    return int(told) if told.isdecimal() else 0  # the server has refused what is no number
