"""What clients do to a server, over real sockets: they leave, come back, and do not read."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import Enum
from operator import le
from pathlib import Path
from typing import Any

import psutil
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from bourn.archive import Archive
from bourn.engines.remote import Remote
from bourn.engines.scripted import Script, Scripted
from bourn.generation import Generation, Seat
from bourn.journal.memory import MemoryJournal
from bourn.journal.sqlite import SqliteJournals
from bourn.server.streaming import EventStream, Line
from bourn.server.whole import WholeAnswer
from bourn.stream import Reader
from bourn.types import Piece, Request
from tests.support.connection import Connection, text_in
from tests.support.flaky import flaky
from tests.support.scripted_site import CHAT, HI
from tests.support.socket_site import GUARD, SocketSite, socket_site, until

STREAM = {"stream": True}
WHOLE = "one two three four"


def question(text: str) -> dict[str, Any]:
    """One whose answer may be given again."""
    return {"messages": [{"role": "user", "content": text}], "temperature": 0}


COLD = question("And now?")
streamed_or_not = pytest.mark.parametrize("kind", [STREAM, {}], ids=["streamed", "whole"])


class Moment(Enum):
    """Of an answer; before which of its pieces it is halted."""

    QUEUED = 0
    IN_THE_PROMPT = 1
    AFTER_THE_THIRD_TOKEN = 5
    AFTER_THE_LAST_TOKEN = 6


class Halting(Scripted):
    """Has one slot, and halts the answer that it is told to halt until it is let go on.

    The pieces of an answer are two of the prompt, four tokens, and the end.
    """

    def __init__(self) -> None:
        super().__init__(Script(WHOLE.replace(" ", " |").split("|"), prompt_steps=2), slots=1)
        self.halted = asyncio.Event()
        self.may_go = asyncio.Event()
        self._halts: Moment | None = None

    def halt(self, moment: Moment) -> None:
        """The next answer, there."""
        self._halts = moment
        self.halted.clear()
        self.may_go.clear()

    async def generate(self, request: Request) -> AsyncGenerator[Piece, None]:
        halts, self._halts = self._halts, None
        async with aclosing(super().generate(request)) as pieces:
            number = 0
            async for piece in pieces:
                if halts is not None and number == halts.value:
                    self.halted.set()
                    await self.may_go.wait()
                yield piece
                number += 1


async def halted(server: SocketSite, engine: Halting, moment: Moment, told: Any) -> Connection:
    """A request that is being answered, and has come to that moment."""
    engine.halt(moment)
    asked = await server.ask(CHAT, told)
    await asyncio.wait_for(engine.halted.wait(), GUARD)
    return asked


async def come_to(
    moment: Moment, server: SocketSite, engine: Halting, told: Any
) -> tuple[Connection, Connection]:
    """A request that has come to that moment, and whoever has to leave for it to go on."""
    if moment is not Moment.QUEUED:
        asked = await halted(server, engine, moment, told)
        return asked, asked
    other = await halted(server, engine, Moment.IN_THE_PROMPT, HI)
    asked = await server.ask(CHAT, told)
    await until(lambda: server.hub.waiting)
    return asked, other


# -- leaving ---------------------------------------------------------------------------------------


def held() -> tuple[int, int, int]:
    """Tasks, threads, and open files."""
    return len(asyncio.all_tasks()), threading.active_count(), psutil.Process().num_fds()


def remains() -> int:
    """How much there is of answers that are made, read, or kept."""
    gc.collect()
    kinds = (Generation, Seat, Reader, MemoryJournal, EventStream, WholeAnswer, Line, H11Protocol)
    return sum(issubclass(type(each), kinds) for each in gc.get_objects())


async def test_two_hundred_hang_ups_at_random_moments_leave_nothing() -> None:
    dice = random.Random(1)
    engine = Scripted(Script(["x"] * 20, delay=0.001, prompt_steps=5, prompt_delay=0.001), slots=16)
    async with socket_site(engine) as server:

        async def leave(number: int) -> None:
            body = HI | {"stream": number % 2 == 0, "temperature": number % 3}
            with await server.ask(CHAT, body) as asked:
                await asyncio.sleep(dice.random() * 0.06)
                asked.hang_up(reset=number % 5 < 2)

        await leave(1)
        await server.quiet()
        before, left = held(), remains()
        for _ in range(5):
            await asyncio.gather(*map(leave, range(40)))
        await server.quiet()
        hub = server.hub
        assert (engine.running, hub.readers, len(hub._seats), len(hub._shared)) == (0, 0, 0, 0)
        assert all(map(le, held(), before))  # what others have left may end meanwhile
        assert remains() - left == hub.archive.kept  # which ended before they were left
        assert await server.text(HI) == "x" * 20


async def test_whoever_resets_an_idle_connection_is_forgotten_at_once() -> None:
    async with socket_site(Scripted(Script(["x"]))) as server:
        before = remains()
        for _ in range(5):
            with await server.ask(CHAT, HI) as asked:
                await asked.json()
                asked.hang_up(reset=True)
        await server.quiet()
        assert remains() == before


@streamed_or_not
async def test_who_leaves_the_queue_is_never_begun(kind: dict[str, Any]) -> None:
    engine = Halting()
    async with socket_site(engine) as server:
        with await halted(server, engine, Moment.IN_THE_PROMPT, HI):
            waiting = [await server.ask(CHAT, HI | kind) for _ in range(20)]
            await until(lambda: server.hub.waiting == 20)
            for each in waiting:
                each.hang_up()
            await until(lambda: not server.hub.waiting)
        await server.quiet()
        assert (engine.started, engine.running) == (1, 0)


@streamed_or_not
async def test_asked_again_after_a_hang_up_it_is_made_anew(kind: dict[str, Any]) -> None:
    engine = Halting()
    async with socket_site(engine) as server:
        for moment in Moment:
            body = question(moment.name)
            asked, other = await come_to(moment, server, engine, body | kind)
            asked.hang_up()
            other.hang_up()
            await server.quiet()
            assert engine.running == 0
            before = engine.started
            with await server.ask(CHAT, body) as again:
                told = await again.json()
            assert again.headers["x-bourn-cache"] == "miss", moment
            assert told["choices"][0]["message"]["content"] == WHOLE
            assert engine.started == before + 1


@streamed_or_not
async def test_of_two_who_ask_the_same_the_first_may_be_killed(kind: dict[str, Any]) -> None:
    engine = Halting()
    async with socket_site(engine) as server:
        for moment in Moment:
            body = question(moment.name)
            first, other = await come_to(moment, server, engine, body | kind)
            seats = len(server.hub._seats)
            second = asyncio.create_task(server.text(body))
            await until(lambda: len(server.hub._seats) == seats + 1)  # noqa: B023
            first.hang_up()
            await until(lambda: len(server.hub._seats) == seats)  # noqa: B023
            before = engine.started
            other.hang_up()
            engine.may_go.set()
            assert await second == WHOLE, moment
            assert engine.started == before + (moment is Moment.QUEUED)


class NoOp:
    """Middleware as it may stand before any application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


