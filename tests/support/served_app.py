"""ASGI applications asked by hand, and served for real."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass
class Told:
    """What an application sent. bodies: one for each message."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def error(self) -> Mapping[str, Any]:
        """As clients of OpenAI's API look for it."""
        error: Mapping[str, Any] = json.loads(b"".join(self.bodies))["error"]
        return error

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            self.bodies.append(message["body"])


def scope_of(
    path: str = "/v1/models",
    *,
    method: str = "GET",
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    **more: Any,
) -> Scope:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs]
    return {"type": "http", "method": method, "path": path, "headers": encoded, **more}


async def ask(app: ASGIApp, scope: Scope, *parts: bytes) -> Told:
    """One request, with a body of these parts; the client stays until it is answered."""
    told = Told()
    left = [*parts] or [b""]

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    await app(scope, receive, told.send)
    return told


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that greets whomever is let through."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello", "more_body": False})


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[int]:
    """The application on uvicorn, in this loop; its port."""
    config = uvicorn.Config(
        app, port=0, http="h11", ws="none", lifespan="off", log_level="error", access_log=False
    )
    server = uvicorn.Server(config)
    listening = config.bind_socket()
    task = asyncio.create_task(server.serve([listening]))
    try:
        while not server.started:
            await asyncio.sleep(0.001)
        yield listening.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await task
        listening.close()
