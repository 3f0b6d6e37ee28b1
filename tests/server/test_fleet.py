"""Several models: found by their names, loaded beside one another, and ended together."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psutil
import pytest

from bourn.engines import OnProgress
from bourn.engines.base import Engine
from bourn.engines.hf.child.apart import Apart
from bourn.engines.hf.child.worker import Config
from bourn.engines.scripted import Script, Scripted
from bourn.errors import (
    EngineCrashed,
    LoadFailed,
    ModelNotFound,
    Overloaded,
)
from bourn.generation import Generation
from bourn.server.fleet import Fleet, Offer
from bourn.server.standby import Standby
from bourn.sharing import Key, key_for
from bourn.stream import Reader
from bourn.terms import Terms
from bourn.types import Delta, Done, Event, Request, Sampling
from tests.support.scripted_worker import WORKER

ASK = Request(prompt="Hi")
GREEDY = replace(ASK, sampling=Sampling(temperature=0))
SLOW = Script(["x "] * 200, delay=0.005)


class Gated(Scripted):
    """Loads when its gate is open."""

    def __init__(self, script: Script = SLOW, **facts: Any) -> None:
        super().__init__(script, **facts)
        self.gate = asyncio.Event()

    async def start(self) -> Any:
        await self.gate.wait()
        return await super().start()


def offer(name: str, make: Callable[[], Engine] | Engine, **more: Any) -> Offer:
    def build(_: OnProgress) -> Engine:
        return make() if callable(make) else make

    return Offer(Standby(name, build, **more))


@asynccontextmanager
async def fleet_of(*offers: Offer) -> AsyncIterator[Fleet]:
    fleet = Fleet(offers)
    await fleet.start()
    try:
        yield fleet
    finally:
        await fleet.aclose()


async def everything(reader: Reader, events: list[Event] | None = None) -> list[Event]:
    """All that it tells; `events` has it as it comes."""
    events = [] if events is None else events
    while batch := await reader.next():
        events += batch
    return events


def end(events: Sequence[Event]) -> Done:
    done = events[-1]
    assert isinstance(done, Done)
    return done


def text(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.001)


async def test_each_name_has_a_hub_and_the_first_is_for_who_names_none() -> None:
    one, two = Scripted(Script(["one"])), Scripted(Script(["two"]))
    async with fleet_of(offer("a", one), offer("b", two)) as fleet:
        assert fleet.names == ("a", "b")
        for name, said in (("a", "one"), ("b", "two"), (None, "one")):
            hub = await fleet.hub(name)
            assert text(await everything(hub.open(ASK))) == said
        assert (await fleet.hub("b")).info.name == "b"
        assert await fleet.hub("a") is fleet.hubs["a"]
        with pytest.raises(ModelNotFound, match="no model `c` here") as caught:
            await fleet.hub("c")
        assert caught.value.hint == "there are a, b"


async def test_the_users_settings_are_under_each_request() -> None:
    standby = Standby("a", lambda _: Scripted(Script(["x"])))
    async with fleet_of(Offer(standby, Sampling(temperature=0.3))) as fleet:
        hub = await fleet.hub()
        assert hub.sampling == Sampling(temperature=0.3)


async def test_requests_wait_till_it_is_known_whether_they_may_share_an_answer() -> None:
    known = threading.Event()

    def key() -> Key:
        assert known.wait(10)
        return key_for("this very model")

    engine = Scripted(Script(["x"] * 20, delay=0.001))
    async with fleet_of(Offer(Standby("a", lambda _: engine), key=key)) as fleet:

        async def answer() -> str:
            hub = await fleet.hub()
            return text(await everything(hub.open(GREEDY)))

        asked = [asyncio.create_task(answer()) for _ in range(100)]
        await until(lambda: fleet.ready)
        await asyncio.sleep(0.01)
        assert engine.started == 0
        known.set()
        assert await asyncio.gather(*asked) == ["x" * 20] * 100
        assert engine.started == 1


async def test_where_that_takes_too_long_answers_are_shared_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bourn.server.fleet.LEARNING", 0.01)
    known = threading.Event()

    def key() -> Key:
        assert known.wait(10)
        return key_for("this very model")

    standby = Standby("a", lambda _: Scripted(Script(["x"])))
    async with fleet_of(Offer(standby, key=key)) as fleet:
        hub = await fleet.hub()

        async def origin() -> str:
            reader = hub.open(GREEDY)
            await everything(reader)
            return reader.origin

        assert [await origin() for _ in range(3)] == ["miss"] * 3
        known.set()
        async with asyncio.timeout(20):
            while await origin() == "miss":
                await asyncio.sleep(0.001)
        assert await origin() == "hit"


async def test_a_model_that_cannot_be_read_shares_nothing_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def key() -> Key:
        raise OSError("no such file")

    standby = Standby("a", lambda _: Scripted(Script(["x"])))
    async with fleet_of(Offer(standby, key=key)) as fleet:
        await until(lambda: "its answers are not shared: no such file" in caplog.text)
        assert text(await everything((await fleet.hub()).open(ASK))) == "x"


async def test_it_is_ready_once_all_are_loaded() -> None:
    one, two = Gated(), Gated()
    async with fleet_of(offer("a", one), offer("b", two)) as fleet:
        await asyncio.sleep(0.01)
        assert fleet.states() == {"a": "loading", "b": "loading"}
        one.gate.set()
        await until(lambda: fleet.states()["a"] == "ready")
        assert not fleet.ready
        await fleet.hub("a")  # which is served already
        two.gate.set()
        await until(lambda: fleet.ready)
        await until(lambda: all(hub.info for hub in fleet.hubs.values()))


async def test_requests_wait_for_a_model_that_is_being_loaded() -> None:
    engine = Gated(Script(["here"]))
    async with fleet_of(offer("a", engine)) as fleet:

        async def ask() -> str:
            hub = await fleet.hub("a")
            return text(await everything(hub.open(ASK)))

        asked = [asyncio.create_task(ask()) for _ in range(20)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in asked)
        asked.pop().cancel()
        engine.gate.set()
        assert await asyncio.gather(*asked) == ["here"] * 19


async def test_they_wait_no_longer_than_for_a_slot() -> None:
    engine = Gated()
    async with fleet_of(offer("a", engine, patience=0.01)) as fleet:
        with pytest.raises(Overloaded, match="still being loaded"):
            await fleet.hub()
        engine.gate.set()
        await until(lambda: fleet.ready)
        await fleet.hub()


async def test_one_that_cannot_be_loaded_is_named_and_the_others_serve() -> None:
    def fail() -> Engine:
        raise LoadFailed("no memory", hint="buy some")

    async with fleet_of(offer("a", Scripted(SLOW)), offer("b", fail)) as fleet:
        await until(lambda: fleet.states() == {"a": "ready", "b": "failed"})
        assert not fleet.ready
        assert {name: str(error) for name, error in fleet.failures().items()} == {"b": "no memory"}
        with pytest.raises(LoadFailed, match="no memory"):
            await fleet.hub("b")
        await fleet.hub("a")


async def test_an_unloaded_model_is_ready_and_loaded_again_for_a_request() -> None:
    made: list[Scripted] = []

    def make() -> Engine:
        made.append(Scripted(Script(["again"])))
        return made[-1]

    async with fleet_of(offer("a", make, keep_alive=0.01)) as fleet:
        await until(lambda: fleet.states() == {"a": "unloaded"})
        assert fleet.ready
        hub = await fleet.hub()
        assert text(await everything(hub.open(ASK))) == "again"
        assert len(made) == 2


async def test_a_stream_is_found_again_by_its_id() -> None:
    async with fleet_of(offer("a", Scripted(SLOW)), offer("b", Scripted(SLOW))) as fleet:
        hub = await fleet.hub("b")
        reader = hub.open(ASK, Terms(grace=60))
        assert fleet.find(reader.id) == ("b", hub)
        with pytest.raises(KeyError):
            fleet.find("nothing").hub.attach("nothing")
        reader.cancel()


async def test_each_end_is_told_with_the_name_of_the_model() -> None:
    told: list[tuple[Generation, str]] = []
    async with fleet_of(offer("a", Scripted(Script(["x"])))) as fleet:
        fleet.on_end = lambda generation, name: told.append((generation, name))
        await everything((await fleet.hub()).open(ASK))
        await until(lambda: bool(told))
        assert told[0][1] == "a"
        assert told[0][0].done is not None


async def test_while_draining_nothing_new_begins_and_what_runs_goes_on() -> None:
    async with fleet_of(offer("a", Scripted(SLOW, slots=1))) as fleet:
        hub = await fleet.hub()
        running = [asyncio.create_task(everything(hub.open(ASK))) for _ in range(2)]
        await until(lambda: fleet.live == 2)
        fleet.draining = True
        with pytest.raises(Overloaded) as caught:
            await fleet.hub()
        assert caught.value.retry_after
        assert not fleet.ready
        for events in await asyncio.gather(*running):
            assert end(events).state == "complete"


async def test_broken_off_all_end_with_the_reason_the_queued_too() -> None:
    engine = Scripted(SLOW, slots=2)
    async with fleet_of(offer("a", engine)) as fleet:
        hub = await fleet.hub()
        running = [asyncio.create_task(everything(hub.open(ASK))) for _ in range(9)]
        await until(lambda: engine.running == 2)
        await asyncio.sleep(0.02)
        fleet.break_off(Overloaded("stopped"))
        ends = [end(events) for events in await asyncio.gather(*running)]
        assert {(done.state, str(done.error)) for done in ends} == {("failed", "stopped")}
        assert (engine.started, engine.running, fleet.live) == (2, 0, 0)


async def test_closed_it_leaves_nothing_running() -> None:
    fleet = Fleet([offer("a", Scripted(SLOW)), offer("b", Gated())])
    await fleet.start()
    hub = await fleet.hub("a")
    running = asyncio.create_task(everything(hub.open(ASK)))
    waiting = asyncio.create_task(fleet.hub("b"))
    await until(lambda: fleet.live == 1)
    await fleet.aclose()
    await fleet.aclose()
    assert end(await running).state in {"cancelled", "failed"}
    with pytest.raises(Exception, match="was closed"):
        await waiting
    assert asyncio.all_tasks() == {asyncio.current_task()}


# -- with real processes, and no model in them -----------------------------------------------------


def child(on_progress: OnProgress | None = None) -> Apart:
    return Apart(Config(folder="", slots=8), worker=WORKER, on_progress=on_progress)


def pid_of(engine: Apart) -> int:
    life = engine._child.life
    assert life is not None
    return life.pid


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
async def test_a_kill_under_eight_streams_is_eight_errors_and_the_ninth_is_served() -> None:
    made: list[Apart] = []

    def make() -> Engine:
        made.append(child())
        return made[-1]

    async with fleet_of(offer("a", make)) as fleet:
        hub = await fleet.hub()
        slow = Request(prompt="pieces=1000&delay=0.01")
        heard: list[list[Event]] = [[] for _ in range(8)]
        running = [asyncio.create_task(everything(hub.open(slow), each)) for each in heard]
        await until(lambda: all(map(text, heard)))
        os.kill(pid_of(made[0]), signal.SIGKILL)
        killed = time.monotonic()
        for events in await asyncio.gather(*running):
            done = end(events)
            assert done.state == "failed"
            assert isinstance(done.error, EngineCrashed)
            assert "killed by signal 9" in str(done.error)
            assert text(events)
        assert time.monotonic() - killed < 8
        assert fleet.states() == {"a": "loading"}
        ninth = await everything((await fleet.hub()).open(Request(prompt="pieces=3")))
        assert text(ninth) == "0 1 2 "
        assert fleet.ready
        assert len(made) == 1
        pid = pid_of(made[0])
    assert not psutil.pid_exists(pid)


@pytest.mark.skipif(sys.platform == "win32", reason="looks at processes")
async def test_a_process_is_ended_while_its_model_is_still_loading() -> None:
    made: list[Apart] = []

    def make() -> Engine:
        made.append(Apart(Config(folder=""), worker=(*WORKER, "sleeping")))
        return made[-1]

    async with fleet_of(offer("a", make)) as fleet:
        await until(lambda: bool(made) and made[0]._child.life is not None)
        await asyncio.sleep(0.05)
        pid = pid_of(made[0])
        assert fleet.states() == {"a": "loading"}
    assert not psutil.pid_exists(pid)
