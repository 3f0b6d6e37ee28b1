"""What all that stands before the routes has in common: where a request goes, and refusing it.

It is plain ASGI: it hands `receive` and `send` on, so that a hang-up is heard at once by
whoever makes the answer, and no part of an answer waits for another.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

OPEN = frozenset({"/health", "/ready"})
"""The routes for everybody. They tell nothing but whether the server is well."""

METRICS = "/metrics"


def route(scope: Scope) -> str:
    """The path as the routes see it."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def is_guarded(scope: Scope) -> bool:
    """Whether it is a request, and not for one of the routes for everybody."""
    return scope["type"] in {"http", "websocket"} and route(scope) not in OPEN


def headers(scope: Scope, name: bytes) -> list[str]:
    """The values of a header, by its name in small letters."""
    return [value.decode("latin-1") for known, value in scope["headers"] if known == name]


async def refuse(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Give that answer instead of the application's. A web socket is closed before it is open."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await answer(scope, receive, send)
