from __future__ import annotations

import asyncio

import pytest

from bourn.engines.retries import Retries, retry_after
from bourn.errors import ConnectionFailed, Overloaded, RateLimited

BROKEN = ConnectionFailed("gone")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:17:10 GMT"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "9", "retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "soon"}, None),
    ],
)
def test_when_the_server_wants_us_back(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=1000.0) == seconds


def test_delays_are_bounded_by_a_doubling_bound() -> None:
    for _ in range(50):
        retries = Retries(7, total=1000, first=1, most=8)
        delays = [retries.next(BROKEN) for _ in range(8)]
        assert delays.pop() is None
        bounds = (1, 2, 4, 8, 8, 8, 8)
        assert all(delay is not None for delay in delays)
        assert all(0 <= (delay or 0) <= most for delay, most in zip(delays, bounds, strict=True))


def test_delays_differ() -> None:
    delays = {Retries(1).next(BROKEN) for _ in range(20)}
    assert len(delays) > 10


def test_the_servers_word_goes_before() -> None:
    retries = Retries(3, total=10)
    assert retries.next(RateLimited("", retry_after=7.5)) == 7.5
    assert retries.next(Overloaded("", retry_after=2.5)) == 2.5
    assert retries.next(RateLimited("", retry_after=0.5)) is None  # all the time is used up


def test_what_takes_too_long_is_not_waited_for() -> None:
    assert Retries(3, total=10).next(RateLimited("", retry_after=11)) is None


def test_none_at_all() -> None:
    assert Retries(0).next(BROKEN) is None


async def test_giving_up_raises_the_error() -> None:
    retries = Retries(1, first=0)
    await retries.wait(BROKEN)
    with pytest.raises(ConnectionFailed, match="gone"):
        await retries.wait(BROKEN)


async def test_waiting_can_be_cancelled() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await Retries(1).wait(RateLimited("", retry_after=50))
