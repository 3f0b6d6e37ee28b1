"""The scripted server of `openai_server`, for programs that run beside the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.openai_server import Answer, LoopbackServer, serving


@contextmanager
def served(*answers: Answer) -> Iterator[LoopbackServer]:
    """The server, in a thread of its own."""
    ready: list[LoopbackServer] = []
    up = threading.Event()
    loop = asyncio.new_event_loop()
    down = asyncio.Event()

    async def serve() -> None:
        async with serving(*answers) as server:
            ready.append(server)
            up.set()
            await down.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert up.wait(10)
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(down.set)
        thread.join(10)
        loop.close()
