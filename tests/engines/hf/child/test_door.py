"""The parent's side: a door, open only while a child is expected, and for that child alone."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bourn.engines.base import ModelInfo
from bourn.engines.berth import Berth, new_berth
from bourn.engines.hf.child.door import Door
from bourn.engines.hf.child.frames import Ended, Failed, Frame, Hello, Loading, Ready, encode
from bourn.errors import ConnectionFailed, EngineError, LoadFailed
from bourn.types import Piece, Request

REQUEST = Request(prompt="x")

unix = pytest.mark.skipif(sys.platform == "win32", reason="unix sockets")
berths = pytest.mark.parametrize(
    "over_unix", [pytest.param(True, marks=unix), False], ids=["unix", "tcp"]
)


class Caller:
    """Somebody at the door, who says whatever the test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def at(cls, berth: Berth) -> Caller:
        if berth.path is not None:
            return cls(*await asyncio.open_unix_connection(str(berth.path)))
        return cls(*await asyncio.open_connection(berth.host, berth.port))

    def say(self, *frames: Frame) -> None:
        self.writer.write(b"".join(map(encode, frames)))

    async def hung_up_on(self) -> bool:
        return await asyncio.wait_for(self.reader.read(), 10) == b""


@asynccontextmanager
async def door_at(berth: Berth) -> AsyncGenerator[tuple[Door, asyncio.Task[bool]], None]:
    """An open door, and somebody who waits behind it."""
    door = Door(berth, None)
    door.open()
    waiting = asyncio.create_task(door.settled())
    await asyncio.sleep(0)
    try:
        yield door, waiting
    finally:
        waiting.cancel()
        door.close()
        berth.remove()


@berths
async def test_a_child_that_proves_itself_is_let_in(over_unix: bool) -> None:
    berth = new_berth(unix=over_unix)
    async with door_at(berth) as (door, waiting):
        child = await Caller.at(berth)
        child.say(Hello(berth.key), Ready(ModelInfo("m", "e", stop=("x" * 5000,))))
        assert await waiting
        assert door.link is not None
        assert door.link.info is not None
        assert door.link.info.name == "m"
        with pytest.raises(OSError):  # noqa: PT011 (the door is shut, however that shows)
            await Caller.at(berth)
        child.writer.close()


async def test_nobody_else_is_let_in() -> None:
    berth = new_berth(unix=False)
    async with door_at(berth) as (_, waiting):
        stranger, odd, thief, loud, silent = [await Caller.at(berth) for _ in range(5)]
        stranger.say(Hello("wrong"), Ready(ModelInfo("evil", "e")))
        odd.say(Hello("\ud800"))
        thief.say(Ready(ModelInfo("evil", "e")))
        loud.writer.write((2000).to_bytes(4, "big") + b"x" * 2000)
        for caller in (stranger, odd, thief, loud):
            assert await caller.hung_up_on()
            caller.writer.close()
        assert not waiting.done()
        child = await Caller.at(berth)
        child.say(Hello(berth.key), Ready(ModelInfo("m", "e")))
        assert await waiting
        assert await silent.hung_up_on()
        silent.writer.close()
        child.writer.close()


@unix
async def test_the_first_word_is_hello_or_the_last() -> None:
    berth = new_berth()
    async with door_at(berth) as (_, waiting):
        caller = await Caller.at(berth)
        caller.say(Ready(ModelInfo("m", "e")))
        assert await caller.hung_up_on()
        assert not waiting.done()
        caller.writer.close()


@unix
async def test_the_socket_is_ours_alone() -> None:
    berth = new_berth()
    assert berth.path is not None
    async with door_at(berth):
        assert stat.S_IMODE(berth.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(berth.path.parent.stat().st_mode) == 0o700


@unix
async def test_opening_again_expects_another_child() -> None:
    berth = new_berth()
    async with door_at(berth) as (door, waiting):
        first = await Caller.at(berth)
        first.say(Hello(), Ready(ModelInfo("first", "e")))
        assert await waiting
        door.open()
        assert door.link is None
        assert await first.hung_up_on()
        again = asyncio.create_task(door.settled())
        await asyncio.sleep(0)
        second = await Caller.at(berth)
        second.say(Hello(), Ready(ModelInfo("second", "e")))
        assert await again
        assert door.link is not None
        assert door.link.info is not None
        assert door.link.info.name == "second"
        for caller in (first, second):
            caller.writer.close()


@unix
async def test_a_child_that_hangs_up_before_it_is_ready_is_not_ready() -> None:
    berth = new_berth()
    async with door_at(berth) as (_, waiting):
        child = await Caller.at(berth)
        child.say(Hello(), Loading(1, 2))
        child.writer.close()
        assert not await waiting


@unix
async def test_a_child_that_says_why_it_cannot_be_loaded() -> None:
    berth = new_berth()
    async with door_at(berth) as (door, waiting):
        child = await Caller.at(berth)
        child.say(Hello(), Failed(None, LoadFailed("no memory", hint="buy some")))
        assert await waiting
        assert door.link is not None
        assert isinstance(door.link.failure, LoadFailed)
        child.writer.close()


@unix
async def test_a_child_that_says_rubbish_is_hung_up_on_and_that_is_told() -> None:
    berth = new_berth()
    async with door_at(berth) as (door, waiting):
        child = await Caller.at(berth)
        child.say(Hello(), Ready(ModelInfo("m", "e")), Ended(99), Failed(99, LoadFailed("who?")))
        assert await waiting
        link = door.link
        assert link is not None
        asked = asyncio.create_task(anext(link.ask(REQUEST)))
        counted = asyncio.create_task(link.count(REQUEST))
        await asyncio.sleep(0.01)
        child.writer.write(b"\0\0\0\2{}")
        for task in (asked, counted):
            with pytest.raises(ConnectionFailed, match="hung up: a frame that cannot be read"):
                await task
        assert link.gone
        with pytest.raises(ConnectionFailed):
            await link.count(REQUEST)
        with pytest.raises(ConnectionFailed):
            await anext(link.ask(REQUEST))
        child.writer.close()


@unix
async def test_closing_tells_those_who_wait_why() -> None:
    berth = new_berth()
    async with door_at(berth) as (door, waiting):
        child = await Caller.at(berth)
        child.say(Hello(), Ready(ModelInfo("m", "e")))
        assert await waiting
        assert door.link is not None
        pieces = door.link.ask(REQUEST)
        asked: asyncio.Task[Piece] = asyncio.create_task(anext(pieces))
        await asyncio.sleep(0.01)
        door.close(EngineError("closed"))
        with pytest.raises(EngineError, match="closed"):
            await asked
        child.writer.close()


@unix
def test_a_place_that_is_taken_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    missing = Berth(path=tmp_path / "missing" / "s.sock", owner=os.getpid())
    with pytest.raises(OSError, match="No such file"):
        Door(missing, None).open()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            Door(Berth(port=taken.getsockname()[1]), None).open()


def test_the_parent_imports_no_model() -> None:
    program = (
        "import sys, bourn.engines.hf.child.apart\n"
        "assert not {'torch', 'transformers', 'numpy', 'tokenizers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20)
