"""A blocking iterator for a loop that must not wait: a thread of its own reads a little ahead."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _End:
    error: Exception | None = None


class Ahead(Generic[T]):
    """Its items, in order, for any number of takers. To be used in a `with` block, in a loop.

    items: is asked for the next one in the thread only. limit: how many are read ahead.
    """

    def __init__(self, items: Iterable[T], limit: int = 64) -> None:
        self._items = items
        self._room = threading.Semaphore(limit)
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[T | _End] = asyncio.Queue()

    async def take(self) -> T | None:
        """The next item, None after the last.

        Raises:
            Exception: what the iterator raised, in the place of its next item.
        """
        item = await self._queue.get()
        if isinstance(item, _End):
            self._queue.put_nowait(item)  # for the other takers
            if item.error is not None:
                raise item.error
            return None
        self._room.release()
        return item

    def __enter__(self) -> Self:
        # a daemon: nobody can wake a thread that waits for a terminal or a pipe
        threading.Thread(target=self._read, name="bourn-ahead", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._room.release()

    def _read(self) -> None:
        end = _End()
        try:
            for item in self._items:
                self._room.acquire()
                if self._closed:
                    return
                self._put(item)
        except Exception as error:  # noqa: BLE001 (it is the takers', whatever it is)
            end = _End(error)
        self._put(end)

    def _put(self, item: T | _End) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody takes any more
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
