"""OpenAI's own package, both kinds of its client, unchanged."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

HI: Any = [{"role": "user", "content": "hi"}]

_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # made once, since that takes long; never used


class Clients:
    """Both kinds of client of one server: with `await`, and without."""

    def __init__(self, url: str, key: str = "none", timeout: float = 60) -> None:
        self.awaited = AsyncOpenAI(
            base_url=f"{url}/v1",
            api_key=key,
            max_retries=0,
            timeout=timeout,
            http_client=DefaultAsyncHttpxClient(verify=_TLS),
        )
        self.blocking = OpenAI(
            base_url=f"{url}/v1",
            api_key=key,
            max_retries=0,
            timeout=timeout,
            http_client=DefaultHttpxClient(verify=_TLS),
        )

    async def plain(self, work: Callable[[OpenAI], Any]) -> Any:
        """What people write without `await`, in a thread of its own."""
        return await asyncio.to_thread(work, self.blocking)

    async def aclose(self) -> None:
        await self.awaited.close()
        self.blocking.close()


@asynccontextmanager
async def clients_of(url: str, key: str = "none") -> AsyncIterator[Clients]:
    made = Clients(url, key)
    try:
        yield made
    finally:
        await made.aclose()
