"""An engine that is loaded when it is wanted: once for all, anew after a while, until its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import pytest

from bourn.engines import OnProgress
from bourn.engines.base import Engine, ModelInfo
from bourn.engines.scripted import Script, Scripted
from bourn.errors import (
    BournError,
    ConnectionFailed,
    EngineCrashed,
    EngineError,
    LoadFailed,
    Overloaded,
)
from bourn.server.standby import Standby, Trouble
from bourn.types import Piece, Request

ASK = Request(prompt="Hi")
WORDS = Script(["one ", "two ", "three"])


class Loaded(Scripted):
    """gate: what loading waits for. error: what it fails with."""

    def __init__(self, script: Script = WORDS, error: Exception | None = None) -> None:
        super().__init__(script)
        self.gate = asyncio.Event()
        self.gate.set()
        self.error = error
        self.starts = 0
        self.closed = 0

    async def start(self) -> ModelInfo:
        self.starts += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return await super().start()

    async def aclose(self) -> None:
        self.closed += 1


class Yard:
    """Builds engines, and remembers them. how: makes each."""

    def __init__(self, how: Callable[[], Loaded] = Loaded) -> None:
        self.how = how
        self.built: list[Loaded] = []
        self.progress: OnProgress | None = None

    def __call__(self, on_progress: OnProgress) -> Engine:
        self.progress = on_progress
        self.built.append(self.how())
        return self.built[-1]


async def read(engine: Engine) -> str:
    async with aclosing(engine.generate(ASK)) as pieces:
        return "".join([piece.text async for piece in pieces])


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.001)


async def test_it_is_loaded_once_for_all_who_ask() -> None:
    yard = Yard()
    standby = Standby("m", yard)
    assert standby.state == "loading"
    infos = await asyncio.gather(*(standby.start() for _ in range(9)))
    assert {info.name for info in infos} == {"m"}
    assert (len(yard.built), yard.built[0].starts, standby.state) == (1, 1, "ready")
    assert await read(standby) == "one two three"
    assert await standby.count(ASK) == 1
    await standby.aclose()
    assert yard.built[0].closed == 1


async def test_prepared_beforehand_it_is_built_before_there_is_a_loop() -> None:
    yard = Yard()
    standby = Standby("m", yard)
    standby.prepare()
    assert (len(yard.built), yard.built[0].starts) == (1, 0)
    await standby.start()
    assert len(yard.built) == 1
    await standby.aclose()


async def test_who_waits_may_leave_and_the_load_goes_on() -> None:
    yard = Yard()
    standby = Standby("m", yard)
    standby.prepare()
    yard.built[0].gate.clear()
    impatient = asyncio.create_task(standby.start())
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    yard.built[0].gate.set()
    await until(lambda: standby.state == "ready")
    assert yard.built[0].starts == 1
    await standby.aclose()


async def test_nobody_waits_longer_for_a_load_than_they_would_for_a_slot() -> None:
    yard = Yard()
    standby = Standby("m", yard, patience=0.01)
    standby.prepare()
    yard.built[0].gate.clear()
    with pytest.raises(Overloaded, match="m is still being loaded") as caught:
        await standby.start()
    assert caught.value.retry_after
    yard.built[0].gate.set()
    await standby.start()
    await standby.aclose()


# -- when loading fails ----------------------------------------------------------------------------


async def test_a_failed_load_is_the_error_of_all_who_wait_and_of_those_who_come_soon() -> None:
    yard = Yard(lambda: Loaded(error=LoadFailed("no memory", hint="buy some")))
    standby = Standby("m", yard)
    told = await asyncio.gather(*(standby.start() for _ in range(5)), return_exceptions=True)
    assert {str(error) for error in told} == {"no memory"}
    with pytest.raises(LoadFailed, match="no memory"):
        await standby.start()
    assert (len(yard.built), standby.state) == (1, "failed")
    assert isinstance(standby.failure, LoadFailed)
    await until(lambda: yard.built[0].closed == 1)
    await standby.aclose()


async def test_it_is_tried_anew_by_a_request_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bourn.server.standby._LONGEST_PAUSE", 0.01)
    yard = Yard(lambda: Loaded(error=LoadFailed("no memory")))
    standby = Standby("m", yard)
    with pytest.raises(LoadFailed):
        await standby.start()
    await asyncio.sleep(0.01)
    yard.how = Loaded
    await standby.start()
    assert (len(yard.built), standby.state, standby.failure) == (2, "ready", None)
    assert await read(standby) == "one two three"
    await standby.aclose()


async def test_what_cannot_be_built_is_a_failed_load_too() -> None:
    def build(_: OnProgress) -> Engine:
        raise FileNotFoundError("gone")

    standby = Standby("m", build)
    with pytest.raises(FileNotFoundError):
        await standby.start()
    assert standby.state == "failed"
    await standby.aclose()


async def test_an_endpoint_that_is_not_up_yet_is_tried_again_without_being_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bourn.server.standby._LONGEST_PAUSE", 0.01)
    yard = Yard(lambda: Loaded(error=ConnectionFailed("nobody there")))
    standby = Standby("m", yard)
    with pytest.raises(ConnectionFailed):
        await standby.start()
    yard.how = Loaded
    await until(lambda: standby.state == "ready")
    await standby.aclose()


def test_each_failure_is_left_alone_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    trouble = Trouble()
    trouble.check()
    pauses = [trouble.remember(LoadFailed("no")) for _ in range(8)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    now = 59
    with pytest.raises(LoadFailed):
        trouble.check()
    now = 60
    trouble.check()
    trouble.forget()
    assert trouble.remember(LoadFailed("no")) == 1


async def test_an_error_that_is_told_often_does_not_grow() -> None:
    yard = Yard(lambda: Loaded(error=LoadFailed("no memory")))
    standby = Standby("m", yard)
    for _ in range(50):
        with pytest.raises(LoadFailed):
            await standby.start()
    depth, traceback = 0, standby.failure and standby.failure.__traceback__
    while traceback:
        depth, traceback = depth + 1, traceback.tb_next
    assert depth < 10
    await standby.aclose()


# -- deaths ----------------------------------------------------------------------------------------


async def test_a_death_is_told_and_it_is_started_anew_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    death = EngineCrashed("killed", last_words=("out of paper",))
    yard = Yard(lambda: Loaded(Script(["one"], fail_at=1, error=death)))
    standby = Standby("m", yard)
    await standby.start()
    engine = yard.built[0]
    engine.gate.clear()
    told = await asyncio.gather(*(read(standby) for _ in range(8)), return_exceptions=True)
    assert told == [death] * 8
    assert "out of paper" in caplog.text
    assert standby.state == "loading"
    engine._script = WORDS
    ninth = asyncio.create_task(read(standby))
    await asyncio.sleep(0.01)
    assert not ninth.done()
    engine.gate.set()
    assert await ninth == "one two three"
    assert (engine.starts, len(yard.built)) == (2, 1)
    await standby.aclose()


async def test_a_death_that_was_not_seen_is_found_by_the_next_request() -> None:
    yard = Yard()
    standby = Standby("m", yard)
    await standby.start()
    await standby.start()
    assert (yard.built[0].starts, standby.state) == (2, "ready")
    yard.built[0].error = LoadFailed("died, and is not to be started again")
    with pytest.raises(LoadFailed):
        await standby.start()
    assert standby.state == "failed"
    await standby.aclose()


# -- when nobody wants it --------------------------------------------------------------------------


async def test_it_is_unloaded_when_it_was_idle_and_loaded_again() -> None:
    yard = Yard()
    standby = Standby("m", yard, keep_alive=0.02)
    assert await read(standby) == "one two three"
    await until(lambda: standby.state == "unloaded")
    await until(lambda: yard.built[0].closed == 1)
    assert await read(standby) == "one two three"
    assert len(yard.built) == 2
    await until(lambda: standby.state == "unloaded")
    await standby.aclose()
    assert yard.built[1].closed == 1


async def test_it_is_not_unloaded_while_it_works() -> None:
    yard = Yard(lambda: Loaded(Script(["x"] * 30, delay=0.005)))
    standby = Standby("m", yard, keep_alive=0.02)
    assert await read(standby) == "x" * 30
    assert (len(yard.built), yard.built[0].closed) == (1, 0)
    await standby.aclose()


async def test_a_new_one_is_not_loaded_before_the_old_one_has_gone() -> None:
    class Slow(Loaded):
        async def aclose(self) -> None:
            await self.gate.wait()
            await super().aclose()

    yard = Yard(Slow)
    standby = Standby("m", yard, keep_alive=0.01)
    await standby.start()
    yard.built[0].gate.clear()
    await until(lambda: standby.state == "unloaded")
    again = asyncio.create_task(standby.start())
    await asyncio.sleep(0.02)
    assert len(yard.built) == 1
    yard.built[0].gate.set()
    await again
    assert [engine.closed for engine in yard.built] == [1, 0]
    await standby.aclose()


async def test_one_that_fails_to_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(Loaded):
        async def aclose(self) -> None:
            raise OSError("stuck")

    yard = Yard(Stuck)
    standby = Standby("m", yard, keep_alive=0.001)
    await standby.start()
    await until(lambda: "could not be given back" in caplog.text)
    assert standby.state == "unloaded"


# -- the end ---------------------------------------------------------------------------------------


async def told_by(work: AsyncGenerator[Piece, None]) -> tuple[int, BaseException | None]:
    """How many pieces came, and the error after them."""
    count = 0
    try:
        async for _ in work:
            count += 1
    except BournError as error:
        return count, error
    return count, None


async def test_what_runs_is_broken_off_with_the_reason() -> None:
    yard = Yard(lambda: Loaded(Script(["x"] * 100, delay=0.01)))
    standby = Standby("m", yard)
    tasks = [asyncio.create_task(told_by(standby.generate(ASK))) for _ in range(3)]
    await until(lambda: bool(yard.built) and yard.built[0].running == 3)
    await asyncio.sleep(0.03)
    standby.break_off(Overloaded("stopped"))
    for task in tasks:
        count, error = await task
        assert 0 < count < 100
        assert str(error) == "stopped"
        assert task.cancelling() == 0
    assert yard.built[0].running == 0
    with pytest.raises(Overloaded, match="stopped"):
        await standby.start()
    with pytest.raises(Overloaded, match="stopped"):
        await read(standby)
    await standby.aclose()
    assert yard.built[0].closed == 1


async def test_who_waits_for_a_load_is_broken_off_too() -> None:
    yard = Yard()
    standby = Standby("m", yard)
    standby.prepare()
    yard.built[0].gate.clear()
    waiting = asyncio.create_task(standby.start())
    await asyncio.sleep(0.01)
    standby.break_off(Overloaded("stopped"))
    with pytest.raises(Overloaded, match="stopped"):
        await waiting
    await standby.aclose()
    assert yard.built[0].closed == 1


async def test_a_client_who_leaves_is_still_a_cancel() -> None:
    yard = Yard(lambda: Loaded(Script(["x"] * 100, delay=0.01)))
    standby = Standby("m", yard)
    task = asyncio.create_task(read(standby))
    await until(lambda: bool(yard.built) and yard.built[0].running == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert yard.built[0].running == 0
    await standby.aclose()


async def test_closed_it_stays_closed() -> None:
    yard = Yard()
    standby = Standby("m", yard)
    await standby.aclose()
    await standby.aclose()
    with pytest.raises(EngineError, match="was closed"):
        await standby.start()
    assert not yard.built


async def test_nothing_is_left_behind() -> None:
    yard = Yard(lambda: Loaded(error=ConnectionFailed("nobody there")))
    standby = Standby("m", yard)
    with pytest.raises(ConnectionFailed):
        await standby.start()
    await standby.aclose()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


async def test_the_log_tells_how_far_it_is_and_what_went_wrong(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "bourn.server")
    monkeypatch.setattr("bourn.server.standby._BETWEEN_TELLINGS", 0.0)
    yard = Yard()
    standby = Standby("small", yard, keep_alive=0.01)
    standby.prepare()
    assert yard.progress is not None
    yard.progress(1, 4)
    yard.built[0]._info = ModelInfo("x", "scripted", notice="a GPU lies idle")
    await standby.start()
    await until(lambda: standby.state == "unloaded")
    yard.how = lambda: Loaded(error=LoadFailed("no memory", hint="buy some"))
    with pytest.raises(LoadFailed):
        await standby.start()
    told = [record.getMessage().partition(", after 0.0 s")[0] for record in caplog.records]
    assert told == [
        "small: 25% of the weights are loaded",
        "small is ready",
        "small: a GPU lies idle",
        "small is unloaded, after 0.01 s without a request",
        "small is being loaded",
        "small cannot be loaded: no memory (buy some)",
    ]
    await standby.aclose()
