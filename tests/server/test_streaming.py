"""The event stream as a connection: its head, its silences, its ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bourn.engines.scripted import Script, Scripted
from bourn.errors import EngineCrashed, LoadFailed
from bourn.journal.memory import MemoryJournals
from bourn.server.config import ServerConfig
from tests.support.scripted_site import CHAT, HI, TEXT, frames, site

STREAM = HI | {"stream": True}
FOREVER = Script(["x "] * 1_000_000, delay=0.001)
HASTY = ServerConfig(hold=0.02, ping=0.02)


async def test_the_head_waits_for_the_first_event() -> None:
    async with site(Script(["a"], delay=0.05, prompt_steps=5, prompt_delay=0.005)) as server:
        call = server.begin(CHAT, STREAM)
        await asyncio.sleep(0.03)
        assert call.told.status == 0
        await call.whole()
    assert call.told.status == 200
    assert len(call.told.bodies) >= 1
    assert b'"role":"assistant"' in call.told.bodies[0]
    assert b'"content":"a"' in call.told.bodies[0]


async def test_but_not_for_ever_and_then_a_failure_is_in_the_stream() -> None:
    script = Script(["a"], delay=0.1, fail_at=0, prompt_steps=4, prompt_delay=0.03)
    async with site(script, config=HASTY) as server:
        call = server.begin(CHAT, STREAM)
        await call.until(lambda: call.told.status)
        assert call.told.status == 200
        await call.whole()
    assert call.text.startswith(": ")
    assert [chunk["error"]["code"] for chunk in call.chunks] == ["engine_error"]


async def test_silence_is_broken_by_comments_that_are_no_events() -> None:
    async with site(Script(["a", "b"], delay=0.15), config=HASTY) as server:
        call = await server.ask(CHAT, STREAM)
    assert call.text.count(": wait\n\n") >= 4
    assert len(frames(call.text)) == 5
    assert all(body.endswith(b"\n\n") for body in call.told.bodies if body)


async def test_no_comments_while_there_is_something_to_tell() -> None:
    config = ServerConfig(hold=5, ping=0.2)
    async with site(Script(["a"] * 50, delay=0.01), config=config) as server:
        call = await server.ask(CHAT, STREAM)
    assert ": wait" not in call.text


async def test_a_ping_of_nothing_is_none() -> None:
    async with site(Script(["a"], delay=0.1), config=ServerConfig(hold=0.01, ping=0)) as server:
        call = await server.ask(CHAT, STREAM)
    assert call.text.count(": wait") == 1  # with the head
    assert len(frames(call.text)) == 4


class Loading(Scripted):
    """Loads when it is let."""

    def __init__(self, script: Script, error: Exception | None = None) -> None:
        super().__init__(script)
        self.loads = asyncio.Event()
        self.error = error

    async def start(self) -> Any:
        await self.loads.wait()
        if self.error is not None:
            raise self.error
        return await super().start()


async def test_a_load_that_takes_long_is_waited_for_aloud() -> None:
    engine = Loading(Script(["a"]))
    async with site(engines={"m": engine}, config=HASTY) as server:
        call = server.begin(CHAT, STREAM)
        await call.until(lambda: call.text.count(": wait") >= 3)
        whole = server.begin(CHAT, HI)
        engine.loads.set()
        await call.whole()
        assert (await whole.whole()).told.status == 200
    assert call.told.status == 200
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in call.chunks) == "a"


@pytest.mark.parametrize("body", [HI, STREAM], ids=["whole", "streamed"])
async def test_a_load_that_fails(body: Any) -> None:
    engine = Loading(Script(["a"]), LoadFailed("no such file"))
    async with site(engines={"m": engine}) as server:
        call = server.begin(CHAT, body)
        engine.loads.set()
        await call.whole()
    assert (call.told.status, call.told.error["code"]) == (500, "load_failed")


async def test_a_load_that_fails_after_the_head() -> None:
    engine = Loading(Script(["a"]), LoadFailed("no such file"))
    async with site(engines={"m": engine}, config=HASTY) as server:
        call = server.begin(CHAT, STREAM)
        await call.until(lambda: call.told.status)
        engine.loads.set()
        await call.whole()
    assert [chunk["error"]["code"] for chunk in call.chunks] == ["load_failed"]


@pytest.mark.parametrize("body", [HI, STREAM], ids=["whole", "streamed"])
async def test_a_load_is_waited_for_no_longer_for_the_comments(body: Any) -> None:
    engine = Loading(Script(["a"]))
    async with site(engines={"m": engine}, config=HASTY, patience=0.2) as server:
        call = await server.ask(CHAT, body)
        engine.loads.set()
    assert call.text.count(": wait") < 15
    told = call.json if body is HI else call.chunks[-1]
    assert told["error"]["code"] == "overloaded"


async def test_who_hangs_up_while_a_model_is_loaded_asks_for_nothing() -> None:
    engine = Loading(Script(["a"]))
    async with site(engines={"m": engine}) as server:
        for body in (HI, STREAM):
            call = server.begin(CHAT, body)
            await asyncio.sleep(0.01)
            call.hang_up()
            await call.whole()
        engine.loads.set()
        await server.idle()
        assert engine.started == 0


# -- hang-ups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [HI, STREAM], ids=["whole", "streamed"])
async def test_who_hangs_up_in_the_queue_is_never_begun(body: Any) -> None:
    async with site(FOREVER, slots=1) as server:
        first = server.begin(CHAT, STREAM)
        await first.until(lambda: first.told.status)
        second = server.begin(CHAT, body)
        while not server.hub.waiting:
            await asyncio.sleep(0)
        second.hang_up()
        await second.whole()
        assert server.hub.waiting == 0
        first.hang_up()
        await first.whole()
        await server.idle()
        assert server.engine.started == 1


@pytest.mark.parametrize("body", [HI, STREAM], ids=["whole", "streamed"])
async def test_who_hangs_up_while_the_prompt_is_read_ends_it(body: Any) -> None:
    script = Script(["a"], prompt=100_000, prompt_steps=100_000, prompt_delay=0.001)
    async with site(script) as server:
        call = server.begin(CHAT, body)
        while not server.engine.running:
            await asyncio.sleep(0)
        call.hang_up()
        await call.whole()
        await asyncio.wait_for(server.idle(), 20)
        assert call.told.status == 0
        assert isinstance(server.hub.archive._journals, MemoryJournals)
        assert len(server.hub.archive._journals) == 0


async def test_who_hangs_up_at_the_third_token_ends_it() -> None:
    async with site(FOREVER) as server:
        call = server.begin(CHAT, STREAM)
        await call.until(lambda: call.text.count('"x "') >= 3)
        call.hang_up()
        await call.whole()
        await asyncio.wait_for(server.idle(), 20)


async def test_who_hangs_up_on_a_whole_answer_ends_it() -> None:
    async with site(FOREVER) as server:
        call = server.begin(TEXT, {"prompt": "x"})
        while not server.engine.running:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        call.hang_up()
        await call.whole()
        await asyncio.wait_for(server.idle(), 20)
        assert call.told.status == 0


async def test_a_send_that_fails_is_a_hang_up() -> None:
    async with site(FOREVER) as server:
        call = server.begin(CHAT, STREAM)

        async def broken(message: Any) -> None:
            raise BrokenPipeError

        call.told.send = broken  # type: ignore[method-assign]
        await call.whole()
        await asyncio.wait_for(server.idle(), 20)


async def test_three_hundred_hang_ups_at_random_moments_leave_nothing() -> None:
    script = Script(["x"] * 30, delay=0.001, prompt_steps=3, prompt_delay=0.001)
    async with site(script, slots=8, config=ServerConfig(hold=0.01, ping=0.01)) as server:

        async def leave_after(moment: int) -> None:
            call = server.begin(CHAT, HI | {"stream": moment % 2 == 0})
            await asyncio.wait({call.task}, timeout=moment % 61 / 1000)
            call.hang_up()
            await call.whole()

        before = len(asyncio.all_tasks())
        await asyncio.gather(*(leave_after(moment) for moment in range(300)))
        await server.idle()
        while len(asyncio.all_tasks()) > before:  # the test's timeout is the limit
            await asyncio.sleep(0.001)
        assert server.hub.readers == 0
        assert isinstance(server.hub.archive._journals, MemoryJournals)
        assert len(server.hub.archive._journals) == 0


# -- pace ------------------------------------------------------------------------------------------


async def test_who_reads_slowly_holds_nobody_up_and_misses_nothing() -> None:
    async with site(Script(["x"] * 2000)) as server:
        slow = server.begin(CHAT, STREAM)
        slow.stalled = True
        quick = await server.ask(CHAT, STREAM)
        await server.idle()
        assert quick.text.count('"x"') == 2000
        assert slow.told.bodies == []
        slow.read_on()
        await slow.whole()
    assert slow.text.count('"x"') == 2000
    assert max(map(len, slow.told.bodies)) < 70_000


async def test_a_client_that_stalls_and_hangs_up_is_let_go() -> None:
    async with site(FOREVER, config=HASTY) as server:
        call = server.begin(CHAT, STREAM)
        await call.until(lambda: call.told.status)
        call.stalled = True
        await asyncio.sleep(0.05)
        call.hang_up()
        await call.whole()
        await asyncio.wait_for(server.idle(), 20)


async def test_what_is_ready_at_once_goes_out_at_once() -> None:
    async with site(Script(["x"] * 100)) as server:
        call = server.begin(CHAT, STREAM)
        call.stalled = True
        while not server.engine.started:
            await asyncio.sleep(0)
        await server.idle()
        call.read_on()
        await call.whole()
    assert len(call.told.bodies) <= 4
    assert len(frames(call.text)) == 103


async def test_an_engine_that_dies_is_told_of_at_once() -> None:
    script = Script(["x"] * 1000, delay=0.001, fail_at=5, error=EngineCrashed("killed"))
    async with site(script) as server:
        calls = [server.begin(CHAT, STREAM) for _ in range(8)]
        await asyncio.gather(*(call.whole() for call in calls))
    assert [call.chunks[-1]["error"]["code"] for call in calls] == ["engine_crashed"] * 8


async def test_places_in_the_queue_for_who_asks() -> None:
    async with site(FOREVER, slots=1) as server:
        first = server.begin(CHAT, STREAM)
        await first.until(lambda: first.told.status)
        second = server.begin(CHAT, STREAM)
        third = server.begin(CHAT, STREAM | {"bourn": {"queue": True}})
        await third.until(lambda: '"place":2' in third.text)
        assert second.told.status == 0
        second.hang_up()
        await third.until(lambda: '"place":1' in third.text)
        first.hang_up()
        await third.until(lambda: '"x "' in third.text)
        third.hang_up()
        await server.idle()
