"""OpenAI's own package, unchanged, against `bourn serve` with real models of both kinds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any, Literal

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from tests.support.sdk import Clients, clients_of
from tests.support.serve import Served

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform == "win32", reason="signals"),
]

FRANCE: Any = [{"role": "user", "content": "Name the capital of France."}]
STORY: Any = [{"role": "user", "content": "Tell me a long story"}]
ANEW = {"bourn": {"cache": "no-cache"}}
FOREVER = {"ignore_eos": True}
TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest_asyncio.fixture
async def clients(both: Served) -> AsyncIterator[Clients]:
    async with clients_of(both.url) as made:
        yield made


@pytest.fixture
def awaited(clients: Clients) -> AsyncOpenAI:
    return clients.awaited


def text_of(chunks: Any) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


async def test_models(awaited: AsyncOpenAI) -> None:
    models = await awaited.models.list()
    assert [each.id for each in models.data] == ["gguf", "checkpoint"]
    assert (await awaited.models.retrieve("checkpoint")).owned_by == "bourn"


# -- chats -----------------------------------------------------------------------------------------


async def test_a_chat_is_the_same_whole_and_streamed_with_and_without_await(
    clients: Clients, model: str
) -> None:
    asked: Any = {"model": model, "messages": FRANCE, "temperature": 0, "seed": 1}
    asked |= {"max_tokens": 30, "extra_body": ANEW}
    create = clients.awaited.chat.completions.create
    whole = await create(**asked)
    stream = await create(**asked, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    plain = await clients.plain(lambda c: c.chat.completions.create(**asked))
    plain_chunks = await clients.plain(
        lambda c: list(c.chat.completions.create(**asked, stream=True))
    )
    text = whole.choices[0].message.content
    assert "Paris" in text
    assert plain.choices[0].message.content == text
    assert text_of(chunks) == text_of(plain_chunks) == text
    assert whole.choices[0].finish_reason == plain.choices[0].finish_reason == "stop"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage == whole.usage
    assert all(chunk.usage is None for chunk in plain_chunks)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert whole.model == chunks[0].model == model
    for told in (whole, chunks[-1], plain_chunks[-1]):
        assert told.metrics["time_to_first_token_ms"] > 0
        assert told.metrics["tokens_per_second"] > 0


async def test_the_stream_helper(clients: Clients, model: str) -> None:
    asked: Any = {"model": model, "messages": FRANCE, "temperature": 0, "max_tokens": 16}

    def read(client: OpenAI) -> Any:
        with client.chat.completions.stream(**asked) as stream:
            events = list(stream)
            return events, stream.get_final_completion()

    events, answer = await clients.plain(read)
    async with clients.awaited.chat.completions.stream(**asked) as stream:
        other_events = [event async for event in stream]
        other = await stream.get_final_completion()
    seen: Any
    told: Any
    for seen, told in ((events, answer), (other_events, other)):
        text = told.choices[0].message.content
        assert "Paris" in text
        assert "".join(e.delta for e in seen if e.type == "content.delta") == text
        assert seen[-1].type == "content.done"
        assert told.choices[0].finish_reason == "stop"


async def test_several_answers_of_one_request(awaited: AsyncOpenAI, model: str) -> None:
    asked: Any = {"model": model, "messages": STORY, "n": 2, "temperature": 1, "max_tokens": 32}
    asked |= {"seed": 1, "extra_body": FOREVER}
    whole = await awaited.chat.completions.create(**asked)
    first, second = (choice.message.content for choice in whole.choices)
    assert first
    assert second
    assert first != second
    stream = await awaited.chat.completions.create(**asked, stream=True)
    texts, ends = ["", ""], []
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            ends += [choice.index] if choice.finish_reason else []
    assert all(texts)
    assert sorted(ends) == [0, 1]


async def test_a_seed_gives_the_same_again(awaited: AsyncOpenAI, model: str) -> None:
    async def answer(seed: int | None) -> str:
        told = await awaited.chat.completions.create(
            model=model,
            messages=STORY,
            seed=seed,
            temperature=1.2,
            max_tokens=20,
            extra_body=ANEW | FOREVER,
        )
        return told.choices[0].message.content or ""

    assert await answer(7) == await answer(7)
    assert len({await answer(seed) for seed in (7, 8, None)}) == 3


async def test_limits_and_stops(awaited: AsyncOpenAI, model: str) -> None:
    create = awaited.chat.completions.create
    short = await create(model=model, messages=STORY, max_completion_tokens=3, extra_body=FOREVER)
    assert short.choices[0].finish_reason == "length"
    assert short.usage is not None
    assert short.usage.completion_tokens == 3
    stopped = await create(
        model=model, messages=FRANCE, temperature=0, stop=["Paris", "London"], max_tokens=30
    )
    assert stopped.choices[0].finish_reason == "stop"
    assert (stopped.choices[0].message.content or "").endswith("is ")


async def test_log_probabilities(awaited: AsyncOpenAI, model: str) -> None:
    asked: Any = {"model": model, "messages": FRANCE, "temperature": 0, "max_tokens": 5}
    asked |= {"logprobs": True, "top_logprobs": 3}
    whole = await awaited.chat.completions.create(**asked)
    stream = await awaited.chat.completions.create(**asked, stream=True)
    parts = [c.choices[0].logprobs async for c in stream if c.choices and c.choices[0].logprobs]
    choice = whole.choices[0]
    assert choice.logprobs is not None
    told = choice.logprobs.content
    assert told is not None
    assert len(told) == 5
    assert all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in told)
    assert all(entry.token == entry.top_logprobs[0].token for entry in told)  # it is greedy
    said = b"".join(bytes(entry.bytes or ()) for entry in told)
    assert said.decode() == choice.message.content
    streamed = [entry.token for part in parts for entry in part.content or ()]
    assert streamed == [entry.token for entry in told]


class City(BaseModel):
    name: str
    country: Literal["France", "Spain"]


async def test_a_shape(awaited: AsyncOpenAI, model: str) -> None:
    parse = awaited.chat.completions.parse
    asked: Any = {"model": model, "messages": FRANCE, "temperature": 0, "max_tokens": 60}
    if model == "checkpoint":
        with pytest.raises(openai.BadRequestError) as raised:
            await parse(**asked, response_format=City)
        assert raised.value.param == "response_format"
        return
    told = (await parse(**asked, response_format=City)).choices[0].message.parsed
    assert isinstance(told, City)
    async with awaited.chat.completions.stream(**asked, response_format=City) as stream:
        streamed = (await stream.get_final_completion()).choices[0].message.parsed
    assert streamed == told


# -- old completions -------------------------------------------------------------------------------


async def test_old_completions(clients: Clients, model: str) -> None:
    asked: Any = {"model": model, "prompt": "1, 2, 3, 4,", "temperature": 0, "max_tokens": 5}
    whole = await clients.awaited.completions.create(**asked, logprobs=2)
    stream = await clients.plain(lambda c: list(c.completions.create(**asked, stream=True)))
    choice = whole.choices[0]
    assert (choice.text, choice.finish_reason) == (" 5, 6", "length")
    assert "".join(chunk.choices[0].text for chunk in stream) == " 5, 6"
    assert stream[-1].choices[0].finish_reason == "length"
    assert choice.logprobs is not None
    assert "".join(choice.logprobs.tokens or ()) == " 5, 6"
    assert [len(top) for top in choice.logprobs.top_logprobs or ()] == [2] * 5
    stopped = await clients.awaited.completions.create(**asked, stop=" 6")
    assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == (" 5,", "stop")


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_errors_are_the_sdks_own(clients: Clients, model: str, stream: bool) -> None:
    create = clients.awaited.chat.completions.create
    asked: Any = {"model": model, "messages": FRANCE, "stream": stream}
    long: Any = [{"role": "user", "content": "word " * 600}]
    with pytest.raises(openai.NotFoundError) as missing:
        await create(**asked | {"model": "other"})
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as raised:
        await create(**asked | {"messages": long})
    assert raised.value.code == "context_length_exceeded"
    wrong: dict[str, Any] = {"temperature": -1, "tools": [TOOL], "logit_bias": {"x": 1}, "n": 50}
    for name, value in wrong.items():
        with pytest.raises(openai.BadRequestError) as raised:
            await create(**asked, **{name: value})
        assert raised.value.param == name or f"{name} is" in raised.value.message
    with pytest.raises(openai.BadRequestError) as raised:
        await clients.plain(
            lambda c: c.chat.completions.create(**asked, extra_body={"temprature": 1})
        )
    assert raised.value.param == "temprature"


async def test_what_one_engine_can_and_the_other_cannot(awaited: AsyncOpenAI, model: str) -> None:
    create = awaited.chat.completions.create
    asked: Any = {"model": model, "messages": FRANCE, "temperature": 0, "max_tokens": 20}
    own: dict[str, Any] = {"min_tokens": 20, "stop_token_ids": [2229]}
    for name, value in own.items():
        if model == "gguf":
            with pytest.raises(openai.BadRequestError) as raised:
                await create(**asked, extra_body={name: value})
            assert (raised.value.code, raised.value.param) == ("unsupported_field", name)
        else:
            told = await create(**asked, extra_body={name: value})
            assert told.usage is not None
            assert " Paris" in (told.choices[0].message.content or "")
            assert told.usage.completion_tokens == 20 or name != "min_tokens"


CAPITAL = [504, 3575, 282, 4649, 314]
"""The capital of France is"""

PARIS = 7042


async def test_tokens_by_their_ids(awaited: AsyncOpenAI, model: str) -> None:
    create = awaited.completions.create
    asked: Any = {"model": model, "temperature": 0, "max_tokens": 6}
    by_text = await create(prompt="The capital of France is", **asked)
    by_ids = await create(prompt=CAPITAL, **asked)
    assert by_ids.choices[0].text == by_text.choices[0].text
    assert by_ids.choices[0].text.startswith(" Paris")
    assert by_ids.usage is not None
    assert by_ids.usage.prompt_tokens == len(CAPITAL)
    other = await create(prompt=CAPITAL, logit_bias={str(PARIS): -100}, **asked)
    assert not other.choices[0].text.startswith(" Paris")
    with pytest.raises(openai.BadRequestError):
        await create(prompt=[2**31 - 1], **asked)


# -- leaving ---------------------------------------------------------------------------------------


async def test_a_stream_that_is_closed_is_computed_no_further(
    both: Served, clients: Clients, model: str
) -> None:
    asked: Any = {"model": model, "messages": STORY, "stream": True, "extra_body": FOREVER}
    stream = await clients.awaited.chat.completions.create(**asked)
    async for chunk in stream:
        if text_of([chunk]):
            break
    assert both.count("bourn:num_requests_running", model) == 1
    await stream.close()
    assert both.idle(model)

    def leave(client: OpenAI) -> None:
        with client.chat.completions.create(**asked) as parts:
            next(iter(parts))

    await clients.plain(leave)
    assert both.idle(model)


async def test_a_whole_answer_that_takes_too_long_for_its_client(
    both: Served, clients: Clients, model: str
) -> None:
    asked: Any = {"model": model, "messages": STORY, "extra_body": FOREVER, "timeout": 0.5}
    with pytest.raises(openai.APITimeoutError):
        await clients.awaited.chat.completions.create(**asked)
    with pytest.raises(openai.APITimeoutError):
        await clients.plain(lambda c: c.chat.completions.create(**asked))
    assert both.idle(model)


async def test_a_task_that_is_cancelled(both: Served, awaited: AsyncOpenAI, model: str) -> None:
    asked: Any = {"model": model, "messages": STORY, "extra_body": FOREVER}
    task = asyncio.ensure_future(awaited.chat.completions.create(**asked))
    while not both.count("bourn:num_requests_running", model):
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})
    assert both.idle(model)


# -- headers, and bourn's own wishes ---------------------------------------------------------------


async def test_headers_of_an_answer(awaited: AsyncOpenAI, model: str) -> None:
    asked: Any = {"model": model, "messages": FRANCE, "temperature": 0, "max_tokens": 30}
    create = awaited.chat.completions.with_raw_response.create
    made = await create(**asked, extra_body=ANEW)
    again = await create(**asked)
    assert made.headers["x-bourn-cache"] == "miss"
    assert again.headers["x-bourn-cache"] == "hit"
    first, second = made.parse(), again.parse()
    assert first.id == made.headers["x-bourn-stream"] != second.id
    assert first.choices == second.choices
    streaming = awaited.chat.completions.with_streaming_response.create
    async with streaming(**asked, stream=True) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-bourn-cache"] == "hit"
        lines = [line async for line in answer.iter_lines()]
    assert [line for line in lines if line][-1] == "data: [DONE]"


async def test_a_stream_that_is_come_back_to(
    both: Served, awaited: AsyncOpenAI, model: str
) -> None:
    asked: Any = {"model": model, "messages": STORY, "max_tokens": 40, "stream": True}
    stream = await awaited.chat.completions.create(
        **asked, extra_body=FOREVER | {"bourn": {"background": True}}
    )
    first = await anext(aiter(stream))
    await stream.close()
    back = await awaited.get(
        f"/streams/{first.id}",
        cast_to=openai.types.chat.ChatCompletionChunk,
        stream=True,
        stream_cls=openai.AsyncStream[openai.types.chat.ChatCompletionChunk],
    )
    chunks = [chunk async for chunk in back]
    assert {chunk.id for chunk in chunks} == {first.id}
    assert chunks[-1].choices[0].finish_reason == "length"
    assert text_of(chunks)
    ended: Any = await awaited.delete(f"/streams/{first.id}", cast_to=object)
    assert ended["cancelled"] is False  # it is whole
