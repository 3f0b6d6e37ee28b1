"""`bourn serve` in a process of its own, and clients that leave, break off, and come back to it."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.connection import Connection, text_in
from tests.support.flaky import flaky
from tests.support.footprint import footprint
from tests.support.scripted_site import CHAT, Frame
from tests.support.serve import Served, environment, gone, serving

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

WORDS = " ".join(["x"] * 30)
SCRIPTED = f"m=scripted:{WORDS}?delay=0.002&prompt_steps=5&prompt_delay=0.002&slots=16"
STREAM = {"stream": True}
RIVER = "A river runs past the old town. " * 50
"""A prompt that takes seconds to read."""
SOON = 3.0
"""Seconds in which a hang-up is heard on a busy machine. Alone it is a tenth of one, or what a part
of the prompt takes; an answer would go on for much longer."""
GUARD = 30.0
"""Seconds after which something hangs."""
MB = 2**20


def question(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **more}


def long(text: str, **more: Any) -> dict[str, Any]:
    """One with a long answer, the same again for who asks the same."""
    return question(text, temperature=0, ignore_eos=True, **{"max_tokens": 300} | more)


class Port:
    """A server's, and what it tells of itself."""

    def __init__(self, server: Served) -> None:
        self.number = int(server.url.rpartition(":")[2])
        self.server = server
        self.pid = server.process.pid
        self._files = footprint(self.pid).files

    async def ask(self, path: str, told: Any = None, **more: Any) -> Connection:
        return await Connection.ask(self.number, path, told, **more)

    async def answer(self, body: Any) -> str:
        with await self.ask(CHAT, body) as asked:
            told = await asked.json()
        text: str = told["choices"][0]["message"]["content"]
        return text

    async def status(self, path: str, told: Any = None) -> int:
        with await self.ask(path, told) as asked:
            return (await asked.head()).status

    async def counted(self) -> dict[str, float]:
        """Its numbers, by their names, without those of the model's name."""
        with await self.ask("/metrics") as asked:
            await asked.head()
            page = (await asked.some(MB)).decode()
        page = re.sub(r'model_name="m",?', "", page).replace("{}", "")
        return {
            name: float(value)
            for name, value in re.findall(r"^bourn:(\S+) (\S+)$", page, re.MULTILINE)
        }

    async def until(self, name: str, value: float) -> None:
        """One of its numbers is that."""
        async with asyncio.timeout(GUARD):
            while (await self.counted())[name] != value:
                await asyncio.sleep(0.01)

    async def idle(self) -> None:
        """Nothing is computed, nobody waits, and no connection is open."""
        await self.until("num_requests_running", 0)
        await self.until("num_requests_waiting", 0)
        async with asyncio.timeout(GUARD):
            while footprint(self.pid).files > self._files:
                await asyncio.sleep(0.01)
        for engine in self.server.engines:
            await still_since(engine)


async def still_since(engine: psutil.Process) -> float:
    """Waits until a process has done nothing for a third of a second; the moment that began."""
    async with asyncio.timeout(GUARD):
        since, used = time.monotonic(), footprint(engine.pid).cpu
        while time.monotonic() < since + 0.3:
            await asyncio.sleep(0.02)
            if (now := footprint(engine.pid).cpu) > used + 0.01:  # a tick now and then is no work
                since, used = time.monotonic(), now
    return since


async def at_it(engine: psutil.Process, seconds: float = 0.2) -> None:
    """Waits until a process has been busy for so long."""
    before = footprint(engine.pid).cpu
    async with asyncio.timeout(GUARD):
        while footprint(engine.pid).cpu < before + seconds:
            await asyncio.sleep(0.02)


@asynccontextmanager
async def at_work(*arguments: str, home: Path) -> AsyncIterator[Port]:
    with serving(*arguments, home=home) as server:
        await asyncio.to_thread(server.ready)
        yield Port(server)
        assert "Traceback" not in server.told


async def some_at_a_time(count: int, most: int, work: Any) -> None:
    """`work(0)` to `work(count - 1)`, `most` of them at once."""
    turns = iter(range(count))

    async def one_after_another() -> None:
        for number in turns:
            await work(number)

    await asyncio.gather(*(one_after_another() for _ in range(most)))


