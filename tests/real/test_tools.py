"""Calls of tools by real models, whose template shows them tools as Hermes models know them.

The model is too small to call anything by itself: an earlier call in the chat shows it how.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, OpenAI

from tests.support.hermes import HERMES
from tests.support.sdk import Clients, clients_of
from tests.support.serve import Served, serving

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform == "win32", reason="signals"),
]

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
OTHER: Any = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}


def call(city: str) -> dict[str, Any]:
    function = {"name": "weather", "arguments": json.dumps({"city": city})}
    return {"id": "call_1", "type": "function", "function": function}


ROME: list[Any] = [
    {"role": "user", "content": "What is the weather in Rome?"},
    {"role": "assistant", "content": "", "tool_calls": [call("Rome")]},
]
ASKED: dict[str, Any] = {
    "messages": [*ROME, {"role": "user", "content": "What is the weather in Paris?"}],
    "tools": [WEATHER],
    "temperature": 0,
    "max_tokens": 60,
    "extra_body": {"bourn": {"cache": "no-cache"}},
}


@pytest.fixture(scope="module")
def tooled(
    smollm2: Path, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    template = home / "hermes.jinja"
    template.write_text(HERMES, "utf-8")
    models = (f"gguf={smollm2}", f"checkpoint={checkpoint}")
    how = ("--threads", "1", "--window", "512", "--cpu-only", "--chat-template", str(template))
    with serving(*models, *how, home=home) as server:
        server.ready()
        yield server


@pytest_asyncio.fixture
async def clients(tooled: Served) -> AsyncIterator[Clients]:
    async with clients_of(tooled.url) as made:
        yield made


@pytest.fixture
def awaited(clients: Clients) -> AsyncOpenAI:
    return clients.awaited


def assert_called(choice: Any, city: str = "Paris") -> None:
    assert choice.finish_reason == "tool_calls"
    assert not choice.message.content
    (made,) = choice.message.tool_calls
    assert made.id
    assert made.function.name == "weather"
    assert json.loads(made.function.arguments) == {"city": city}


async def test_a_call_whole_and_streamed(clients: Clients, model: str) -> None:
    whole = await clients.awaited.chat.completions.create(model=model, **ASKED)
    assert_called(whole.choices[0])

    def read(client: OpenAI) -> Any:
        with client.chat.completions.stream(model=model, **ASKED) as stream:
            kinds = [event.type for event in stream]
            return kinds, stream.get_final_completion()

    kinds, streamed = await clients.plain(read)
    assert_called(streamed.choices[0])
    assert "tool_calls.function.arguments.done" in kinds


async def test_the_frames_of_a_call(awaited: AsyncOpenAI, model: str) -> None:
    stream = await awaited.chat.completions.create(model=model, stream=True, **ASKED)
    role, *parts, finish = [chunk.choices[0] async for chunk in stream]
    assert (role.delta.role, role.delta.content) == ("assistant", "")
    calls = [part for each in parts for part in each.delta.tool_calls or ()]
    assert {part.index for part in calls} == {0}
    assert [bool(part.id) for part in calls] == [True] + [False] * (len(calls) - 1)
    told = "".join(part.function.arguments or "" for part in calls if part.function)
    assert json.loads(told) == {"city": "Paris"}
    assert {each.finish_reason for each in parts} == {None}
    assert finish.finish_reason == "tool_calls"
    assert not finish.delta.tool_calls


async def test_what_the_tool_said_is_answered_with(awaited: AsyncOpenAI, model: str) -> None:
    said = {"role": "tool", "tool_call_id": "call_1", "content": "It rains in Rome."}
    asked = ASKED | {"messages": [*ROME, said], "max_tokens": 20}
    told = await awaited.chat.completions.create(model=model, **asked)
    assert "Rome" in (told.choices[0].message.content or "")


async def test_no_call_and_one_at_most(awaited: AsyncOpenAI, model: str) -> None:
    create = awaited.chat.completions.create
    none = await create(model=model, tool_choice="none", **ASKED | {"max_tokens": 12})
    assert not none.choices[0].message.tool_calls
    assert none.choices[0].finish_reason in {"stop", "length"}
    assert_called((await create(model=model, parallel_tool_calls=False, **ASKED)).choices[0])


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "time"}}])
async def test_a_call_that_is_forced(awaited: AsyncOpenAI, model: str, choice: Any) -> None:
    asked = ASKED | {"tools": [WEATHER, OTHER], "tool_choice": choice}
    if model == "checkpoint":
        with pytest.raises(openai.BadRequestError) as raised:
            await awaited.chat.completions.create(model=model, **asked)
        assert raised.value.param == "tool_choice"
        return
    told = (await awaited.chat.completions.create(model=model, **asked)).choices[0]
    assert told.finish_reason == "tool_calls"
    assert told.message.tool_calls
    (made,) = told.message.tool_calls
    assert made.type == "function"
    assert made.function.name in ({"weather", "time"} if choice == "required" else {"time"})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_call_that_the_limit_cuts_is_none(
    awaited: AsyncOpenAI, model: str, stream: bool
) -> None:
    asked: Any = {"model": model, "stream": stream} | ASKED | {"max_tokens": 12}
    told: Any = await awaited.chat.completions.create(**asked)
    chunks = [chunk async for chunk in told] if stream else [told]
    assert chunks[-1].choices[0].finish_reason == "length"
