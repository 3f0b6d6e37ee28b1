"""A real checkpoint in a process of its own, as `bourn serve` runs it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from bourn.engines.hf.child.apart import Apart
from bourn.engines.hf.child.worker import Config
from bourn.errors import EngineCrashed, LoadFailed, PromptTooLong, UnsupportedField
from bourn.messages import messages_of
from bourn.types import DEFAULT_SAMPLING, FinishReason, Piece, Request
from tests.support.serve import gone

pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(sys.platform == "win32", reason="looks at processes"),
]

WINDOW = 512
GREEDY = replace(DEFAULT_SAMPLING, temperature=0.0, seed=1)


def config(folder: Path) -> Config:
    return Config(folder=str(folder), name="smollm2", slots=4, window=WINDOW, threads=1)


def chat(text: str, **more: Any) -> Request:
    return Request(messages=messages_of(text), sampling=GREEDY, **more)


LONG = chat("Tell me a long story", max_new_tokens=400, ignore_eos=True)
COUNTING = Request(prompt="1, 2, 3, 4,", sampling=GREEDY, max_new_tokens=2)


async def read(engine: Apart, asked: Request) -> list[Piece]:
    async with aclosing(engine.generate(asked)) as pieces:
        return [piece async for piece in pieces]


def process_of(engine: Apart) -> psutil.Process:
    life = engine._child.life
    assert life is not None
    return psutil.Process(life.pid)


async def is_idle(engine: Apart) -> bool:
    """Whether it computes nothing; waits a while for that."""
    process = process_of(engine)
    for _ in range(100):
        before = process.cpu_times()
        await asyncio.sleep(0.3)
        after = process.cpu_times()
        if after.user + after.system - before.user - before.system < 0.1:
            return True
    return False


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(checkpoint: Path) -> AsyncGenerator[Apart, None]:
    told: list[tuple[int, int]] = []
    started = Apart(config(checkpoint), on_progress=lambda done, total: told.append((done, total)))
    await started.start()
    assert told
    assert told[-1][0] == told[-1][1] > 100
    yield started
    await started.aclose()


async def test_what_is_known_of_it(engine: Apart) -> None:
    info = await engine.start()
    assert (info.name, info.engine) == ("smollm2", "transformers")
    assert (info.window, info.slots) == (WINDOW, 4)
    assert info.chat_template
    assert info.honours >= {"temperature", "top_k", "seed", "n", "logprobs", "prompt"}
    with pytest.raises(UnsupportedField, match="`logits_processor`"):
        await read(engine, replace(COUNTING, engine_options={"logits_processor": [print]}))


async def test_it_answers(engine: Apart) -> None:
    pieces = await read(engine, COUNTING)
    assert "".join(piece.text for piece in pieces) == " 5"
    assert pieces[-1].finish is FinishReason.LENGTH
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.completion_tokens == sum(piece.tokens for piece in pieces) == 2
    assert await engine.count(COUNTING) == pieces[-1].usage.prompt_tokens


async def test_log_probabilities_come_with_their_bytes(engine: Apart) -> None:
    pieces = await read(engine, chat("Hi", max_new_tokens=6, logprobs=2, ignore_eos=True))
    entries = [entry for piece in pieces for entry in piece.logprobs]
    assert len(entries) == 6
    assert all(len(entry.top) == 2 and entry.logprob <= 0 for entry in entries)
    text = "".join(piece.text for piece in pieces)
    assert b"".join(entry.bytes for entry in entries).decode() == text


async def test_many_at_once_say_what_each_says_alone(engine: Apart) -> None:
    asked = [replace(COUNTING, prompt=f"{n}, {n + 1}, {n + 2},") for n in range(6)]
    alone = [await read(engine, request) for request in asked]
    together = await asyncio.gather(*(read(engine, request) for request in asked))
    for one, other in zip(alone, together, strict=True):
        assert [p.text for p in one if p.tokens] == [p.text for p in other if p.tokens]


async def test_a_prompt_that_is_too_long_is_refused_with_both_numbers(engine: Apart) -> None:
    with pytest.raises(PromptTooLong) as caught:
        await read(engine, chat("word " * 2 * WINDOW))
    assert caught.value.window == WINDOW
    assert caught.value.prompt_tokens is not None
    assert caught.value.prompt_tokens > 2 * WINDOW


async def test_leaving_ends_the_computing(engine: Apart) -> None:
    async with aclosing(engine.generate(LONG)) as pieces:
        async for piece in pieces:
            if piece.tokens:
                break
    assert await is_idle(engine)


async def test_a_kill_in_mid_stream_is_told_and_the_next_request_is_served(engine: Apart) -> None:
    seen: list[Piece] = []
    killed = 0.0

    async def until_death() -> None:
        nonlocal killed
        async for piece in engine.generate(LONG):
            seen.append(piece)
            if piece.tokens and not killed:
                killed = time.monotonic()
                os.kill(process_of(engine).pid, signal.SIGKILL)

    with pytest.raises(EngineCrashed, match="transformers was killed by signal 9"):
        await until_death()
    assert time.monotonic() - killed < 10
    assert any(piece.tokens for piece in seen)
    assert "".join(piece.text for piece in await read(engine, COUNTING)) == " 5"


async def test_a_folder_that_is_no_checkpoint_is_told(tmp_path: Path) -> None:
    broken = Apart(config(tmp_path))
    with pytest.raises(LoadFailed, match=r"no config\.json") as caught:
        await broken.start()
    assert caught.value.hint
    await broken.aclose()


PARENT = """
import asyncio, sys
from pathlib import Path
from bourn.engines.hf.child.apart import Apart
from bourn.engines.hf.child.worker import Config

async def main():
    engine = Apart(Config(folder=sys.argv[1]))
    print(engine.spawn().spawn().pid, flush=True)
    await engine.start()

asyncio.run(main())
"""


def kill_a_parent_while_it_loads(checkpoint: Path) -> bool:
    """Whether the child went with it."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(checkpoint)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        while "libtorch" not in Path(f"/proc/{child.pid}/maps").read_text():
            time.sleep(0.01)
        parent.kill()
    return gone([child])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_no_orphan_is_left_by_a_parent_that_dies_while_it_loads(checkpoint: Path) -> None:
    assert await asyncio.to_thread(kill_a_parent_while_it_loads, checkpoint)
