"""The page over a scripted engine, served for real in this loop, and a browser's requests to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from bourn.engines.scripted import Script, Scripted
from bourn.server.app import application
from bourn.server.config import ServerConfig, WebConfig
from bourn.server.fleet import Fleet, Offer
from bourn.server.life import Server
from bourn.server.listening import listen
from bourn.server.standby import Standby
from bourn.web.mount import site


@dataclass
class WebSite:
    """A server with a page, and a client that keeps cookies as a browser does."""

    client: httpx2.AsyncClient
    fleet: Fleet
    server: Server

    async def call(self, session: str, *data: Any) -> AsyncGenerator[dict[str, Any], None]:
        """The messages of the page's first function, as Gradio's own script gets them."""
        body = {"data": [*data], "fn_index": 0, "session_hash": session}
        joined = await self.client.post("/gradio_api/queue/join", json=body)
        joined.raise_for_status()
        where = f"/gradio_api/queue/data?session_hash={session}"
        async with self.client.stream("GET", where) as response:
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    message = json.loads(line[5:])
                    yield message
                    if message["msg"] == "process_completed":
                        return


@asynccontextmanager
async def web_site(
    store: Path,
    page: Callable[..., Any] | None = None,
    config: ServerConfig = ServerConfig(),  # noqa: B008 (frozen)
    script: Script = Script(["Hel", "lo"]),  # noqa: B008 (frozen)
) -> AsyncIterator[WebSite]:
    fleet = Fleet([Offer(Standby("m", lambda _: Scripted(script)))])
    app = application(fleet, config, site(fleet, config, WebConfig(store), page))
    listener = listen("127.0.0.1", 0)
    listening = asyncio.Event()
    server = Server(app, listening.set)
    await fleet.start()
    serving = asyncio.create_task(server.serve([listener.socket]))
    limits = httpx2.Limits(max_connections=200)
    try:
        await listening.wait()
        async with httpx2.AsyncClient(base_url=listener.url, timeout=20, limits=limits) as client:
            yield WebSite(client, fleet, server)
            server.close()
            await serving
    finally:
        serving.cancel()
        await fleet.aclose()
        listener.close()
