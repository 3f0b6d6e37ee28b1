"""The real checkpoint on slots: what `generate` says, for many at once, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

import bourn
from bourn.types import FinishReason

pytestmark = pytest.mark.real

QUESTIONS = [
    "What is the capital of France?",
    "Write the alphabet.",
    "Tell me a story of a fox. " * 12,
    "Say hello in three languages.",
    "What is the capital of France? And of Spain?",
]
GREEDY: Any = {"temperature": 0, "max_new_tokens": 12}


@pytest.fixture(scope="module")
def loaded(checkpoint: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(checkpoint)


@pytest.fixture(scope="module")
def right(loaded: tuple[Any, Any]) -> list[str]:
    """What `generate` answers, asked one after the other."""
    model, tokenizer = loaded
    answers = []
    for question in QUESTIONS:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )
        out = model.generate(**ids, max_new_tokens=12, do_sample=False)
        new = out[0, ids["input_ids"].shape[1] :]
        answers.append(tokenizer.decode(new, skip_special_tokens=True))
    return answers


@pytest.fixture
async def model(loaded: tuple[Any, Any]) -> AsyncIterator[bourn.aio.Model]:
    async with bourn.aio.hf(*loaded, slots=3, window=2048) as model:
        yield model


async def test_many_at_once_are_what_each_is_alone(
    model: bourn.aio.Model, right: list[str]
) -> None:
    for _ in range(2):  # the second time beginnings are reused
        streams = [model.stream(question, **GREEDY) for question in QUESTIONS]
        assert await asyncio.gather(*(stream.read() for stream in streams)) == right


async def test_it_stops_by_itself(model: bourn.aio.Model) -> None:
    stream = model.stream(QUESTIONS[0], temperature=0, max_new_tokens=60)
    assert "Paris" in await stream.read()
    assert stream.finish_reason is FinishReason.STOP
    assert stream.usage.completion_tokens < 20


async def test_a_long_prompt_that_is_left_stops_at_the_next_part(model: bourn.aio.Model) -> None:
    stream = model.stream("the fox and the hound " * 300, max_new_tokens=4)
    await asyncio.sleep(0.3)
    await stream.cancel()
    while model.hub.live:
        await asyncio.sleep(0.01)
    again = model.stream(QUESTIONS[0], **GREEDY)
    assert "Paris" in await again.read()


async def test_a_thousand_short_requests_a_third_left_early_leave_nothing() -> None:
    from tests.engines.hf.test_engine import made, tokenizer

    process = psutil.Process()
    few = ThreadPoolExecutor(2)  # asyncio's own grows with the cores, and with what comes at once
    asyncio.get_running_loop().set_default_executor(few)

    async def ask(model: bourn.aio.Model, number: int) -> None:
        stream = model.stream(f"{number}: tell", max_new_tokens=6)
        async for _ in stream:
            if number % 3 == 0:
                break
        await stream.aclose()

    async def held(model: bourn.aio.Model, numbers: range) -> int:
        for begin in numbers[::40]:
            await asyncio.gather(*(ask(model, number) for number in range(begin, begin + 40)))
        gc.collect()
        told = process.memory_full_info()
        return int(told.uss + told.swap)

    async with bourn.aio.hf(made(), tokenizer(), slots=8, window=256) as model:
        before = await held(model, range(400))
        threads = threading.active_count()
        after = await held(model, range(400, 1400))
        assert threading.active_count() <= threads
        assert model.hub.live == 0
    assert after - before < 8 * 2**20
