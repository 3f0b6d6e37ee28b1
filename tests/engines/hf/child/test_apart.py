"""An engine in a process of its own: tiny children without models."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from operator import le
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bourn.engines.berth import new_berth
from bourn.engines.hf.child.apart import Apart
from bourn.engines.hf.child.worker import Config
from bourn.engines.life import Life
from bourn.errors import EngineCrashed, EngineError, LoadFailed, UnsupportedField
from bourn.hub import Hub
from bourn.types import Event, Finished, FinishReason, Piece, Request, text_of
from tests.support.scripted_worker import WORKER, Obedient

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(sys.platform == "win32", reason="sessions and signals"),
]

CONFIG = Config(folder="nowhere")


def ask(script: str, **more: Any) -> Request:
    return Request(prompt=script, max_new_tokens=None, **more)


async def pieces_of(engine: Apart | Obedient, request: Request) -> list[Piece]:
    async with aclosing(engine.generate(request)) as pieces:
        return [piece async for piece in pieces]


def life_of(engine: Apart) -> Life:
    life = engine._child.life
    assert life is not None
    return life


def pid_of(engine: Apart) -> int:
    return life_of(engine).pid


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        os.kill(pid, 0)
        return not stat.exists() or stat.read_text().split(") ")[1][0] != "Z"
    except (ProcessLookupError, FileNotFoundError):  # it may end at any moment
        return False


async def eventually(fact: Callable[[], object], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if fact():
            return True
        await asyncio.sleep(0.01)
    return False


async def count_is(engine: Apart, what: str, number: int) -> bool:
    for _ in range(500):
        if await engine.count(ask(what)) == number:
            return True
        await asyncio.sleep(0.01)
    return False


@asynccontextmanager
async def child(way: str = "obedient", **more: Any) -> AsyncGenerator[Apart, None]:
    engine = Apart(more.pop("config", CONFIG), worker=(*WORKER, way), name="worker", **more)
    try:
        yield engine
    finally:
        await engine.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncGenerator[Apart, None]:
    async with child() as started:
        yield started


# -- as if it were here ----------------------------------------------------------------------------


async def test_it_says_what_it_says_here(engine: Apart) -> None:
    info = await engine.start()
    assert (info.name, info.window, info.notice) == ("scripted", 64, "a notice")
    asked = ask("pieces=30&prompt_steps=2", n=2)
    assert await pieces_of(engine, asked) == await pieces_of(Obedient(), asked)
    assert await engine.count(ask("three words here")) == 3


async def test_what_cannot_travel_is_refused_by_name(engine: Apart) -> None:
    asked = ask("x", engine_options={"logits_processor": [print]})
    with pytest.raises(UnsupportedField, match="`logits_processor`") as caught:
        await pieces_of(engine, asked)
    assert "bourn.hf" in caught.value.hint
    with pytest.raises(UnsupportedField, match="`logits_processor`"):
        await engine.count(asked)


async def test_a_hub_reads_it_as_any_other_engine(engine: Apart) -> None:
    hub = Hub(engine)
    await hub.start()
    reader = hub.open(ask("pieces=100000", stop=("7 8",)))
    events: list[Event] = []
    while batch := await reader.next():
        events += batch
    assert "".join(map(text_of, events)) == "0 1 2 3 4 5 6 "
    assert Finished(FinishReason.STOP, 0, "7 8") in events
    assert await count_is(engine, "running", 0)


async def test_two_hundred_are_left_at_random_moments(engine: Apart) -> None:
    chance = random.Random(11)

    async def left() -> None:
        asked = ask(f"pieces={chance.randint(1, 3000)}&delay={chance.choice(['0', '0.001'])}")
        with suppress(TimeoutError):
            await asyncio.wait_for(pieces_of(engine, asked), chance.random() * 0.1)

    await asyncio.gather(*(left() for _ in range(20)))
    before = await engine.count(ask("memory"))
    for _ in range(10):
        await asyncio.gather(*(left() for _ in range(20)))
    assert await count_is(engine, "running", 0)
    after = await engine.count(ask("memory"))
    assert before is not None
    assert after is not None
    assert after - before < 10 * 2**20
    assert len(await pieces_of(engine, ask("pieces=9"))) == 10


# -- being loaded ----------------------------------------------------------------------------------


async def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    async with child("loader", on_progress=lambda done, total: told.append((done, total))) as it:
        await it.start()
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


async def test_why_it_cannot_be_loaded_is_told_as_it_was_said() -> None:
    async with child("refusing") as it:
        with pytest.raises(LoadFailed, match=r"^no memory$") as caught:
            await it.start()
        assert caught.value.hint == "buy some"
        first = life_of(it)
        assert first.dead
        with pytest.raises(LoadFailed, match="no memory"):
            await it.start()
        assert life_of(it) is not first
        assert it._child.deaths == 2  # so that the next one is waited for


async def test_a_foreign_failure_is_named_and_its_place_is_in_the_log() -> None:
    async with child("foreign") as it:
        with pytest.raises(LoadFailed, match="KeyError: 'weights'"):
            await it.start()
        assert any("scripted_worker.py" in line for line in life_of(it).last_words)


async def test_one_that_dies_while_it_loads_leaves_its_last_words() -> None:
    async with child("dying") as it:
        with pytest.raises(LoadFailed, match=r"(?s)exit code 1.*the last words"):
            await it.start()


async def test_two_who_start_it_get_one_process(engine: Apart) -> None:
    async with child() as it:
        it.spawn()
        pid = pid_of(it)
        first, second = await asyncio.gather(it.start(), it.start())
        assert first == second
        assert pid_of(it) == pid


async def test_a_start_that_nobody_waits_for_any_more_goes_on() -> None:
    async with child() as it:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(it.start(), 0.01)
        pid = pid_of(it)
        await it.start()
        assert pid_of(it) == pid


async def test_it_is_told_what_it_is_in_secret() -> None:
    config = Config(folder="my/folder", dtype="bfloat16", window=77)
    async with child("echo", config=config, berth=new_berth(unix=False)) as it:
        info = await it.start()
    assert (info.name, info.window) == ("my/folder bfloat16", 77)


async def test_rubbish_on_stdout_and_stderr_changes_nothing() -> None:
    async with child("loud") as it:
        assert len(await pieces_of(it, Request(prompt="pieces=5"))) == 6


# -- dying -----------------------------------------------------------------------------------------


async def test_a_kill_in_mid_stream_is_told_to_all_and_the_next_request_is_served() -> None:
    seen: list[str] = []

    async def read(it: Apart) -> None:
        async for piece in it.generate(ask("pieces=30000&delay=0.001")):
            seen.append(piece.text)  # noqa: PERF401 (those before the end count)

    async with child() as it:
        await it.start()
        readers = [asyncio.create_task(read(it)) for _ in range(3)]
        assert await eventually(lambda: len(seen) > 10)
        began = time.monotonic()
        os.kill(pid_of(it), signal.SIGKILL)
        for reader in readers:
            with pytest.raises(EngineCrashed, match=r"worker was killed by signal 9"):
                await reader
        assert time.monotonic() - began < 10
        assert len(await pieces_of(it, ask("pieces=3"))) == 4
        assert it._child.deaths == 0


async def test_a_death_over_a_count_is_told() -> None:
    async with child() as it:
        with pytest.raises(EngineCrashed):
            await it.count(ask("die"))
        assert await it.count(ask("two words")) == 2


async def test_a_child_that_hangs_is_replaced_once_its_line_is_broken() -> None:
    async with child() as it:
        await it.start()
        stopped = pid_of(it)
        os.kill(stopped, signal.SIGSTOP)
        link = it._door.link
        assert link is not None
        link.hang_up("a test")
        await link.end()
        assert len(await pieces_of(it, ask("pieces=3"))) == 4
        assert pid_of(it) != stopped
        assert not alive(stopped)


PARENT = """
import asyncio, sys
from bourn.engines.hf.child.apart import Apart
from bourn.engines.hf.child.worker import Config
from bourn.engines.life import Life
from bourn.types import Request

