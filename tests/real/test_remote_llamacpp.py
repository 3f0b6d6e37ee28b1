"""A llama.cpp server that somebody else runs, found out and asked as an endpoint."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from bourn.engines.address import Address
from bourn.engines.http import Endpoint
from bourn.engines.remote import Remote
from bourn.errors import ModelNotFound, PromptTooLong
from bourn.types import FinishReason, Message, Piece, Request, Sampling
from tests.support import llama_server

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]

GREEDY = Sampling(temperature=0, seed=1)


@pytest.fixture(scope="module")
def url(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    socket = tmp_path_factory.mktemp("l") / "l.sock"
    command = [sys.executable, llama_server.__file__, str(smollm2), str(socket)]
    with subprocess.Popen(
        command,
        env=os.environ | {"GOMP_SPINCOUNT": "1000"},  # else a busy machine makes it crawl
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield f"unix:{socket}"
        child.kill()


def chat(text: str, limit: int) -> Request:
    return Request(
        messages=(Message("user", text),), sampling=GREEDY, max_new_tokens=limit, logprobs=0
    )


async def collect(engine: Remote, request: Request) -> list[Piece]:
    async with aclosing(engine.generate(request)) as pieces:
        return [piece async for piece in pieces]


async def test_it_is_found_out(url: str, smollm2: Path) -> None:
    engine = Remote(url)
    info = await engine.start()
    assert (info.engine, info.window, info.slots, info.resolves) == ("llamacpp", 1024, 2, True)
    assert smollm2.name in info.name
    assert info.defaults.temperature == 0.8
    assert not {"images", "tools"} & info.honours
    await engine.aclose()
    with pytest.raises(ModelNotFound):
        await Remote(url, model="another").start()


async def test_an_answer_with_progress_counts_and_logprobs(url: str) -> None:
    engine = Remote(url)
    pieces = await collect(engine, chat("Say hi.", 5))
    progress = [piece for piece in pieces if piece.prompt_total]
    assert progress[-1].prompt_done == progress[-1].prompt_total
    text = "".join(piece.text for piece in pieces)
    tokens = b"".join(entry.bytes for piece in pieces for entry in piece.logprobs)
    assert tokens.decode() == text != ""
    last = pieces[-1]
    assert last.finish in (FinishReason.LENGTH, FinishReason.STOP)
    assert last.usage is not None
    assert last.usage.prompt_tokens == progress[-1].prompt_total
    assert last.usage.completion_tokens == sum(piece.tokens for piece in pieces) >= 1
    assert not last.usage.estimated
    await engine.aclose()


async def test_two_answers_to_a_raw_prompt(url: str) -> None:
    engine = Remote(url)
    request = Request(prompt="One, two,", sampling=GREEDY, max_new_tokens=3, n=2)
    pieces = await collect(engine, request)
    texts = ["".join(p.text for p in pieces if p.choice == choice) for choice in (0, 1)]
    assert texts[0] == texts[1] != ""
    assert sorted(piece.choice for piece in pieces if piece.finish) == [0, 1]
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.completion_tokens == 6
    await engine.aclose()


async def test_a_prompt_that_is_too_long(url: str) -> None:
    engine = Remote(url)
    with pytest.raises(PromptTooLong) as raised:
        await collect(engine, chat("word " * 2000, 1))
    assert raised.value.window == 1024
    assert (raised.value.prompt_tokens or 0) > 2000
    await engine.aclose()


async def test_leaving_frees_the_slot(url: str) -> None:
    engine = Remote(url)
    async with aclosing(engine.generate(chat("Tell me a long story.", 900))) as pieces:
        async for piece in pieces:
            if piece.text:
                break
    endpoint = Endpoint(Address.of(url))
    async with asyncio.timeout(30):
        busy = True
        while busy:
            await asyncio.sleep(0.02)
            busy = any(slot["is_processing"] for slot in await endpoint.get("/slots", root=True))
    await endpoint.aclose()
    await engine.aclose()