# -- leaving ---------------------------------------------------------------------------------------


async def test_a_thousand_hang_ups_at_random_moments_leave_nothing(tmp_path: Path) -> None:
    dice = random.Random(1)
    async with at_work(SCRIPTED, home=tmp_path) as port:

        async def leave(number: int) -> None:
            with await port.ask(CHAT, question(f"{number}", stream=number % 2 == 0)):
                await asyncio.sleep(dice.random() * 0.15)

        for batch in range(24):  # or they come faster than they can be taken in on a slow machine
            if batch == 4:
                before = footprint(port.pid)
            await asyncio.gather(*map(leave, range(50)))
            await port.idle()
        after = footprint(port.pid)
        assert after.threads == before.threads
        assert after.memory - before.memory < 4 * MB
        assert (await port.counted())["kept_answers"] == 0
        assert await port.answer(question("?")) == WORDS


async def test_memory_stays_as_it_is_when_a_third_is_abandoned(tmp_path: Path) -> None:
    async with at_work("m=scripted:", home=tmp_path) as port:

        async def ask(number: int) -> None:
            body = question(f"{number}: " + "word " * 200, stream=number % 2 == 0)
            with await port.ask(CHAT, body) as asked:
                if number % 3:
                    await asked.head()
                    await asked.some(MB)

        await some_at_a_time(500, 20, ask)
        await port.idle()
        before = footprint(port.pid)
        await some_at_a_time(1500, 20, ask)
        await port.idle()
        after = footprint(port.pid)
    assert after.threads == before.threads
    assert after.memory - before.memory < 4 * MB


async def test_fifty_hang_ups_on_a_real_model_leave_nothing(
    named: tuple[str, ...], tmp_path: Path
) -> None:
    dice = random.Random(1)
    async with at_work(*named, home=tmp_path) as port:

        async def leave(number: int) -> None:
            body = long(f"{number}: " + dice.choice(("Hello.", "Hello.", RIVER)))
            with await port.ask(CHAT, body | {"stream": number % 2 == 0}):
                await asyncio.sleep(dice.random())

        def held() -> list[int]:
            them = [psutil.Process(port.pid), *port.server.engines]
            return [number for each in them for number in (each.num_threads(), each.num_fds())]

        def is_more(now: list[int], before: list[int]) -> bool:
            """Of threads a pool may have more by now, whose size is that of the machine."""
            pool = min(32, (os.cpu_count() or 1) + 4)
            return len(now) != len(before) or any(
                later > earlier + room
                for later, earlier, room in zip(now, before, cycle((pool, 0)), strict=False)
            )

        await some_at_a_time(8, 8, leave)
        await port.idle()
        before = held()
        await some_at_a_time(50, 8, leave)
        await port.idle()
        async with asyncio.timeout(GUARD):
            while is_more(held(), before):
                await asyncio.sleep(0.01)
        assert (await port.counted())["kept_answers"] == 0
        assert await port.answer(question("1, 2, 3,", max_tokens=4, temperature=0))


async def test_a_hang_up_ends_the_computing(named: tuple[str, ...], tmp_path: Path) -> None:
    async with at_work(*named, home=tmp_path) as port:
        (engine,) = port.server.engines
        for number in range(4):
            reading = number % 2 == 0  # and not answering
            text = f"{number}: {RIVER if reading else 'Tell me a story.'}"
            with await port.ask(CHAT, long(text, max_tokens=600, stream=number < 2)):
                await at_it(engine, seconds=0.2 if reading else 0.8)
            left = time.monotonic()
            assert await still_since(engine) - left < SOON
        await port.until("request_cancelled_total", 4)


async def test_who_leaves_the_queue_is_never_begun(named: tuple[str, ...], tmp_path: Path) -> None:
    async with at_work(*named, "--slots", "1", "--window", "4096", home=tmp_path) as port:
        with await port.ask(CHAT, long("Tell me a story.", max_tokens=3000) | STREAM) as first:
            await first.head()
            await some(first, 3)
            waiting = [
                await port.ask(CHAT, long(f"{number}: {RIVER}", stream=number % 2 == 0))
                for number in range(20)
            ]
            await port.until("num_requests_waiting", 20)
            for each in waiting:
                each.hang_up()
            await port.until("num_requests_waiting", 0)
        await port.until("request_cancelled_total", 21)
        left = time.monotonic()
        assert await still_since(port.server.engines[0]) - left < SOON
        assert (await port.counted())["prompt_tokens_total"] < 100  # of the first alone