async def main():
    engine = Apart(Config(folder=""), worker=sys.argv[1:])
    print(engine.spawn().spawn().pid, flush=True)
    asked = Request(prompt="pieces=30000&delay=0.001", max_new_tokens=None)
    async for piece in engine.generate(asked):
        print(piece.text, flush=True)

asyncio.run(main())
"""


def parent(way: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, *WORKER, way], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("way", ["obedient", "sleeping", "deaf"])
async def test_no_orphan_is_left_by_a_parent_that_is_killed(way: str) -> None:
    """In mid-stream; while the model is loaded; and while something keeps Python from running."""
    with parent(way) as started:
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        if way == "obedient":
            assert started.stdout.readline() == "0 \n"
        else:
            await asyncio.sleep(0.3)
        assert alive(pid)
        started.kill()
    assert await eventually(lambda: not alive(pid), 20)


# -- the end ---------------------------------------------------------------------------------------


async def test_closing_ends_all_and_leaves_nothing() -> None:
    def held() -> tuple[int, int]:
        ours = [thread for thread in threading.enumerate() if thread.name.startswith("bourn")]
        return len(ours), len(list(Path("/dev/fd").iterdir()))

    async with child() as it:  # it brings what is made once
        await it.start()
    before = held()
    async with child() as it:
        await it.start()
        folder = it._berth.path
        assert folder is not None
        assert not folder.exists()  # the door is shut behind the child
        reader = asyncio.create_task(pieces_of(it, ask("pieces=30000&delay=0.001")))
        assert await count_is(it, "running", 1)
        pid = pid_of(it)
        await it.aclose()
        assert not alive(pid)
        with pytest.raises(EngineError, match="closed"):
            await reader
        await it.aclose()
        assert not folder.parent.exists()
        for again in (it.start(), it.count(ask("x")), pieces_of(it, ask("x"))):
            with pytest.raises(EngineError, match="closed"):
                await again
        with pytest.raises(EngineError, match="closed"):
            it.spawn()
    assert await eventually(lambda: all(map(le, held(), before))), (held(), before)


async def test_closing_what_never_started_is_nothing() -> None:
    async with child() as it:
        folder = it._berth.path
        assert folder is not None
    assert not folder.parent.exists()


async def test_closing_while_it_loads_ends_that() -> None:
    async with child("sleeping") as it:
        starting = asyncio.create_task(it.start())
        await asyncio.sleep(0.3)
        pid = pid_of(it)
        await it.aclose()
        assert not alive(pid)
        with pytest.raises(EngineError):
            await starting


async def test_a_forgotten_one_is_ended() -> None:
    it = Apart(CONFIG, worker=WORKER)
    await it.start()
    pid = pid_of(it)
    folder = it._berth.path
    assert folder is not None
    del it
    gc.collect()
    assert await eventually(lambda: not alive(pid))
    assert not folder.parent.exists()
