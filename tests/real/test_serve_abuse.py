"""`bourn serve` in a process of its own, and clients that leave, break off, and come back to it."""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.connection import Connection, text_in
from tests.support.flaky import flaky
from tests.support.footprint import footprint
from tests.support.scripted_site import CHAT, Frame
from tests.support.serve import Served, serving

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

WORDS = " ".join(["x"] * 30)
SCRIPTED = f"m=scripted:{WORDS}?delay=0.002&prompt_steps=5&prompt_delay=0.002&slots=16"
STREAM = {"stream": True}
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
        self.pid = server.process.pid
        self._files = footprint(self.pid).files

    async def ask(self, path: str, told: Any = None, **more: Any) -> Connection:
        return await Connection.ask(self.number, path, told, **more)

    async def answer(self, body: Any) -> str:
        with await self.ask(CHAT, body) as asked:
            told = await asked.json()
        text: str = told["choices"][0]["message"]["content"]
        return text

    async def counted(self) -> dict[str, float]:
        """Its numbers, by their names with labels."""
        with await self.ask("/metrics") as asked:
            await asked.head()
            page = (await asked.some(MB)).decode()
        return {
            name: float(value) for name, value in re.findall(r"^(\S+) (\S+)$", page, re.MULTILINE)
        }

    async def idle(self) -> None:
        """Nothing is computed, nobody waits, and no connection is open."""
        live = [
            f'bourn:num_{n}{{model_name="m"}}' for n in ("requests_running", "requests_waiting")
        ]
        async with asyncio.timeout(10):
            while any([(await self.counted())[name] for name in live]):
                await asyncio.sleep(0.01)
            while footprint(self.pid).files > self._files:
                await asyncio.sleep(0.01)
            for engine in psutil.Process(self.pid).children(recursive=True):
                while await _works(engine):
                    pass


async def _works(engine: psutil.Process) -> bool:
    before = footprint(engine.pid).cpu
    await asyncio.sleep(0.2)
    return footprint(engine.pid).cpu - before > 0.05


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
        assert (await port.counted())["bourn:kept_answers"] == 0
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


async def test_fifty_hang_ups_on_a_real_model_leave_nothing(smollm2: Path, tmp_path: Path) -> None:
    dice = random.Random(1)
    async with at_work(f"m={smollm2}", home=tmp_path) as port:

        async def leave(number: int) -> None:
            body = long(f"{number}: " + "a word " * dice.choice((1, 1, 800)))
            with await port.ask(CHAT, body | {"stream": number % 2 == 0}):
                await asyncio.sleep(dice.random() * 1.2)

        def all_of_it() -> list[tuple[int, int]]:
            own = psutil.Process(port.pid)
            them = (own, *own.children(recursive=True))
            return [(each.num_threads(), each.num_fds()) for each in them]

        await some_at_a_time(8, 8, leave)
        await port.idle()
        before = all_of_it()
        await some_at_a_time(50, 8, leave)
        await port.idle()
        async with asyncio.timeout(10):
            while all_of_it() != before:
                await asyncio.sleep(0.01)
        assert (await port.counted())["bourn:kept_answers"] == 0
        assert await port.answer(question("1, 2, 3,", max_tokens=4))


async def test_a_hundred_flaky_readers_of_one_answer(smollm2: Path, tmp_path: Path) -> None:
    async with at_work(f"m={smollm2}", home=tmp_path) as port:
        body = long("Tell me of a river.") | STREAM | {"bourn": {"grace": 30}}
        reads = (flaky(port.number, body, random.Random(seed)) for seed in range(100))
        answers = await asyncio.gather(*reads)
        counted = await port.counted()
    assert counted['bourn:requests_total{model_name="m",origin="miss"}'] == 1
    assert counted['bourn:generation_tokens_total{model_name="m"}'] == 300
    assert all(answer.gapless for answer in answers)
    assert {answer.text for answer in answers} == {answers[0].text}
    assert sum(answer.breaks for answer in answers) > 50


@pytest.mark.parametrize("prompt", ["A river.", "A river. " * 150], ids=["at a token", "reading"])
async def test_of_two_who_ask_the_same_the_first_is_killed(
    prompt: str, smollm2: Path, tmp_path: Path
) -> None:
    async with at_work(f"m={smollm2}", home=tmp_path) as port:
        body = long(prompt) | {"max_tokens": 60}
        with await port.ask(CHAT, body | STREAM) as first:
            if len(prompt) < 100:
                await first.head()
                await _some(first, 3)
            else:
                await asyncio.sleep(0.3)
            second = await port.ask(CHAT, body)
            await asyncio.sleep(0.1)
        with second:
            told = await second.json()
        assert second.headers["x-bourn-cache"] == "shared"
        assert told["usage"]["completion_tokens"] == 60
        counted = await port.counted()
        assert counted['bourn:generation_tokens_total{model_name="m"}'] == 60


async def _some(asked: Connection, most: int) -> list[Frame]:
    """The first events of a stream."""
    seen = []
    async for frame in asked.frames():
        seen.append(frame)
        if len(seen) == most:
            break
    return seen


async def _all(asked: Connection) -> list[Frame]:
    await asked.head()
    assert asked.status == 200
    return [frame async for frame in asked.frames()]


async def test_what_is_left_after_a_kill_of_the_server(smollm2: Path, tmp_path: Path) -> None:
    arguments = (f"m={smollm2}", "--store", str(tmp_path / "answers.sqlite"))
    background = STREAM | {"bourn": {"background": True}}
    ended, live = long("A lamp.", max_tokens=20), long("A stone.", max_tokens=2000)
    known = question("Reply with one short word.", temperature=0)
    with serving(*arguments, home=tmp_path) as server:
        port = Port(server)
        answer = await port.answer(known)
        with await port.ask(CHAT, ended | background) as one:
            await one.head()
            begun = await _some(one, 10)
        whole = await port.answer(ended)
        with await port.ask(CHAT, live | background) as other:
            await other.head()
            cut = await _some(other, 10)
            await asyncio.sleep(0.5)  # more than what is written at once takes
            server.process.kill()
    async with at_work(*arguments, home=tmp_path) as port:
        where = f"/v1/streams/{one.headers['x-bourn-stream']}"
        with await port.ask(where, last_event_id=begun[-1].id) as back:
            rest = await _all(back)
        assert "".join(map(text_in, begun + rest)) == whole
        where = f"/v1/streams/{other.headers['x-bourn-stream']}"
        with await port.ask(where, last_event_id=cut[-1].id) as back:
            *more, error, done = await _all(back)
        assert more[0].number == cut[-1].number + 1
        assert '"error"' in error.data
        assert done.data == "[DONE]"
        with await port.ask(CHAT, known) as again:
            told = await again.json()
        assert again.headers["x-bourn-cache"] == "hit"
        assert told["choices"][0]["message"]["content"] == answer
