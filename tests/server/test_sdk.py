"""OpenAI's own package, unchanged, against the server on a port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from bourn.engines.scripted import Script
from bourn.errors import EngineCrashed, PromptTooLong, RateLimited
from bourn.server.config import ServerConfig
from bourn.types import Request
from tests.support.scripted_site import Site, site
from tests.support.sdk import HI, Clients
from tests.support.served_app import serving

TOOLS: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CALLED = 'Well.<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
FOREVER = Script(["x "] * 1_000_000, delay=0.001)


class Asked(Clients):
    """And the server that they ask."""

    def __init__(self, server: Site, url: str, key: str) -> None:
        super().__init__(url, key)
        self.server = server


@asynccontextmanager
async def clients(
    script: Script | Callable[[Request], Script], *, key: str = "none", **how: Any
) -> AsyncIterator[Asked]:
    async with site(script, **how) as server, serving(server.app) as port:
        made = Asked(server, f"http://127.0.0.1:{port}", key)
        try:
            yield made
        finally:
            await made.aclose()


async def test_a_whole_answer() -> None:
    async with clients(Script(["Hel", "lo"])) as both:
        answer = await both.awaited.chat.completions.create(model="m", messages=HI)
        again = await both.plain(lambda c: c.chat.completions.create(model="m", messages=HI))
    told: Any
    for told in (answer, again):
        assert (told.choices[0].message.content, told.choices[0].finish_reason) == ("Hello", "stop")
        assert told.usage is not None
        assert told.usage.completion_tokens == 2
        assert told.model == "m"
        assert told.metrics["time_to_first_token_ms"] > 0


async def test_a_stream() -> None:
    async with clients(Script(["Hel", "lo"])) as both:
        stream = await both.awaited.chat.completions.create(
            model="m", messages=HI, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        plain = await both.plain(
            lambda c: list(c.chat.completions.create(model="m", messages=HI, stream=True))
        )
    assert [c.choices[0].delta.content for c in chunks[:-1]] == ["", "Hel", "lo", None]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 10
    assert "".join(c.choices[0].delta.content or "" for c in plain) == "Hello"
    assert plain[-1].model_extra["metrics"]["tokens_per_second"] > 0


async def test_the_stream_helper_and_tool_calls() -> None:
    facts = {"channels": "think", "calls": "hermes"}

    def read(client: OpenAI) -> Any:
        with client.chat.completions.stream(model="m", messages=HI, tools=TOOLS) as stream:
            kinds = [event.type for event in stream]
            return kinds, stream.get_final_completion()

    async with clients(Script([*CALLED]), **facts) as both:
        kinds, answer = await both.plain(read)
        async with both.awaited.chat.completions.stream(
            model="m", messages=HI, tools=TOOLS
        ) as stream:
            async for _ in stream:
                pass
            other = await stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    told: Any
    for told in (answer, other):
        choice = told.choices[0]
        assert (choice.message.content, choice.finish_reason) == ("Well.", "tool_calls")
        (call,) = choice.message.tool_calls
        assert (call.function.name, call.function.arguments) == ("f", '{"a": 1}')


async def test_what_a_tool_said_is_asked_with() -> None:
    facts = {"channels": "think", "calls": "hermes"}
    seen: list[Request] = []

    def script(request: Request) -> Script:
        seen.append(request)
        return Script([*CALLED] if len(seen) == 1 else ["Done."])

    async with clients(script, **facts) as both:
        create = both.awaited.chat.completions.create
        message = (await create(model="m", messages=HI, tools=TOOLS)).choices[0].message
        assert message.tool_calls
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "42"}
        dumped = message.model_dump()
        answer = await create(model="m", messages=[*HI, dumped, result], tools=TOOLS)  # type: ignore[list-item]
    assert answer.choices[0].message.content == "Done."
    assert seen[1].messages[1].tool_calls[0].arguments == '{"a": 1}'
    assert seen[1].messages[2].text == "42"


async def test_a_shape_that_is_parsed() -> None:
    class Point(BaseModel):
        x: int

    async with clients(Script(['{"x":', " 5}"])) as both:
        answer = await both.awaited.chat.completions.parse(
            model="m", messages=HI, response_format=Point
        )
    assert answer.choices[0].message.parsed == Point(x=5)


async def test_old_completions() -> None:
    async with clients(Script(["a", "b"])) as both:
        whole = await both.awaited.completions.create(model="m", prompt="x", max_tokens=1)
        stream = await both.awaited.completions.create(model="m", prompt="x", stream=True)
        texts = [chunk.choices[0].text async for chunk in stream]
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("a", "length")
    assert "".join(texts) == "ab"


async def test_models() -> None:
    async with clients(Script(["a"])) as both:
        models = await both.awaited.models.list()
        model = await both.awaited.models.retrieve("m")
        with pytest.raises(openai.NotFoundError):
            await both.awaited.models.retrieve("org/other")
    assert [each.id for each in models.data] == ["m"]
    assert model.owned_by == "bourn"


ERRORS = [
    (PromptTooLong("9 > 8", prompt_tokens=9, window=8), openai.BadRequestError),
    (RateLimited("slow down"), openai.RateLimitError),
    (EngineCrashed("it died"), openai.InternalServerError),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_errors_are_the_sdks_own(error: Exception, kind: Any, stream: bool) -> None:
    async with clients(Script(["a"], fail_at=0, error=error)) as both:
        with pytest.raises(kind, match=str(error)) as raised:
            await both.awaited.chat.completions.create(model="m", messages=HI, stream=stream)
    assert raised.value.code == getattr(error, "code", None)


async def test_errors_of_what_was_asked() -> None:
    async with clients(Script(["a"])) as both:
        create = both.awaited.chat.completions.create
        with pytest.raises(openai.NotFoundError):
            await create(model="other", messages=HI)
        with pytest.raises(openai.BadRequestError) as raised:
            await create(model="m", messages=HI, temperature=-1)
        assert raised.value.param == "temperature"
        with pytest.raises(openai.BadRequestError) as raised:
            await create(model="m", messages=HI, extra_body={"temprature": 1})
        assert raised.value.param == "temprature"


async def test_keys() -> None:
    config = ServerConfig(keys=frozenset({"right"}))
    async with clients(Script(["a"]), key="wrong", config=config) as both:
        create = both.awaited.chat.completions.create
        with pytest.raises(openai.AuthenticationError):
            await create(model="m", messages=HI)
        both.awaited.api_key = "right"
        assert (await create(model="m", messages=HI)).choices[0].message.content == "a"


async def test_an_error_in_the_stream_is_raised() -> None:
    script = Script(["a", "b"], fail_at=1, error=EngineCrashed("it died"))
    texts: list[str | None] = []

    async def read(client: AsyncOpenAI) -> None:
        stream = await client.chat.completions.create(model="m", messages=HI, stream=True)
        async for chunk in stream:
            texts.append(chunk.choices[0].delta.content)  # noqa: PERF401 (till it fails)

    async with clients(script) as both:
        with pytest.raises(openai.APIError, match="it died") as raised:
            await read(both.awaited)
    assert "a" in texts
    assert raised.value.code == "engine_crashed"


async def test_closed_by_the_sdk_it_ends() -> None:
    async with clients(FOREVER) as both:
        stream = await both.awaited.chat.completions.create(model="m", messages=HI, stream=True)
        seen = 0
        async for _ in stream:
            seen += 1
            if seen == 3:
                break
        await stream.close()
        await asyncio.wait_for(both.server.idle(), 20)


async def test_a_whole_answer_that_is_given_up() -> None:
    async with clients(FOREVER) as both:
        asked = asyncio.ensure_future(both.awaited.chat.completions.create(model="m", messages=HI))
        while not both.server.engine.running:
            await asyncio.sleep(0.001)
        asked.cancel()
        await asyncio.wait({asked})
        await asyncio.wait_for(both.server.idle(), 20)


async def test_wishes_in_the_extra_body() -> None:
    async with clients(FOREVER) as both:
        raw = await both.awaited.chat.completions.with_raw_response.create(
            model="m", messages=HI, stream=True, extra_body={"bourn": {"background": True}}
        )
        assert raw.headers["x-bourn-resumable"] == "yes"
        stream = raw.parse()
        first = await anext(aiter(stream))
        assert first.id == raw.headers["x-bourn-stream"]
        await stream.close()
        await asyncio.sleep(0.02)
        assert both.server.fleet.live == 1
        ended = await both.awaited.post(f"/streams/{first.id}/cancel", cast_to=object)
        assert ended == {"id": first.id, "object": "stream", "cancelled": True}
        await asyncio.wait_for(both.server.idle(), 20)
