"""What all that stands before the routes has in common: where a request goes, and refusing it.

It is plain ASGI: it hands `receive` and `send` on, so that a hang-up is heard at once by
whoever makes the answer, and no part of an answer waits for another.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

OPEN = frozenset({"/health", "/ready"})
"""The routes for everybody. They tell nothing but whether the server is well."""

METRICS = "/metrics"

API = ("/v1", METRICS, "/docs", "/openapi.json", *OPEN)
"""Where the API is. All else is the page's, where there is one."""

_LINGERS = "bourn lingers"


def route(scope: Scope) -> str:
    """The path as the routes see it."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def is_guarded(scope: Scope) -> bool:
    """Whether it is a request, and not for one of the routes for everybody."""
    return scope["type"] in {"http", "websocket"} and route(scope) not in OPEN


def is_for_page(scope: Scope) -> bool:
    """Whether it is for the page, where there is one; also that the application is to start."""
    if scope["type"] == "lifespan":
        return True
    path = route(scope)
    return not any(path == each or path.startswith(f"{each}/") for each in API)


def linger() -> None:
    """This request may be open for as long as its client is there: no stop has to wait for it."""
    if (task := asyncio.current_task()) is not None:
        task.set_name(_LINGERS)


def lingers(task: asyncio.Task[Any]) -> bool:
    """Whether it answers such a request."""
    return task.get_name() == _LINGERS


def headers(scope: Scope, name: bytes) -> list[str]:
    """The values of a header, by its name in small letters."""
    return [value.decode("latin-1") for known, value in scope["headers"] if known == name]


async def refuse(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Give that answer instead of the application's. A web socket is closed before it is open."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await answer(scope, receive, send)