# -- sharing, and coming back ----------------------------------------------------------------------


async def test_a_hundred_who_ask_the_same_at_the_start_are_given_one_answer(
    named: tuple[str, ...], tmp_path: Path
) -> None:
    with serving(*named, home=tmp_path) as server:
        port = Port(server)  # whose model is still being loaded
        body = long("Tell me of a lamp.", max_tokens=20)
        answers = await asyncio.gather(*(port.answer(body) for _ in range(100)))
        assert len(set(answers)) == 1
        counted = await port.counted()
        assert counted['requests_total{origin="miss"}'] == 1
        assert counted["generation_tokens_total"] == 20


async def test_a_hundred_flaky_readers_of_one_answer(smollm2: Path, tmp_path: Path) -> None:
    async with at_work(f"m={smollm2}", "--threads", "1", home=tmp_path) as port:
        body = long("Tell me of a river.", max_tokens=150) | STREAM | {"bourn": {"grace": 30}}
        reads = (flaky(port.number, body, random.Random(seed)) for seed in range(100))
        answers = await asyncio.gather(*reads)
        counted = await port.counted()
    assert counted['requests_total{origin="miss"}'] == 1
    assert counted["generation_tokens_total"] == 150
    assert all(answer.gapless for answer in answers)
    assert {answer.text for answer in answers} == {answers[0].text}
    assert sum(answer.breaks for answer in answers) > 50


TOKENS = 200
"""Of an answer that is still being made when somebody else comes."""


async def test_of_two_who_ask_the_same_the_first_is_killed(smollm2: Path, tmp_path: Path) -> None:
    async with at_work(f"m={smollm2}", "--threads", "1", home=tmp_path) as port:
        for number, text in enumerate(("A river.", RIVER)):
            body = long(text, max_tokens=TOKENS)
            with await port.ask(CHAT, body | STREAM) as first:
                if text is RIVER:
                    await at_it(port.server.engines[0])  # it is being read
                else:
                    await first.head()
                    await some(first, 3)
                second = await port.ask(CHAT, body)
                await port.until('requests_total{origin="shared"}', number + 1)
            with second:
                told = await second.json()
            assert second.headers["x-bourn-cache"] == "shared"
            assert told["usage"]["completion_tokens"] == TOKENS
            counted = await port.counted()
            assert counted["generation_tokens_total"] == TOKENS * (number + 1)


async def some(asked: Connection, most: int) -> list[Frame]:
    """The first events of a stream."""
    seen = []
    async for frame in asked.frames():
        seen.append(frame)
        if len(seen) == most:
            break
    return seen


async def rest_of(asked: Connection) -> list[Frame]:
    if not asked.status:
        await asked.head()
    assert asked.status == 200
    return [frame async for frame in asked.frames()]


def last_on_disk(store: Path, stream: str) -> int:
    """The number of the last event of a stream in the file; in a copy, since it is locked."""
    asked = "SELECT max(number) FROM events JOIN journals USING (row) WHERE instr(?, id)"
    with tempfile.TemporaryDirectory() as folder:
        for each in store.parent.glob(f"{store.name}*"):
            shutil.copy(each, folder)
        with (
            suppress(sqlite3.DatabaseError),  # it was copied while it was written
            closing(sqlite3.connect(Path(folder, store.name))) as file,
        ):
            ((last,),) = file.execute(asked, (stream,))
            return last or 0
    return 0


