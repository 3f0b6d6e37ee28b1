"""When to ask an endpoint again. It knows no connection and no engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from bourn.errors import BournError, Overloaded


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the server wants us to wait; None where it does not say. now: since 1970."""
    said = headers.get("retry-after", "").strip()
    try:
        if milliseconds := headers.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        return max(0.0, float(said)) if said else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - now)
    except ValueError:
        return None


class Retries:
    """How often to ask again, and how long to wait before: exponentially longer, with full jitter.

    The server's own Retry-After goes before. Where it asks for more than is left of `total` there
    is no waiting at all: asking sooner than told would be in vain.

    retries: how often. total: seconds of waiting in all. first, most: seconds, the jitter's bounds.
    """

    def __init__(
        self, retries: int, *, total: float = 60.0, first: float = 0.5, most: float = 8.0
    ) -> None:
        self._left = retries
        self._bound = first
        self._most = most
        self._seconds = total

    async def wait(self, error: BournError) -> None:
        """Wait before asking again; raises `error` where it is time to give up."""
        delay = self.next(error)
        if delay is None:
            raise error
        await asyncio.sleep(delay)

    def next(self, error: BournError) -> float | None:
        """Seconds to wait after `error`; None to give up."""
        told = error.retry_after if isinstance(error, Overloaded) else None
        delay = random.uniform(0, self._bound) if told is None else told  # noqa: S311 (jitter)
        if self._left <= 0 or delay > self._seconds:
            return None
        self._left -= 1
        self._seconds -= delay
        self._bound = min(self._most, 2 * self._bound)
        return delay
