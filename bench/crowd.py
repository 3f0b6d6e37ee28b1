"""Many clients in a process of their own, each of which reads one stream as fast as it comes."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bench.wire import request_of

_MOST = 4_000_000  # delays that there is room for
_EVENTS, _LIVE, _BROKEN = range(3)


class Crowd:
    """What is known of it from outside."""

    def __init__(self, numbers: Any, delays: Any) -> None:
        self._numbers = numbers
        self._delays = delays

    @property
    def events(self) -> int:
        """How many have come to all of them so far."""
        return int(self._numbers[_EVENTS])

    @property
    def live(self) -> int:
        """Streams that have begun, and go on."""
        return int(self._numbers[_LIVE] - self._numbers[_BROKEN])

    def delays(self, first: int, last: int) -> list[float]:
        """Seconds that events number `first` to `last` took, where their texts say when they
        were made."""
        return list(self._delays[first:last])


@contextmanager
def crowd(
    port: int, size: int, body: Mapping[str, Any], *, stamped: bool = False, seconds: float = 30
) -> Iterator[Crowd]:
    """So many clients, who read, and hang up in the end.

    They are waited for so many seconds; who has not begun by then is not among the `live`.

    stamped: each text begins with the nanosecond at which it was made.
    """
    spawning = multiprocessing.get_context("spawn")
    numbers = spawning.Array("q", 3, lock=False)
    delays = spawning.Array("d", _MOST if stamped else 1, lock=False)
    told = (port, size, request_of(body), numbers, delays if stamped else None)
    process = spawning.Process(target=_run, args=told, daemon=True)
    process.start()
    try:
        end = time.monotonic() + seconds
        while numbers[_LIVE] < size and time.monotonic() < end:
            time.sleep(0.05)
        yield Crowd(numbers, delays)
    finally:
        process.kill()
        process.join()


def _run(port: int, size: int, request: bytes, numbers: Any, delays: Any) -> None:
    asyncio.run(_live(port, size, request, numbers, delays))


async def _live(port: int, size: int, request: bytes, numbers: Any, delays: Any) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(size):
        await loop.create_connection(lambda: _Client(request, numbers, delays), "127.0.0.1", port)
        await asyncio.sleep(0.001)
    await asyncio.Event().wait()


class _Client(asyncio.Protocol):
    def __init__(self, request: bytes, numbers: Any, delays: Any) -> None:
        self._request = request
        self._numbers = numbers
        self._delays = delays
        self._begun = False
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the protocol's)
        self._numbers[_BROKEN] += 1

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        data = self._rest + data
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            self._rest = data
            return
        self._rest = data[end:]
        events = data[:end]
        self._numbers[_LIVE] += not self._begun
        self._begun = True
        if self._delays is None:
            self._numbers[_EVENTS] += events.count(b"\n\n")
            return
        for text in events.split(b'"content":"')[1:]:
            stamp = text.partition(b" ")[0]
            if stamp.isdigit():
                self._delays[self._numbers[_EVENTS] % _MOST] = (now - int(stamp)) / 1e9
                self._numbers[_EVENTS] += 1
