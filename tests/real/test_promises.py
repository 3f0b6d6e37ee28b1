"""What bourn promises, with the real model, through the names that people use."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx2
import psutil
import pytest
import pytest_asyncio

import bourn
from bourn.aio import Model
from bourn.asking import Options
from bourn.engines.sockets import SocketTransport
from bourn.errors import PromptTooLong
from bourn.types import FinishReason

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

STORY = "Tell me a short story about a fox."


def greedy(max_new_tokens: int, stop: str = "") -> Options:
    options: Options = {"temperature": 0.0, "seed": 1, "max_new_tokens": max_new_tokens}
    return {**options, "stop": stop} if stop else options


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(smollm2: Path) -> AsyncIterator[Model]:
    async with bourn.aio.load(str(smollm2), slots=4, window=2048) as model:
        yield model


def child_of(model: Model) -> Path:
    """The socket of the model's own server."""
    path = model.hub.engine._berth.path  # type: ignore[attr-defined]
    assert isinstance(path, Path)
    return path


async def ask_directly(model: Model, path: str, **body: object) -> httpx2.Response:
    transport = SocketTransport(str(child_of(model)))
    async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
        if body:
            return await client.post(f"http://localhost{path}", json=body)
        return await client.get(f"http://localhost{path}")


async def until_idle(model: Model) -> None:
    """The test's own timeout is the limit."""  # and the server tells only when asked
    while any(slot["is_processing"] for slot in (await ask_directly(model, "/slots")).json()):
        await asyncio.sleep(0.02)


async def test_the_joined_stream_is_the_servers_own_whole_answer(model: Model) -> None:
    stream = model.stream(STORY, **greedy(60))
    joined = "".join([text async for text in stream])
    plain = await ask_directly(
        model,
        "/v1/chat/completions",
        messages=[{"role": "user", "content": STORY}],
        max_tokens=60,
        temperature=0,
        cache_prompt=False,
    )
    assert joined == stream.text == plain.json()["choices"][0]["message"]["content"]
    assert stream.usage.completion_tokens == plain.json()["usage"]["completion_tokens"]


async def test_any_part_of_an_answer_can_be_a_stop(model: Model) -> None:
    pieces = [text async for text in model.stream(STORY, **greedy(40))]
    whole = "".join(pieces)
    border = len(pieces[0]) + len(pieces[1])
    dice = random.Random(5)
    spans = [(border - 2, border + 2), (0, 3), (len(whole) - 4, len(whole))]
    spans += [(at, at + dice.randint(1, 12)) for at in dice.choices(range(len(whole) - 12), k=5)]
    for start, end in spans:
        stop = whole[start:end]
        stream = model.stream(STORY, **greedy(40, stop))
        assert await stream.read() == whole[: whole.index(stop)], repr(stop)
        assert stream.finish_reason is FinishReason.STOP
        assert stream.choices[0].stop == stop


async def test_what_is_held_for_a_stop_that_never_comes_is_shown(model: Model) -> None:
    whole = await model.stream(STORY, **greedy(20)).read()
    stop = whole[-3:] + "never"
    assert await model.stream(STORY, **greedy(20, stop)).read() == whole


@pytest.mark.timeout(120)
async def test_five_answers_differ_and_one_seed_gives_one(model: Model) -> None:
    async def answer(seed: int | None = None) -> str:
        return await model.stream(STORY, max_new_tokens=32, seed=seed).read()

    assert len({await answer() for _ in range(5)}) == 5
    assert len({await answer(seed=7) for _ in range(3)}) == 1


async def test_limits_and_the_reasons(model: Model) -> None:
    stream = model.stream("Say hi", max_new_tokens=5, ignore_eos=True)
    await stream.read()
    assert (stream.finish_reason, stream.usage.completion_tokens) == (FinishReason.LENGTH, 5)
    with pytest.raises(PromptTooLong) as raised:
        await model.stream("word " * 3000).read()
    assert raised.value.window == 2048
    assert raised.value.prompt_tokens is not None
    assert raised.value.prompt_tokens > 3000
    assert "2048" in str(raised.value)


async def test_numbers_are_told(model: Model) -> None:
    stream = model.stream(STORY, max_new_tokens=16, ignore_eos=True)
    await stream.read()
    told = stream.metrics
    assert told.tokens == 16
    assert told.ttft is not None
    assert told.first_text is not None
    assert 0 < told.ttft <= told.first_text <= told.total
    assert told.tokens_per_second is not None
    assert told.itl_p50 is not None
    assert told.itl_p99 is not None
    assert told.itl_p50 <= told.itl_p99
    assert told.prompt_tokens > 30


@pytest.mark.timeout(120)
async def test_two_hundred_streams_left_at_random_moments_leave_nothing_behind(
    model: Model,
) -> None:
    own = psutil.Process()
    dice = random.Random(3)
    long = "Here is a long text about rivers. " * 60

    async def leave(number: int) -> None:
        stream = model.stream(long if number % 3 == 0 else STORY, max_new_tokens=200)
        with suppress(TimeoutError):
            async with asyncio.timeout(dice.uniform(0, 0.5)):
                async for _ in stream:
                    pass
        await stream.aclose()

    async def wave(count: int) -> None:
        await asyncio.gather(*(leave(number) for number in range(count)))
        await until_idle(model)
        gc.collect()

    await wave(20)
    before = (own.num_threads(), own.num_fds(), own.memory_info().rss)
    for _ in range(10):
        await wave(20)
    async with asyncio.timeout(20):
        while model.hub.live or own.num_threads() > before[0] or own.num_fds() > before[1]:
            await asyncio.sleep(0.02)
    assert own.memory_info().rss - before[2] < 20e6
    assert await model.stream("Say hi", max_new_tokens=3).read()


def run(*arguments: str, smollm2: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "bourn", "run", "-m", str(smollm2), "--window", "1024"]
    return subprocess.run(
        [*command, *arguments], input=stdin, capture_output=True, timeout=50, check=False
    )


async def test_the_command_line_tells_the_same(smollm2: Path) -> None:
    options = ("--temperature", "0", "--seed", "1", "--max-new-tokens", "12", "--json")
    told = run(*options, "Say:", "-", smollm2=smollm2, stdin=b"hello")
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    done = lines[-1]
    assert told.returncode == 0
    assert done["text"] == "".join(line["text"] for line in lines if line["type"] == "delta") != ""
    assert (done["seed"], done["usage"]["completion_tokens"]) == (1, done["metrics"]["tokens"])


async def test_a_raw_prompt_is_gone_on_with(smollm2: Path) -> None:
    options = ("--raw", "--temperature", "0", "--max-new-tokens", "4")
    told = run(*options, "One, two, three, four,", smollm2=smollm2)
    assert told.returncode == 0
    assert b"five" in told.stdout


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for the child in /proc")
async def test_nothing_is_left_running(smollm2: Path) -> None:
    def workers() -> set[int]:
        return {
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if "llamacpp_worker" in " ".join(process.info["cmdline"] or ())
        }

    before = workers()
    assert run("--max-new-tokens", "2", "hi", smollm2=smollm2).returncode == 0
    async with asyncio.timeout(20):
        while workers() - before:
            await asyncio.sleep(0.02)
