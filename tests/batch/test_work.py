from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion

from bourn.aio import Model
from bourn.batch import Ahead, Job, Outcome, Tally, answers, jobs
from bourn.engines.scripted import Script, Scripted
from bourn.errors import EngineError, PromptTooLong
from bourn.settings import Settings
from bourn.types import Channel, Piece, Request, TokenLogprob, ToolDelta

WORDS = ["one ", "two ", "three"]


def echo(request: Request) -> Script:
    """Says the question again; fails where the question asks for it."""
    said = request.messages[-1].text if request.messages else str(request.prompt)
    if said == "too long":
        raise PromptTooLong("it does not fit", prompt_tokens=9, window=4)
    fail_at = 1 if said == "break" else None
    return Script([said, "!"], fail_at=fail_at, error=EngineError("paper jam"))


def read(lines: Iterable[dict[str, Any]]) -> Iterable[Job]:
    return jobs((json.dumps(line).encode() for line in lines), Settings())


async def outcomes(engine: Scripted, of: Iterable[Job], *, at_once: int = 3) -> list[Outcome]:
    async with Model(engine) as model:
        with Ahead(of) as ahead:
            return [each async for each in answers(model, ahead, at_once=at_once)]


async def objects(engine: Scripted, *lines: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines out, in the order of the lines in."""
    came = await outcomes(engine, read(lines))
    came.sort(key=lambda outcome: outcome.job.line)
    return [outcome.object("m") for outcome in came]


async def test_an_answer_is_a_line_with_all_that_is_known_of_it() -> None:
    (told,) = await objects(Scripted(Script(WORDS)), {"id": "a", "prompt": "hi", "seed": 7})
    assert list(told) == ["id", "text", "finish_reason", "seed", "usage", "metrics"]
    assert (told["id"], told["text"], told["finish_reason"]) == ("a", "one two three", "stop")
    assert (told["seed"], told["usage"]["completion_tokens"]) == (7, 3)
    assert told["metrics"]["tokens"] == 3


async def test_one_that_fails_is_a_line_with_an_error_and_the_rest_goes_on() -> None:
    told = await objects(
        Scripted(echo),
        {"prompt": "a"},
        {"prompt": "break"},
        {"prompt": "too long"},
        {"prompt": "b", "temperature": -1},
        {"id": "e", "prompt": "b", "min_new_tokens": 5},
        {"prompt": "c"},
    )
    assert [line["id"] for line in told] == [1, 2, 3, 4, "e", 6]
    assert [line.get("text") for line in told] == ["a!", None, None, None, None, "c!"]
    errors = [line["error"] for line in told if "error" in line]
    assert [error["code"] for error in errors] == [
        *("engine_error", "context_length_exceeded", "invalid_request", "unsupported_field")
    ]
    assert errors[0]["message"] == "paper jam"
    assert told[4]["line"] == 5


async def test_choices_entries_reasoning_and_calls_are_there_where_they_are() -> None:
    said = [
        Piece("hm", Channel.REASONING, tokens=1),
        Piece("a", tokens=1, logprobs=(TokenLogprob("a", -0.5, b"a"),)),
        Piece(tool=ToolDelta(0, "c", "f", "{}"), channel=Channel.TOOL, tokens=1),
    ]
    (told,) = await objects(Scripted(Script(said)), {"prompt": "hi", "n": 2, "logprobs": 0})
    choice = {
        "text": "a",
        "reasoning": "hm",
        "tool_calls": [{"id": "c", "name": "f", "arguments": "{}"}],
        "logprobs": [{"token": "a", "logprob": -0.5, "bytes": [97]}],
        "finish_reason": "stop",
    }
    assert told["choices"] == [choice, choice]
    assert told | choice == told


async def test_a_call_that_could_not_be_read_is_in_the_text() -> None:
    engine = Scripted(Script(["<tool_call>", "{oops", "</tool_call>"]), channels="think")
    (told,) = await objects(engine, {"prompt": "hi"})
    assert told["text"] == "{oops"


async def test_a_request_in_openais_form_has_an_answer_in_it() -> None:
    engine = Scripted(echo)
    chat, completion, failed, wrong = await objects(
        engine,
        {"custom_id": "a", "body": {"messages": [{"role": "user", "content": "hi"}], "n": 2}},
        {"custom_id": "b", "url": "/v1/completions", "body": {"prompt": "Once"}},
        {"custom_id": "c", "body": {"prompt": "break"}},
        {"custom_id": "d", "body": {"promt": "hi"}},
    )
    assert list(chat) == ["custom_id", "response", "error"]
    assert (chat["custom_id"], chat["error"]) == ("a", None)
    assert chat["response"]["status_code"] == 200
    answer = ChatCompletion.model_validate(chat["response"]["body"], strict=True)
    assert [choice.message.content for choice in answer.choices] == ["hi!", "hi!"]
    assert answer.model == "m"
    text = Completion.model_validate(completion["response"]["body"], strict=True)
    assert text.choices[0].text == "Once!"
    for line, code in ((failed, "engine_error"), (wrong, "invalid_request")):
        assert (line["response"], line["error"]["code"]) == (None, code)


@pytest.mark.parametrize(("slots", "at_once", "most"), [(None, 5, 5), (2, 5, 2), (8, 3, 3)])
async def test_so_many_are_asked_at_once(slots: int | None, at_once: int, most: int) -> None:
    engine = Scripted(Script(WORDS, delay=0.001), slots=slots)
    seen: list[int] = []
    generate = engine.generate

    def watched(request: Request) -> Any:
        seen.append(engine.running + 1)
        return generate(request)

    engine.generate = watched  # type: ignore[method-assign]
    came = await outcomes(engine, read({"prompt": "x"} for _ in range(20)), at_once=at_once)
    assert len(came) == 20
    assert max(seen) == most


async def test_they_come_in_the_order_in_which_they_are_done() -> None:
    def slower(request: Request) -> Script:
        return Script(WORDS, delay=0.03 if request.messages[-1].text == "slow" else 0)

    came = await outcomes(
        Scripted(slower), read([{"prompt": "slow"}, {"prompt": "a"}, {"prompt": "b"}]), at_once=2
    )
    assert [outcome.job.line for outcome in came] == [2, 3, 1]


async def test_leaving_early_ends_what_was_begun() -> None:
    engine = Scripted(lambda _: Script(["x"] * (1 if engine.started == 1 else 10**5), delay=0.001))
    async with Model(engine) as model:
        with Ahead(read({"prompt": "x"} for _ in range(9))) as ahead:
            async with aclosing(answers(model, ahead, at_once=3)) as reading:
                assert (await anext(reading)).tokens == 1
        await _until(lambda: engine.running == 0)
    assert engine.started <= 4


async def test_cancelling_ends_what_was_begun() -> None:
    engine = Scripted(Script(["x"] * 10**5, delay=0.001))
    async with Model(engine) as model:
        with Ahead(read({"prompt": "x"} for _ in range(9))) as ahead:
            task = asyncio.create_task(_all(answers(model, ahead, at_once=3)))
            await _until(lambda: engine.running == 3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await _until(lambda: engine.running == 0)


async def _all(reading: AsyncGenerator[Outcome, None], came: list[Outcome] | None = None) -> None:
    async with aclosing(reading):
        async for outcome in reading:
            (came if came is not None else []).append(outcome)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def test_what_reading_raised_comes_after_the_answers() -> None:
    def broken() -> Iterable[Job]:
        yield from read([{"prompt": "a"}, {"prompt": "b"}])
        raise OSError("gone")

    came: list[Outcome] = []
    async with Model(Scripted(echo)) as model:
        with Ahead(broken()) as ahead, pytest.raises(OSError, match="gone"):
            await _all(answers(model, ahead, at_once=4), came)
    assert sorted(outcome.object("m")["text"] for outcome in came) == ["a!", "b!"]


async def test_a_tally_adds_up() -> None:
    tally = Tally(skipped=4)
    lines = [{"prompt": "a"}, {"prompt": "break"}, {"prompt": "b"}]
    for outcome in await outcomes(Scripted(echo), read(lines)):
        tally.add(outcome)
    assert (tally.answered, tally.failed, tally.tokens, tally.done) == (2, 1, 4, 7)
    assert tally.seconds > 0
