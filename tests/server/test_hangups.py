from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from bourn.server.hangups import while_connected


class Client:
    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.left = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive(self) -> Message:
        if self.left:
            return self.left.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def test_work_that_is_done_in_time() -> None:
    done = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append(1)

    await while_connected(Client().receive, work())
    assert done == [1]


async def test_work_that_fails() -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await while_connected(Client().receive, work())


async def test_a_hang_up_ends_it_and_it_is_waited_for() -> None:
    ended = asyncio.Event()
    client = Client()

    async def work() -> None:
        try:
            client.gone.set()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.set()

    await while_connected(client.receive, work())
    assert ended.is_set()


async def test_the_server_itself_may_end_it() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.sleep(60)
        finally:
            ended.set()

    task = asyncio.ensure_future(while_connected(Client().receive, work()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert len(asyncio.all_tasks()) == 1
