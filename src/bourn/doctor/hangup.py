"""Whether a server stops working when its client hangs up, watched from outside.

A server that tells how many answers it is making (`/slots`, `/metrics`) is asked. Of any other,
only one that answers one request at a time shows it: the next one waits, or does not.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bourn.doctor.finding import CannotTell
from bourn.doctor.raw import exchange, has_text, streaming
from bourn.errors import BournError

if TYPE_CHECKING:
    from bourn.engines.http import Endpoint

Ask = Callable[[int], Mapping[str, Any]]
"""The body that asks for an answer of so many tokens."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds. answer: for a short one. idle: for a server to become free. poll: between looks.

    slack: by which one short answer may be slower than another, for no reason.
    """

    answer: float = 60.0
    idle: float = 5.0
    poll: float = 0.05
    slack: float = 1.0


@dataclass(frozen=True, slots=True)
class HangUp:
    """stopped: whether it did. after: seconds until that was seen. how: what was looked at."""

    stopped: bool
    after: float
    how: str


async def hang_up(wire: Endpoint, ask: Ask, tokens: int, patience: Patience) -> HangUp:
    """Begin an answer of so many tokens, hang up, and watch.

    Raises:
        CannotTell: this server does not show it.
        BournError: it cannot be reached, or breaks off.
    """
    gauge = await _gauge(wire)
    if gauge is not None and await gauge.busy():
        raise CannotTell("the server is answering others just now")
    if gauge is None:
        return await _by_waiting(wire, ask, tokens, patience)
    async with streaming(wire, ask(tokens)) as parts:
        rest = await _pace(parts, patience) * tokens
        if not await gauge.busy():
            raise CannotTell(f"its {gauge.path} does not show what it is doing")
    after = await _until_free(gauge, patience)
    if after is None:
        return HangUp(stopped=False, after=patience.idle, how=gauge.path)
    return _judged(after, rest, gauge.path)


def _judged(after: float, rest: float, how: str) -> HangUp:
    """rest: seconds that the answer would have taken, whoever reads it."""
    if after > rest / 4:
        raise CannotTell("it is so fast that the answer may have been over anyway")
    return HangUp(stopped=True, after=after, how=how)


async def _pace(parts: AsyncIterator[bytes], patience: Patience) -> float:
    """Seconds from the first text to the second."""
    moments: list[float] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(patience.answer):
            async for part in parts:
                if has_text(part):
                    moments.append(perf_counter())
                if len(moments) == 2:
                    return moments[1] - moments[0]
            raise CannotTell("its answer was over before anybody could hang up")
    raise CannotTell(f"no text came of it in {patience.answer:g} seconds")


# -- servers that tell -----------------------------------------------------------------------------

_RUNNING = re.compile(
    r"^(?:vllm:num_requests_running|vllm:num_requests_waiting|sglang:num_running_reqs"
    r"|llamacpp:requests_processing|llamacpp:requests_deferred|tgi_batch_current_size)"
    r"(?:\{[^}]*\})?\s+([0-9.eE+]+)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class _Gauge:
    """path: the page that tells. busy: whether it makes an answer, or has one waiting."""

    path: str
    busy: Callable[[], Awaitable[bool]]


async def _gauge(wire: Endpoint) -> _Gauge | None:
    for path, read in _PAGES.items():
        if await _look(wire, path, read) is not None:
            return _gauge_at(wire, path, read)
    return None


def _gauge_at(wire: Endpoint, path: str, read: Callable[[str], bool | None]) -> _Gauge:
    async def busy() -> bool:
        return bool(await _look(wire, path, read))

    return _Gauge(path, busy)


async def _look(wire: Endpoint, path: str, read: Callable[[str], bool | None]) -> bool | None:
    try:
        async with wire.exchange("GET", path, root=True) as response:
            return (
                read((await response.aread()).decode("utf-8", "replace"))
                if response.is_success
                else None
            )
    except BournError:  # it has no such page, which is nothing to fail for
        return None


def _in_slots(page: str) -> bool | None:
    found = re.findall(r'"is_processing"\s*:\s*(true|false)', page)
    return "true" in found if found else None


def _in_metrics(page: str) -> bool | None:
    found = _RUNNING.findall(page)
    return any(float(count) > 0 for count in found) if found else None


_PAGES: Mapping[str, Callable[[str], bool | None]] = {
    "/slots": _in_slots,
    "/metrics": _in_metrics,
}


async def _until_free(gauge: _Gauge, patience: Patience) -> float | None:
    """Seconds until it is free; None where it never is."""
    start = perf_counter()
    while await gauge.busy():
        if perf_counter() - start > patience.idle:
            return None
        await asyncio.sleep(patience.poll)
    return perf_counter() - start


# -- servers that do not ---------------------------------------------------------------------------


async def _by_waiting(wire: Endpoint, ask: Ask, tokens: int, patience: Patience) -> HangUp:
    """One token is asked for: alone, beside a long answer, and after hanging up on that."""
    alone = await exchange(wire, ask(1), patience.answer)
    if alone.error:
        raise CannotTell(alone.error)
    usual = max(alone.seconds * 4, alone.seconds + patience.slack)
    async with streaming(wire, ask(tokens)) as parts:
        rest = await _pace(parts, patience) * tokens
        beside = await exchange(wire, ask(1), usual)
        if not beside.error:
            raise CannotTell("it answers several at once, and has no /slots or /metrics to look at")
    after = await exchange(wire, ask(1), usual + patience.idle)
    if after.error or after.seconds > usual:
        return HangUp(stopped=False, after=after.seconds, how="the next request")
    return _judged(after.seconds, rest, "the next request")