@streamed_or_not
async def test_a_hang_up_is_heard_through_middleware(kind: dict[str, Any]) -> None:
    engine = Halting()
    async with socket_site(engine, around=lambda app: NoOp(NoOp(app))) as server:
        for moment in Moment:
            asked, other = await come_to(moment, server, engine, HI | kind)
            asked.hang_up()
            other.hang_up()
            await server.quiet()
            assert engine.running == 0


@streamed_or_not
async def test_a_hang_up_in_front_ends_it_behind(kind: dict[str, Any]) -> None:
    engine = Halting()
    async with (
        socket_site(engine) as behind,
        socket_site(Remote(f"http://127.0.0.1:{behind.port}/v1")) as front,
    ):
        for moment in (Moment.IN_THE_PROMPT, Moment.AFTER_THE_THIRD_TOKEN):
            with await halted(front, engine, moment, HI | kind):
                pass
            await until(lambda: not (behind.fleet.live or engine.running))
        assert await front.text(HI) == WHOLE


# -- coming back -----------------------------------------------------------------------------------


async def test_a_hundred_flaky_readers_of_one_answer_miss_nothing_and_see_nothing_twice() -> None:
    texts = [f"{number} " for number in range(150)]
    engine = Scripted(Script(texts, delay=0.002))
    async with socket_site(engine) as server:
        body = COLD | STREAM | {"bourn": {"grace": 10}}
        reads = (flaky(server.port, body, random.Random(seed)) for seed in range(100))
        answers = await asyncio.gather(*reads)
        assert engine.started == 1
    assert all(answer.gapless and answer.text == "".join(texts) for answer in answers)
    assert sum(answer.breaks for answer in answers) > 50


