"""llama.cpp with a real model: what is answered, where it ends, and that leaving ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from bourn.engines.address import Address
from bourn.engines.http import Endpoint
from bourn.engines.llamacpp import LlamaCpp
from bourn.errors import (
    ConnectionFailed,
    EngineCrashed,
    InvalidRequest,
    LoadFailed,
    PromptTooLong,
    TemplateError,
    UnsupportedField,
)
from bourn.messages import messages_of
from bourn.types import DEFAULT_SAMPLING, FinishReason, Piece, Request, Sampling
from tests.support.serve import gone

pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform == "win32", reason="looks at processes and sockets"),
]

WINDOW = 2048
GREEDY = replace(DEFAULT_SAMPLING, temperature=0.0, seed=1)
SHORT = "Reply with one short word."
STORY = "Tell me a story"


def request(text: str, sampling: Sampling = GREEDY, **more: Any) -> Request:
    return Request(messages=messages_of(text), sampling=sampling, **more)


async def read(engine: LlamaCpp, asked: Request) -> list[Piece]:
    async with aclosing(engine.generate(asked)) as pieces:
        return [piece async for piece in pieces]


async def text_of(engine: LlamaCpp, asked: Request, choice: int = 0) -> str:
    return "".join(p.text for p in await read(engine, asked) if p.choice == choice)


async def eventually(
    fact: Callable[[], Awaitable[bool]], seconds: float, every: float = 0.01
) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if await fact():
            return True
        await asyncio.sleep(every)
    return False


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(smollm2: Path) -> AsyncGenerator[LlamaCpp, None]:
    started = LlamaCpp(smollm2, window=WINDOW, slots=2)
    await started.start()
    yield started
    await started.aclose()


async def slots(engine: LlamaCpp) -> list[dict[str, Any]]:
    endpoint = Endpoint(Address.of(engine._berth.base_url), api_key="")
    told: list[dict[str, Any]] = await endpoint.get("/slots", root=True)
    await endpoint.aclose()
    return told


async def is_idle(engine: LlamaCpp) -> bool:
    return not any(slot["is_processing"] for slot in await slots(engine))


async def test_what_is_known_of_it(engine: LlamaCpp, smollm2: Path) -> None:
    info = await engine.start()
    assert (info.window, info.slots) == (WINDOW, 2)
    assert (info.name, info.engine) == (smollm2.stem, "llama.cpp")
    assert info.channels is None
    assert info.chat_template
    assert info.honours >= {"temperature", "top_k", "min_p", "seed", "n", "logprobs", "prompt"}
    assert not info.honours & {"tools", "tool_choice", "images"}


async def test_its_socket_is_for_us_alone(engine: LlamaCpp) -> None:
    assert engine._berth.path is not None
    assert stat.S_ISSOCK(engine._berth.path.stat().st_mode)
    assert stat.S_IMODE(engine._berth.path.parent.stat().st_mode) == 0o700


async def test_every_token_is_counted(engine: LlamaCpp) -> None:
    pieces = await read(engine, request("Count: one, two,", max_new_tokens=12, ignore_eos=True))
    assert sum(piece.tokens for piece in pieces) == 12
    last = pieces[-1]
    assert last.finish is FinishReason.LENGTH
    assert last.usage is not None
    assert last.usage.completion_tokens == 12
    assert not last.usage.estimated
    read_all = [p for p in pieces if p.prompt_total is not None][-1]
    assert read_all.prompt_done == read_all.prompt_total == last.usage.prompt_tokens


async def test_an_end_on_the_last_allowed_token_is_a_stop(engine: LlamaCpp) -> None:
    free = await read(engine, request(SHORT, max_new_tokens=200))
    assert free[-1].finish is FinishReason.STOP
    assert free[-1].usage is not None
    needed = free[-1].usage.completion_tokens
    for limit, reason in (
        (needed - 1, FinishReason.LENGTH),
        (needed, FinishReason.STOP),
        (needed + 1, FinishReason.STOP),
    ):
        pieces = await read(engine, request(SHORT, max_new_tokens=limit))
        assert pieces[-1].finish is reason, limit
        assert sum(piece.tokens for piece in pieces) <= limit


async def test_a_prompt_that_is_too_long_is_refused_with_both_numbers(engine: LlamaCpp) -> None:
    with pytest.raises(PromptTooLong, match=str(WINDOW)) as caught:
        await read(engine, request("word " * 3000))
    assert caught.value.window == WINDOW
    assert caught.value.prompt_tokens is not None
    assert caught.value.prompt_tokens > 3000
    assert str(caught.value.prompt_tokens) in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (request("x", tools=({"type": "function"},)), UnsupportedField, "`tools`"),
        (request("x", n=3), InvalidRequest, "n is 3, but there are 2 slots"),
        (request("x", Sampling(temperature=0.0)), InvalidRequest, "not resolved: .*seed"),
        (
            request([{"role": "user", "content": [{"type": "image_url", "image_url": "data:,"}]}]),  # type: ignore[arg-type]
            UnsupportedField,
            "`images`",
        ),
    ],
)
async def test_what_it_cannot_do_is_refused(
    engine: LlamaCpp, asked: Request, error: type[InvalidRequest], words: str
) -> None:
    with pytest.raises(error, match=words):
        await read(engine, asked)


async def test_log_probabilities_are_of_each_token(engine: LlamaCpp) -> None:
    pieces = await read(engine, request(SHORT, max_new_tokens=8, logprobs=2, ignore_eos=True))
    entries = [entry for piece in pieces for entry in piece.logprobs]
    assert len(entries) == 8
    assert all(len(entry.top) == 2 and entry.logprob <= 0 for entry in entries)
    text = "".join(piece.text for piece in pieces)
    assert b"".join(entry.bytes for entry in entries).decode() == text


@pytest.mark.parametrize(
    "asked", [request("Hi"), Request(prompt="1, 2, 3,", sampling=GREEDY)], ids=["chat", "raw"]
)
async def test_a_count_is_what_the_prompt_then_is(engine: LlamaCpp, asked: Request) -> None:
    pieces = await read(engine, replace(asked, max_new_tokens=1))
    assert pieces[-1].usage is not None
    assert await engine.count(asked) == pieces[-1].usage.prompt_tokens


async def test_a_raw_prompt_goes_on(engine: LlamaCpp) -> None:
    asked = Request(prompt="1, 2, 3, 4,", sampling=GREEDY, max_new_tokens=2)
    assert await text_of(engine, asked) == " 5"


# -- seeds -----------------------------------------------------------------------------------------


async def test_the_same_seed_gives_the_same_answer(engine: LlamaCpp) -> None:
    seeded = replace(DEFAULT_SAMPLING, temperature=0.8, seed=42)
    long = "Write about " + "a river, a stone, a lamp, " * 5  # so that reuse would change it
    asked = request(long, seeded, max_new_tokens=12, reuse_prompt=False)
    first = await text_of(engine, asked)
    second = await text_of(engine, asked)
    await text_of(engine, request("Something else", max_new_tokens=2))
    third = await text_of(engine, asked)
    assert first == second == third
    other = replace(asked, sampling=replace(seeded, seed=43))
    assert await text_of(engine, other) != first


async def test_the_answers_of_one_request_differ(engine: LlamaCpp) -> None:
    seeded = replace(DEFAULT_SAMPLING, temperature=1.0, seed=5)
    pieces = await read(engine, request(STORY, seeded, n=2, max_new_tokens=16, ignore_eos=True))
    texts = {c: "".join(p.text for p in pieces if p.choice == c) for c in (0, 1)}
    assert texts[0] != texts[1]
    assert [p.choice for p in pieces if p.finish] in ([0, 1], [1, 0])
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.completion_tokens == sum(p.tokens for p in pieces) == 32


# -- leaving ---------------------------------------------------------------------------------------


async def test_leaving_in_the_middle_of_an_answer_ends_it(engine: LlamaCpp) -> None:
    asked = request("Tell me a long story", max_new_tokens=1500, ignore_eos=True)
    async with aclosing(engine.generate(asked)) as pieces:
        async for piece in pieces:
            if piece.tokens:
                break
        assert not await is_idle(engine)
    assert await eventually(lambda: is_idle(engine), 3)


async def test_leaving_while_the_prompt_is_read_ends_that(engine: LlamaCpp) -> None:
    asked = request("word " * 1900, max_new_tokens=4, reuse_prompt=False)
    async with aclosing(engine.generate(asked)) as pieces:
        async for piece in pieces:
            if piece.prompt_done:
                break
        total = piece.prompt_total
        used = [slot["id"] for slot in await slots(engine) if slot["is_processing"]]
    assert total is not None
    assert total > 1900
    assert await eventually(lambda: is_idle(engine), 30)
    (read_at_all,) = (s["n_prompt_tokens"] for s in await slots(engine) if s["id"] == used[0])
    batch = engine._config.batch(gpu=False)
    assert read_at_all <= 4 * batch  # the one waited for, and two more at most


async def test_cancelling_the_task_ends_it(engine: LlamaCpp) -> None:
    task = asyncio.create_task(
        read(engine, request("Tell me a long story", max_new_tokens=1500, ignore_eos=True))
    )
    assert await eventually(lambda: _not(is_idle(engine)), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await eventually(lambda: is_idle(engine), 3)


async def _not(fact: Awaitable[bool]) -> bool:
    return not await fact


# -- dying -----------------------------------------------------------------------------------------


async def test_a_death_in_the_middle_is_told_and_the_next_request_is_served(
    engine: LlamaCpp,
) -> None:
    asked = request("Tell me a long story", max_new_tokens=1500, ignore_eos=True)
    seen: list[Piece] = []
    killed = 0.0

    async def until_death() -> None:
        nonlocal killed
        async for piece in engine.generate(asked):
            seen.append(piece)
            if piece.tokens and not killed:
                killed = time.monotonic()
                os.kill(engine.spawn().spawn().pid, signal.SIGKILL)

    with pytest.raises(EngineCrashed, match=r"llama\.cpp was killed by signal 9"):
        await until_death()
    assert time.monotonic() - killed < 10
    assert any(piece.tokens for piece in seen)
    assert await text_of(engine, Request(prompt="1, 2, 3,", sampling=GREEDY, max_new_tokens=2))


async def test_a_lost_socket_is_not_called_a_crash(smollm2: Path) -> None:
    engine = LlamaCpp(smollm2, window=256)
    await engine.start()
    assert engine._berth.path is not None
    engine._berth.clear()
    with pytest.raises(ConnectionFailed):
        await read(engine, request("x", max_new_tokens=1))
    folder = engine._berth.path.parent
    await engine.aclose()
    await engine.aclose()
    assert not folder.exists()


def kill_a_parent_while_it_loads(model: Path) -> bool:
    """Whether the child went with it."""
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from bourn.engines.llamacpp import LlamaCpp\n"
        "engine = LlamaCpp(Path(sys.argv[1]), window=8192, slots=4)\n"  # long to load
        "print(engine.spawn().spawn().pid, flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(model)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        while "xllamacpp" not in Path(f"/proc/{child.pid}/maps").read_text():
            time.sleep(0.01)
        time.sleep(0.1)  # into the loading, where Python cannot run
        parent.kill()
    return gone([child])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_no_orphan_is_left_by_a_parent_that_dies_while_it_loads(smollm2: Path) -> None:
    assert await asyncio.to_thread(kill_a_parent_while_it_loads, smollm2)


# -- loading ---------------------------------------------------------------------------------------


async def test_a_broken_file_is_told_with_last_words(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 1000)
    engine = LlamaCpp(broken)
    with pytest.raises(LoadFailed, match=r"(?s)exit code 1.*version"):
        await engine.start()
    await engine.aclose()


async def test_a_model_without_a_template_cannot_chat(smollm2: Path) -> None:
    engine = LlamaCpp(smollm2, window=256, has_template=False)
    with pytest.raises(TemplateError, match="no chat template") as caught:
        await read(engine, request("x"))
    assert "--chat-template" in caught.value.hint
    with pytest.raises(TemplateError):
        await engine.count(request("x"))
    asked = Request(prompt="1, 2, 3,", sampling=GREEDY, max_new_tokens=2)
    assert await text_of(engine, asked) == " 4"
    await engine.aclose()


TOOLS = """{% if tools %}[tools]{{ tools | tojson }}[/tools]{% endif -%}
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ c | tojson }}</call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


async def test_another_template_and_a_full_window(smollm2: Path) -> None:
    """One child for all that needs its own: tools, and a window that fills."""
    engine = LlamaCpp(smollm2, window=256, chat_template=TOOLS)
    info = await engine.start()
    assert info.window == 256
    assert "tools" in info.honours
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with pytest.raises(UnsupportedField, match="`logprobs`"):
        await read(engine, request("x", tools=(tool,), logprobs=0))
    asked = request("word " * 220, max_new_tokens=None, ignore_eos=True)
    pieces = await read(engine, asked)
    assert pieces[-1].finish is FinishReason.LENGTH
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.total_tokens == 256
    await engine.aclose()