async def test_what_is_left_after_a_kill_of_the_server(smollm2: Path, tmp_path: Path) -> None:
    store = tmp_path / "answers.sqlite"
    arguments = (f"m={smollm2}", "--threads", "1", "--store", str(store))
    background = STREAM | {"bourn": {"background": True}}
    ended, live = long("A lamp.", max_tokens=20), long("A stone.", max_tokens=2000)
    known = question("Reply with one short word.", temperature=0)
    with serving(*arguments, home=tmp_path) as server:
        port = Port(server)
        answer = await port.answer(known)  # in the first moment, and it is known what answers
        with await port.ask(CHAT, ended | background) as one:
            await one.head()
            begun = await some(one, 10)
        whole = await port.answer(ended)
        with await port.ask(CHAT, live | background) as other:
            await other.head()
            cut = await some(other, 10)
            async with asyncio.timeout(GUARD):
                while last_on_disk(store, other.headers["x-bourn-stream"]) <= cut[-1].number:
                    await asyncio.sleep(0.02)
            server.process.kill()
    async with at_work(*arguments, home=tmp_path) as port:
        where = f"/v1/streams/{one.headers['x-bourn-stream']}"
        with await port.ask(where, last_event_id=begun[-1].id) as back:
            rest = await rest_of(back)
        assert "".join(map(text_in, begun + rest)) == whole
        where = f"/v1/streams/{other.headers['x-bourn-stream']}"
        with await port.ask(where, last_event_id=cut[-1].id) as back:
            *more, error, done = await rest_of(back)
        assert more[0].number == cut[-1].number + 1
        assert '"error"' in error.data
        assert done.data == "[DONE]"
        with await port.ask(CHAT, known) as again:
            told = await again.json()
        assert again.headers["x-bourn-cache"] == "hit"
        assert told["choices"][0]["message"]["content"] == answer


# -- stopping --------------------------------------------------------------------------------------


async def test_a_stop_lets_streams_end_and_a_second_one_does_not(
    named: tuple[str, ...], tmp_path: Path
) -> None:
    with serving(*named, "--slots", "4", "--drain", "60", home=tmp_path) as server:
        port = Port(server)
        streams = [
            await port.ask(CHAT, long(f"Count from {number}.", max_tokens=most) | STREAM)
            for number, most in enumerate((15, 15, 900, 900))
        ]
        for each in streams:
            await each.head()
            await some(each, 2)
        engines = server.engines
        server.process.send_signal(signal.SIGTERM)
        short = [await rest_of(each) for each in streams[:2]]
        assert all('"finish_reason":"length"' in told[-2].data for told in short)
        assert await port.status("/ready") == 503
        assert await port.status(CHAT, question("Hi")) == 503
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        cut = [await rest_of(each) for each in streams[2:]]
        assert all("the server was stopped" in told[-2].data for told in cut)
        for each in streams:
            each.hang_up()
        assert await asyncio.to_thread(server.wait) == 128 + signal.SIGTERM
        assert gone(engines)
        assert time.monotonic() - began < 20
        assert "Traceback" not in server.told


def as_process_1() -> tuple[str, ...]:
    """The command that runs another as the first process of a container would be."""
    command = ("unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")))
    command += ("--pid", "--fork", "--kill-child", "--")
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no process may be made a first one here")
    return command


def hears(pid: int, number: int) -> bool:
    """Whether it has a handler for a signal: without one, process 1 is deaf to it."""
    told = re.search(r"^SigCgt:\s+(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert told is not None
    return bool(int(told[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("first", [False, True], ids=["as any process", "as process 1"])
def test_a_stop_while_it_starts_ends_it(
    first: bool, named: tuple[str, ...], tmp_path: Path
) -> None:
    before = as_process_1() if first else ()
    command = [*before, sys.executable, "-m", "bourn", "serve", *named, "--port", "0"]
    for after in (0, 0.3, 0.9):  # it has just begun; its engine has, or is being loaded
        with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment(tmp_path)) as outer:
            server = psutil.Process(outer.pid)
            end = time.monotonic() + 30
            while first and server.pid == outer.pid:
                assert time.monotonic() < end
                server = next(iter(server.children()), server)
            while not hears(server.pid, signal.SIGTERM):
                assert time.monotonic() < end
                time.sleep(0.001)
            time.sleep(after)
            engines = server.children(recursive=True)
            server.send_signal(signal.SIGTERM)
            try:
                _, told = outer.communicate(timeout=30)
            finally:
                outer.kill()
        assert outer.returncode == 0, told.decode()
        assert b"Traceback" not in told
        assert gone(engines)