async def test_after_a_restart_answers_are_read_on_and_given_again(tmp_path: Path) -> None:
    def archive() -> Archive:
        return Archive(SqliteJournals(tmp_path / "answers.sqlite"))

    script = Script([f"{number} " for number in range(30)], delay=0.001)
    async with socket_site(Scripted(script), archive=archive()) as server:
        known = await server.text(COLD)
        with await server.ask(CHAT, HI | STREAM | {"bourn": {"background": True}}) as asked:
            await asked.head()
            seen = []
            async for frame in asked.frames():
                seen.append(frame)
                if len(seen) == 10:
                    break
        await server.quiet()
    engine = Scripted(script)
    async with socket_site(engine, archive=archive()) as server:
        where = f"/v1/streams/{asked.headers['x-bourn-stream']}"
        with await server.ask(where, last_event_id=seen[-1].id) as back:
            assert (await back.head()).status == 200
            rest = [frame async for frame in back.frames()]
        with await server.ask(CHAT, COLD) as again:
            told = await again.json()
        assert engine.started == 0
    assert again.headers["x-bourn-cache"] == "hit"
    assert told["choices"][0]["message"]["content"] == known
    assert seen[-1].number < rest[0].number
    assert "".join(map(text_in, [*seen, *rest])) == known


# -- not reading -----------------------------------------------------------------------------------


async def test_who_reads_a_byte_at_a_time_fills_no_memory_and_holds_nobody_up() -> None:
    long = Script(["x" * 1000] * 12_000)  # more than the system holds on its way
    short = Script(["short"])
    engine = Scripted(lambda request: long if request.messages[0].text == "hi" else short)
    async with socket_site(engine) as server:

        def most_waiting() -> int:
            """Bytes that wait for a client to take them."""
            connections = server.server.server_state.connections
            return max(each.transport.get_write_buffer_size() for each in connections)

        with await server.ask(CHAT, HI | STREAM, buffer=4096) as slow:
            await until(lambda: engine.started and not engine.running)  # nobody waited for it
            taken = 0
            while taken < 1_000_000:  # and then no more in one gulp, though all of it is there
                taken += len(await slow.some(4096))
            for _ in range(20):
                assert await slow.some(1)
                assert most_waiting() < 300_000
            assert await server.text(COLD) == "short"
            await until(lambda: server.server.busy == 1)  # the slow one, which is still there
        await server.quiet()
        assert server.hub.archive.kept == 1  # the short one


async def test_who_reads_slowly_has_not_gone() -> None:
    engine = Scripted(Script(["x" * 1000] * 12_000))
    async with socket_site(engine) as server:
        body = HI | STREAM | {"bourn": {"grace": 0.05}}
        with await server.ask(CHAT, body, buffer=4096) as slow:
            await slow.head()
            await until(lambda: engine.started and not engine.running)
            taken = 0
            while taken < 1_000_000:  # so that the server has read all, and the client has not
                taken += len(await slow.some(4096))
            await asyncio.sleep(0.2)
        with await server.ask(f"/v1/streams/{slow.headers['x-bourn-stream']}") as back:
            assert (await back.head()).status == 200
