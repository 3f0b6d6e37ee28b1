from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from bourn.batch import Ahead


async def all_of(ahead: Ahead[int]) -> list[int]:
    taken = []
    while (item := await ahead.take()) is not None:
        taken.append(item)
    return taken


async def test_everything_comes_once_to_any_number_of_takers() -> None:
    with Ahead(range(500), limit=3) as ahead:
        taken = await asyncio.gather(*(all_of(ahead) for _ in range(4)))
    assert sorted(item for each in taken for item in each) == list(range(500))
    assert await ahead.take() is None


async def test_only_a_little_is_read_ahead() -> None:
    asked: list[int] = []

    def endless() -> Iterator[int]:
        number = 0
        while True:
            asked.append(number)
            yield number
            number += 1

    with Ahead(endless(), limit=5) as ahead:
        for expected in range(20):
            assert await ahead.take() == expected
    assert len(asked) <= 27


async def test_what_the_iterator_raises_comes_after_its_items_to_every_taker() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    with Ahead(broken()) as ahead:
        assert await ahead.take() == 1
        for _ in range(2):
            with pytest.raises(OSError, match="gone"):
                await ahead.take()


async def test_the_loop_goes_on_while_the_iterator_waits() -> None:
    ready = threading.Event()

    def slow() -> Iterator[int]:
        ready.wait(10)
        yield 1

    with Ahead(slow()) as ahead:
        taking = asyncio.create_task(ahead.take())
        await asyncio.sleep(0.01)
        assert not taking.done()
        ready.set()
        assert await taking == 1


async def test_its_thread_ends_when_nobody_takes_any_more() -> None:
    def endless() -> Iterator[int]:
        yield from iter(int, 1)

    with Ahead(endless(), limit=2) as ahead:
        await ahead.take()
        (thread,) = [each for each in threading.enumerate() if each.name == "bourn-ahead"]
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
