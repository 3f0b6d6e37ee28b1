"""How answers end, streamed and whole: the same in both, and told as it was."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from bourn.engines.base import ModelInfo
from bourn.engines.scripted import Script
from bourn.errors import (
    BournError,
    ConnectionFailed,
    EngineCrashed,
    PromptTooLong,
    RateLimited,
    Unauthorized,
    UnsupportedField,
)
from bourn.server.answers import _as_it_was_asked
from bourn.server.config import ServerConfig
from bourn.sharing import key_for
from bourn.terms import Timeouts
from bourn.types import Channel, FinishReason, Piece, Request, TokenLogprob, ToolDelta, Usage
from tests.support.scripted_site import CHAT, HI, TEXT, Call, frames, site

STREAM = {"stream": True}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
HERMES = {"channels": "think", "calls": "hermes"}
CALLED = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


@dataclass(frozen=True)
class Ending:
    script: Script
    content: str
    reason: str
    body: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    calls: tuple[str, ...] = ()
    reasoning: str = ""


ENDINGS = {
    "the model's own end": Ending(Script(["Hel", "lo"]), "Hello", "stop"),
    "a stop string": Ending(
        Script(["a ", "ST", "OP", " b"] * 99), "a ", "stop", {"stop": ["STOP"]}
    ),
    "the limit": Ending(Script(["a", "b", "c"]), "ab", "length", {"max_tokens": 2}),
    "the limit, by its newer name": Ending(
        Script(["a", "b", "c"]), "a", "length", {"max_completion_tokens": 1}
    ),
    "the model's own end at the limit": Ending(Script(["a", "b"]), "ab", "stop", {"max_tokens": 2}),
    "held for a stop at the limit": Ending(
        Script(["a", "ST", "x"]), "aST", "length", {"max_tokens": 2, "stop": "STOP"}
    ),
    "nothing at all": Ending(Script([]), "", "stop"),
    "a call": Ending(
        Script([*CALLED]), "", "tool_calls", {"tools": TOOLS}, HERMES, calls=('{"a": 1}',)
    ),
    "two calls": Ending(
        Script(["Well. ", CALLED, CALLED]),
        "Well. ",
        "tool_calls",
        {"tools": TOOLS},
        HERMES,
        calls=('{"a": 1}', '{"a": 1}'),
    ),
    "one call of two, where no more are wanted": Ending(
        Script(["Well. ", CALLED, " And ", *CALLED, "x"] * 99),
        "Well. ",
        "tool_calls",
        {"tools": TOOLS, "parallel_tool_calls": False},
        HERMES,
        calls=('{"a": 1}',),
    ),
    "one of two that the engine reads": Ending(
        Script([Piece(tool=ToolDelta(n, f"c{n}", "f", "{}")) for n in range(99)]),
        "",
        "tool_calls",
        {"tools": TOOLS, "parallel_tool_calls": False},
        calls=("{}",),
    ),
    "a call that the limit cut": Ending(
        Script([*CALLED[:-16]], finish=FinishReason.LENGTH),
        "",
        "length",
        {"tools": TOOLS},
        HERMES,
        calls=('{"a": ',),
    ),
    "calls that the engine reads": Ending(
        Script(
            [Piece(tool=ToolDelta(0, "c1", "f", "{")), Piece(tool=ToolDelta(0, None, None, "}"))],
            finish=FinishReason.TOOL_CALLS,
        ),
        "",
        "tool_calls",
        {"tools": TOOLS},
        calls=("{}",),
    ),
    "thinking eats the limit": Ending(
        Script(["<think>", "hm", "hm", "x"]),
        "",
        "length",
        {"max_tokens": 3},
        HERMES,
        reasoning="hmhm",
    ),
    "thinking, then an answer": Ending(
        Script([Piece("hm", Channel.REASONING, tokens=1), "Yes"]), "Yes", "stop", reasoning="hm"
    ),
    "blocked": Ending(Script(["a"], finish=FinishReason.CONTENT_FILTER), "a", "content_filter"),
    "letters of all kinds": Ending(Script(["é🔥", '"\\', "\n\u2028"]), 'é🔥"\\\n\u2028', "stop"),
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
async def test_endings(ending: Ending) -> None:
    async with site(ending.script, **ending.facts) as server:
        whole = (await server.ask(CHAT, HI | ending.body)).json
        streamed = (await server.ask(CHAT, HI | ending.body | STREAM)).chunks
        await server.idle()
    (choice,) = whole["choices"]
    assert choice["finish_reason"] == ending.reason
    message = choice["message"]
    assert (message["content"] or "") == ending.content
    assert message.get("reasoning_content", "") == ending.reasoning
    calls = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
    assert calls == [*ending.calls]
    role, *middle, finish = [chunk["choices"][0] for chunk in streamed]
    assert role["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in each["delta"] for each in middle)
    assert [each["finish_reason"] for each in [role, *middle]] == [None] * (1 + len(middle))
    assert (finish["delta"], finish["finish_reason"]) == ({}, ending.reason)
    assert _joined(middle, "content") == ending.content
    assert _joined(middle, "reasoning_content") == ending.reasoning
    parts = [part for each in middle for part in each["delta"].get("tool_calls", ())]
    for index, arguments in enumerate(ending.calls):
        own = [part for part in parts if part["index"] == index]
        assert "".join(part["function"]["arguments"] for part in own) == arguments
        assert [part["function"]["name"] for part in own if "id" in part] == ["f"]
    assert {part["index"] for part in parts} == set(range(len(ending.calls)))


def _joined(choices: list[Any], name: str) -> str:
    return "".join(choice["delta"].get(name, "") for choice in choices)


@pytest.mark.parametrize(
    ("body", "text", "reason"),
    [
        ({}, "abc", "stop"),
        ({"max_tokens": 1}, "a", "length"),
        ({"stop": "c"}, "ab", "stop"),
    ],
)
@pytest.mark.parametrize("prompt", ["Say", ["Say"]])
async def test_old_completions(body: dict[str, Any], text: str, reason: str, prompt: Any) -> None:
    async with site(Script(["a", "b", "c"])) as server:
        whole = (await server.ask(TEXT, {"prompt": prompt, **body})).json
        streamed = (await server.ask(TEXT, {"prompt": prompt, **body, **STREAM})).chunks
    assert whole["object"] == "text_completion"
    (choice,) = whole["choices"]
    assert (choice["text"], choice["finish_reason"]) == (text, reason)
    assert whole["id"].startswith("cmpl-")
    assert "".join(chunk["choices"][0]["text"] for chunk in streamed) == text
    assert {chunk["object"] for chunk in streamed} == {"text_completion"}
    assert streamed[-1]["choices"][0]["finish_reason"] == reason


# -- failures --------------------------------------------------------------------------------------

FAILURES = [
    (EngineCrashed("it died", last_words=("oh no",)), 500, "engine_crashed", "true"),
    (ConnectionFailed("not there"), 502, "connection_failed", "true"),
    (PromptTooLong("9 > 8", prompt_tokens=9, window=8), 400, "context_length_exceeded", None),
    (RateLimited("slow down", retry_after=7.2), 429, "rate_limited", "true"),
    (Unauthorized("the endpoint refuses the key"), 502, "unauthorized", "false"),
    (RuntimeError('out of "paper"\n'), 500, "internal_error", "false"),
]


@pytest.mark.parametrize(("error", "status", "code", "again"), FAILURES)
@pytest.mark.parametrize("body", [HI, HI | STREAM], ids=["whole", "streamed"])
async def test_a_failure_before_the_first_token_is_a_status(
    error: Exception, status: int, code: str, again: str | None, body: dict[str, Any]
) -> None:
    async with site(Script(["a"], prompt_steps=2, fail_at=0, error=error)) as server:
        call = await server.ask(CHAT, body)
    assert call.told.status == status
    assert call.told.headers["content-type"] == "application/json"
    told = call.told.error
    assert {"message", "type", "code", "param"} <= told.keys()
    message = error.message if isinstance(error, BournError) else str(error)
    assert (told["message"], told["code"], told["status"]) == (message, code, status)
    assert "oh no" not in str(told), "a process's last words are for the log"
    assert call.told.headers.get("x-should-retry") == again
    assert call.told.headers.get("retry-after") == ("8" if status == 429 else None)


async def test_a_failure_after_three_tokens_is_in_the_stream() -> None:
    error = EngineCrashed('a "quote"\nand a line')
    async with site(Script(["a", "b", "c", "d"], fail_at=3, error=error)) as server:
        call = await server.ask(CHAT, HI | STREAM)
        whole = await server.ask(CHAT, HI)
    assert call.told.status == 200
    _, a, b, c, failed = call.chunks
    assert [each["choices"][0]["delta"].get("content") for each in (a, b, c)] == ["a", "b", "c"]
    assert failed["error"]["message"] == str(error)
    assert failed["error"]["code"] == "engine_crashed"
    assert whole.told.status == 500


async def test_an_end_without_a_reason_is_no_end() -> None:
    async with site(Script(["a"], finish=None)) as server:
        *_, failed = (await server.ask(CHAT, HI | STREAM)).chunks
        whole = await server.ask(CHAT, HI)
    assert failed["error"]["code"] == "interrupted"
    assert (whole.told.status, whole.told.error["code"]) == (502, "interrupted")


async def test_the_next_request_is_served() -> None:
    async with site(
        lambda _: Script(["a"], fail_at=0 if server.engine.started == 1 else None)
    ) as server:
        assert (await server.ask(CHAT, HI | STREAM)).told.status == 502
        assert (await server.ask(CHAT, HI)).json["choices"][0]["message"]["content"] == "a"


SLOW = [
    (Timeouts(queue=0.02), 503, "overloaded", "true"),
    (Timeouts(first_token=0.02), 504, "timeout", "true"),
    (Timeouts(total=0.02), 504, "answer_timeout", "false"),
]


@pytest.mark.parametrize(("timeouts", "status", "code", "again"), SLOW)
@pytest.mark.parametrize("body", [HI, HI | STREAM], ids=["whole", "streamed"])
async def test_times_that_ran_out(
    timeouts: Timeouts, status: int, code: str, again: str, body: dict[str, Any]
) -> None:
    config = ServerConfig(timeouts=timeouts)
    async with site(Script(["a"], delay=60), slots=1, config=config) as server:
        first = server.begin(CHAT, HI) if timeouts.queue else None
        call = await server.ask(CHAT, body)
        if first is not None:
            first.hang_up()
            await first.whole()
        await server.idle()
    assert (call.told.status, call.told.error["code"]) == (status, code)
    assert call.told.headers.get("retry-after") == ("1" if status == 503 else None)
    assert call.told.headers["x-should-retry"] == again


async def test_a_total_time_that_runs_out_in_the_stream() -> None:
    config = ServerConfig(timeouts=Timeouts(total=0.05))
    async with site(Script(["a"] * 9999, delay=0.001), config=config) as server:
        *_, failed = (await server.ask(CHAT, HI | STREAM)).chunks
    assert failed["error"]["code"] == "answer_timeout"


@pytest.mark.parametrize("body", [HI, HI | STREAM], ids=["whole", "streamed"])
async def test_a_full_queue(body: dict[str, Any]) -> None:
    async with site(Script(["a"], delay=60), slots=1, queue_limit=1) as server:
        calls = [server.begin(CHAT, HI) for _ in range(2)]
        while server.fleet.live < 2:
            await asyncio.sleep(0)
        refused = await server.ask(CHAT, body)
        for call in calls:
            call.hang_up()
        await server.idle()
    assert (refused.told.status, refused.told.error["code"]) == (429, "queue_full")
    assert refused.told.headers["retry-after"] == "1"


# -- what is in them -------------------------------------------------------------------------------


async def test_the_wire_byte_by_byte() -> None:
    async with site(Script(["Hi"], prompt=3)) as server:
        call = await server.ask(CHAT, HI | STREAM | {"stream_options": {"include_usage": True}})
    role, text, finish, usage, end = frames(call.text)
    id_ = call.told.headers["x-bourn-stream"]
    made = json.loads(text.data)
    assert list(made) == ["id", "object", "created", "model", "choices"]
    assert (made["id"], made["object"], made["model"]) == (id_, "chat.completion.chunk", "m")
    assert made["choices"] == [
        {"index": 0, "delta": {"content": "Hi"}, "logprobs": None, "finish_reason": None}
    ]
    assert [each.id for each in (role, text, finish)] == ["", f"{id_}:2", f"{id_}:3"]
    assert json.loads(usage.data)["usage"]["prompt_tokens"] == 3
    assert end.data == "[DONE]"
    assert call.told.headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache, no-transform",
        "x-accel-buffering": "no",
        "x-bourn-stream": id_,
        "x-bourn-cache": "miss",
        "x-bourn-resumable": "no",
    }


async def test_each_answer_has_its_numbers() -> None:
    usage = Usage(prompt_tokens=7, completion_tokens=2, cached_tokens=4)
    script = Script(["a", "b", Piece(finish=FinishReason.STOP, usage=usage)], finish=None)
    async with site(script) as server:
        whole = (await server.ask(CHAT, HI)).json
        *_, finish = (await server.ask(CHAT, HI | STREAM)).chunks
        asked = HI | STREAM | {"stream_options": {"include_usage": True}}
        *_, plain_finish, last = (await server.ask(CHAT, asked)).chunks
    assert whole["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    assert "usage" not in finish
    assert "metrics" not in plain_finish
    for told in (whole, finish, last):
        numbers = told["metrics"]
        assert numbers["time_to_first_token_ms"] > 0
        assert numbers["tokens_per_second"] > 0
        assert numbers["queue_time_ms"] >= 0
        assert numbers["generation_time_ms"] > 0
        assert numbers["mean_itl_ms"] >= 0


@pytest.mark.parametrize("body", [HI, HI | STREAM], ids=["whole", "streamed"])
async def test_several_choices(body: dict[str, Any]) -> None:
    async with site(Script(["a", "b"])) as server:
        call = await server.ask(CHAT, body | {"n": 2})
    if "stream" in body:
        for index in (0, 1):
            own = [c["choices"][0] for c in call.chunks if c["choices"][0]["index"] == index]
            assert [each["delta"].get("role") for each in own] == ["assistant", None, None, None]
            assert _joined(own, "content") == "ab"
            assert own[-1]["finish_reason"] == "stop"
    else:
        texts = [(c["index"], c["message"]["content"]) for c in call.json["choices"]]
        assert texts == [(0, "ab"), (1, "ab")]


async def test_log_probabilities_once_each_and_in_order() -> None:
    entries = [TokenLogprob(text, -0.5, text.encode()) for text in ("a", "ST", "x")]
    script = Script([Piece(e.token, tokens=1, logprobs=(e,)) for e in entries])
    asked = HI | {"logprobs": True, "top_logprobs": 0, "stop": "STOP"}
    async with site(script) as server:
        whole = (await server.ask(CHAT, asked)).json
        streamed = (await server.ask(CHAT, asked | STREAM)).chunks
    told = whole["choices"][0]["logprobs"]["content"]
    assert [(entry["token"], entry["bytes"]) for entry in told] == [
        ("a", [97]),
        ("ST", [83, 84]),
        ("x", [120]),
    ]
    parts = [c["choices"][0]["logprobs"] for c in streamed if c["choices"][0]["logprobs"]]
    assert [entry for part in parts for entry in part["content"]] == told


async def test_what_is_asked_reaches_the_engine() -> None:
    seen: list[Request] = []

    def script(request: Request) -> Script:
        seen.append(request)
        return Script(["a"])

    asked = {"temperature": 0.5, "top_k": 3, "seed": 7, "repetition_penalty": 1.1, "min_p": 0.2}
    async with site(script) as server:
        await server.ask(CHAT, HI | asked | {"chat_template_kwargs": {"enable_thinking": False}})
        await server.ask(TEXT, {"prompt": "x", "max_tokens": None})
        await server.ask(TEXT, {"prompt": "x", "ignore_eos": True, "max_tokens": 5})
    sampling = seen[0].sampling.given()
    assert {name: sampling[name] for name in asked} == asked
    assert seen[0].template_kwargs == {"enable_thinking": False}
    assert [request.max_new_tokens for request in seen] == [None, None, 5]
    assert seen[2].ignore_eos


@pytest.mark.parametrize("shown", [True, False])
async def test_what_people_write_is_in_the_log_where_that_is_wanted(
    shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with site(config=ServerConfig(log_prompts=shown)) as server:
        said = {"role": "user", "content": "my\nsecret" + "x" * 99_999}
        await server.ask(CHAT, {"messages": [said]})
        await server.ask(TEXT, {"prompt": "another secret", "stream": True})
    told = [record.getMessage() for record in caplog.records]
    secrets = [line for line in told if "secret" in line]
    assert len(secrets) == 2 * shown
    assert max(map(len, told), default=0) < 11_000
    if shown:
        start = 'm is asked: {"messages":[{"role":"user","content":"my\\nsecretxxx'
        assert secrets[0].startswith(start)
        assert secrets[1] == 'm is asked: {"prompt":"another secret"}'


async def test_models_by_name() -> None:
    from bourn.engines.scripted import Scripted

    engines = {"one": Scripted(Script(["1"])), "org/two": Scripted(Script(["2"]))}
    async with site(engines=engines) as server:
        for name, text, told in [
            (None, "1", "one"),
            ("one", "1", "one"),
            ("org/two", "2", "org/two"),
        ]:
            answer = (await server.ask(CHAT, HI | {"model": name})).json
            assert (answer["choices"][0]["message"]["content"], answer["model"]) == (text, told)
        missing = await server.ask(CHAT, HI | {"model": "three"} | STREAM)
    assert (missing.told.status, missing.told.error["code"]) == (404, "model_not_found")


# -- what is refused -------------------------------------------------------------------------------

REFUSED: list[tuple[str, Any, str | None, str]] = [
    (CHAT, b"", None, "JSON"),
    (CHAT, b"{", None, "JSON"),
    (CHAT, b"[]", None, "JSON object"),
    (CHAT, b"[" * 10_000, None, "JSON"),
    (CHAT, b'{"messages": "\xff"}', None, "JSON"),
    (CHAT, b'{"temperature": NaN}', None, "JSON"),
    (CHAT, {}, "messages", "nothing to answer"),
    (CHAT, {"messages": []}, "messages", "nothing to answer"),
    (TEXT, {}, "prompt", "nothing to answer"),
    (TEXT, {"prompt": None}, "prompt", "nothing to answer"),
    (CHAT, HI | {"prompt": "x"}, "prompt", "no field"),
    (TEXT, {"prompt": "x"} | HI, "messages", "no field"),
    (TEXT, {"prompt": "x", "tools": TOOLS}, "tools", "no field"),
    (
        TEXT,
        {"prompt": "x", "response_format": {"type": "json_object"}},
        "response_format",
        "no field",
    ),
    (TEXT, {"prompt": "x", "echo": True}, "echo", "cannot honour"),
    (TEXT, {"prompt": "x", "suffix": "y"}, "suffix", "cannot honour"),
    (TEXT, {"prompt": "x", "best_of": 3}, "best_of", "cannot honour"),
    (TEXT, {"prompt": ["x", "y"]}, "prompt", "is"),
    (CHAT, HI | {"temprature": 1}, "temprature", "no field"),
    (CHAT, HI | {"temperature": 3000}, "temperature", "is 3000"),
    (CHAT, HI | {"stream": "yes"}, "stream", "is"),
    (CHAT, HI | {"model": 5}, "model", "is 5"),
    (CHAT, HI | {"n": 1000}, "n", "is 1000"),
    (CHAT, HI | {"stream_options": {"usage": True}}, "stream_options.usage", "no field"),
    (CHAT, HI | {"bourn": 5}, "bourn", "is 5"),
    (CHAT, HI | {"bourn": {"grase": 5}}, "bourn.grase", "no field"),
    (CHAT, HI | {"bourn": {"cache": "maybe"}}, "bourn.cache", "maybe"),
    (CHAT, HI | {"bourn": {"grace": 1e9}}, "bourn.grace", "is"),
    (CHAT, HI | {"stop_token_ids": [5]}, "stop_token_ids", "cannot honour"),
    (CHAT, HI | {"logit_bias": {"5": 1}}, "logit_bias", "cannot honour"),
    (CHAT, HI | {"min_tokens": 1}, "min_tokens", "cannot honour `min_tokens`"),
    (CHAT, HI | {"top_logprobs": 3}, "top_logprobs", "without `logprobs`"),
    (CHAT, HI | {"max_tokens": 2**31}, "max_tokens", "is 2147483648"),
    (CHAT, HI | {"n": 9}, "n", "n is 9"),
    (TEXT, {"prompt": [1, 2]}, "prompt", "token ids as prompt"),
]


@pytest.mark.parametrize(("path", "body", "field", "said"), REFUSED)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_what_is_refused_is_named(
    path: str, body: Any, field: str | None, said: str, streamed: bool
) -> None:
    if streamed and isinstance(body, dict):
        body = STREAM | body
    async with site(slots=8) as server:
        call = await server.ask(path, body)
        assert server.engine.started == 0
    assert (call.told.status, call.told.headers["content-type"]) == (400, "application/json")
    told = call.told.error
    assert said in told["message"]
    assert told["param"] == field
    assert told["hint"]


def test_images_are_in_the_messages() -> None:
    error = _as_it_was_asked(UnsupportedField("images", "m"), ModelInfo("m", "m"))
    assert (error.field, str(error)) == ("messages", "m cannot honour `images`")


async def test_a_body_that_is_packed_is_refused() -> None:
    packed = gzip.compress(json.dumps(HI).encode())
    async with site() as server:
        call = await server.ask(CHAT, packed, content_encoding="gzip")
        assert (call.told.status, call.told.error["code"]) == (415, "unsupported_media_type")
        assert "`Content-Encoding: gzip`" in call.told.error["message"]
        assert (await server.ask(CHAT, HI, content_encoding="identity")).told.status == 200


async def test_a_mark_of_its_encoding_may_stand_before_json() -> None:
    async with site() as server:
        call = await server.ask(CHAT, b"\xef\xbb\xbf" + json.dumps(HI).encode())
    assert call.told.status == 200


async def test_a_body_has_to_say_that_it_is_json() -> None:
    async with site() as server:
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            call = await server.ask(CHAT, HI, content_type=kind)
            assert (call.told.status, call.told.error["code"]) == (415, "unsupported_media_type")
        call = await server.ask(CHAT, HI, content_type="Application/JSON; charset=utf-8")
        assert call.told.status == 200


async def test_harmless_fields_of_the_sdks_are_taken() -> None:
    fields = {
        "user": "ann",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "parallel_tool_calls": True,
        "safety_identifier": "x",
        "prompt_cache_key": "x",
        "prompt_cache_retention": "24h",
        "prompt_cache_options": {"ttl": "30m"},
        "moderation": {"model": "x"},
        "functions": [],
        "modalities": ["text"],
        "reasoning_effort": None,
        "stream_options": {"include_usage": False, "include_obfuscation": False},
    }
    async with site() as server:
        assert (await server.ask(CHAT, HI | fields)).told.status == 200


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NAMED = {"name": "f", "description": "Of a city.", "parameters": CITY}
ANSWERED: list[Any] = [
    {"content": "Where is it?", "role": "user"},
    {
        "content": None,
        "role": "assistant",
        "tool_calls": [
            {"type": "function", "id": "c1", "function": {"name": "f", "arguments": "{}"}}
        ],
    },
    {"content": "here", "role": "tool", "tool_call_id": "c1"},
]
SENT: dict[str, dict[str, Any]] = {
    "an answer": {"stream": False, "temperature": 0.0, "max_completion_tokens": 24},
    "with tools": {"tools": [{"type": "function", "function": NAMED | {"strict": True}}]},
    "with a call that is wanted": {
        "tools": [{"type": "function", "function": NAMED}],
        "tool_choice": "required",
    },
    "with a shape, as a call": {
        "tools": [{"type": "function", "function": NAMED}],
        "parallel_tool_calls": False,
        "tool_choice": {"type": "function", "function": {"name": "f"}},
    },
    "with a shape": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "City", "schema": CITY, "strict": True},
        }
    },
}


@pytest.mark.parametrize("body", SENT.values(), ids=SENT)
async def test_what_frameworks_send_is_taken(body: dict[str, Any]) -> None:
    async with site() as server:
        call = await server.ask(CHAT, {"model": "m", "messages": ANSWERED} | body)
    assert call.told.status == 200


# -- cache and sharing -----------------------------------------------------------------------------

COLD = HI | {"temperature": 0}


async def test_asked_again_it_is_there_already_streamed_or_not() -> None:
    async with site(key=key_for("m")) as server:
        first = await server.ask(CHAT, COLD)
        again = await server.ask(CHAT, COLD | STREAM)
        third = await server.ask(CHAT, COLD)
        assert server.engine.started == 1
        fresh = await server.ask(CHAT, COLD, cache_control="no-cache")
        assert server.engine.started == 2
    told = [call.told.headers["x-bourn-cache"] for call in (first, again, third, fresh)]
    assert told == ["miss", "hit", "hit", "miss"]
    assert _joined([c["choices"][0] for c in again.chunks], "content") == "Hello"
    assert again.chunks[-1]["metrics"]["cached"] is True
    assert third.json["choices"] == first.json["choices"]
    assert third.json["usage"] == first.json["usage"]
    assert third.json["id"] != first.json["id"]
    assert "cached" not in first.json["metrics"]


async def test_asked_at_once_it_is_made_once() -> None:
    async with site(Script(["a"] * 20, delay=0.005), key=key_for("m")) as server:
        calls = [server.begin(CHAT, COLD | (STREAM if n % 2 else {})) for n in range(20)]
        await asyncio.gather(*(call.whole() for call in calls))
        assert server.engine.started == 1
    origins = [call.told.headers["x-bourn-cache"] for call in calls]
    assert origins == ["miss"] + ["shared"] * 19
    assert {_text(call) for call in calls} == {"a" * 20}


async def test_of_two_who_ask_the_same_one_may_go() -> None:
    async with site(Script(["a"] * 20, delay=0.005), key=key_for("m")) as server:
        one, two = (server.begin(CHAT, COLD | STREAM) for _ in range(2))
        await one.until(lambda: one.text.count('"a"') == 3)
        one.hang_up()
        await one.whole()
        assert _text(await two.whole()) == "a" * 20
        assert server.engine.started == 1


async def test_only_if_cached() -> None:
    async with site(key=key_for("m")) as server:
        for wish in ({"bourn": {"cache": "only-if-cached"}}, {}):
            header = {} if wish else {"cache_control": "max-age=5, only-if-cached"}
            call = await server.ask(CHAT, COLD | wish, **header)
            assert (call.told.status, call.told.error["code"]) == (504, "not_cached")
            assert call.told.headers["x-should-retry"] == "false"
        assert server.engine.started == 0
        secret = COLD | {"bourn": {"cache": "no-store"}}
        await server.ask(CHAT, secret)
        call = await server.ask(CHAT, COLD | {"bourn": {"cache": "only-if-cached"}})
        assert call.told.status == 504
        await server.ask(CHAT, COLD)
        call = await server.ask(CHAT, COLD | {"bourn": {"cache": "only-if-cached"}})
        assert _text(call) == "Hello"


def _text(call: Call) -> str:
    if call.told.headers["content-type"] == "application/json":
        text: str = call.json["choices"][0]["message"]["content"]
        return text
    return _joined([chunk["choices"][0] for chunk in call.chunks], "content")
