from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from bourn.errors import EngineError, RateLimited
from bourn.stream import Choice
from bourn.types import (
    Channel,
    Delta,
    Done,
    Event,
    Finished,
    FinishReason,
    Progress,
    Queued,
    TokenLogprob,
    ToolDelta,
    Usage,
)
from bourn.wire.answers import DONE, ChunkWriter, Head, error_object, frame, whole_answer

CHAT = Head("chatcmpl-1", "m", 1_800_000_000)
TEXT = Head("cmpl-1", "m", 1_800_000_000, chat=False)
LOGPROB = TokenLogprob("\ufffd", -0.5, b"\xf0\x9f", (TokenLogprob("a", -1.5, b"a"),))

EVENTS: list[Event] = [
    Queued(1),
    Progress(1, 2),
    Delta("hm", Channel.REASONING),
    Delta("Hel", logprobs=(LOGPROB,)),
    Delta(""),
    Delta("lo"),
    Delta("b", choice=1),
    Delta("", Channel.TOOL, tool=ToolDelta(0, "c", "f", "{")),
    Delta("", Channel.TOOL, tool=ToolDelta(0, arguments="}")),
    Finished(FinishReason.TOOL_CALLS),
    Finished(FinishReason.LENGTH, 1),
    Done("complete", Usage(3, 4)),
]


def written(head: Head, events: list[Event]) -> list[dict[str, Any]]:
    writer = ChunkWriter(head)
    return [chunk for event in events for chunk in writer.chunks_of(event)]


def deltas(chunks: list[dict[str, Any]], choice: int) -> list[Any]:
    made = [chunk["choices"][0] for chunk in chunks]
    return [(each["delta"], each["finish_reason"]) for each in made if each["index"] == choice]


def test_the_role_comes_once_and_the_finish_alone() -> None:
    chunks = written(CHAT, EVENTS)
    assert deltas(chunks, 0) == [
        ({"role": "assistant", "content": ""}, None),
        ({"reasoning_content": "hm"}, None),
        ({"content": "Hel"}, None),
        ({"content": "lo"}, None),
        (
            {
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "c",
                        "type": "function",
                        "function": {"name": "f", "arguments": "{"},
                    }
                ]
            },
            None,
        ),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}, None),
        ({}, "tool_calls"),
    ]
    assert deltas(chunks, 1) == [
        ({"role": "assistant", "content": ""}, None),
        ({"content": "b"}, None),
        ({}, "length"),
    ]


def test_an_empty_answer_has_a_role_and_a_finish() -> None:
    assert deltas(written(CHAT, [Finished(FinishReason.STOP)]), 0) == [
        ({"role": "assistant", "content": ""}, None),
        ({}, "stop"),
    ]


def test_old_completions_have_no_roles() -> None:
    chunks = written(
        TEXT, [Delta("a"), Delta("hm", Channel.REASONING), Finished(FinishReason.STOP)]
    )
    assert [chunk["object"] for chunk in chunks] == ["text_completion"] * 3
    made = [chunk["choices"][0] for chunk in chunks]
    assert [each["text"] for each in made] == ["a", "", ""]
    assert [each["finish_reason"] for each in made] == [None, None, "stop"]


def test_the_openai_package_reads_every_chunk() -> None:
    for chunk in [*written(CHAT, EVENTS), ChunkWriter(CHAT).usage_chunk(Usage(3, 4, 1))]:
        told = ChatCompletionChunk.model_validate(chunk, strict=True)
        assert (told.id, told.created, told.model) == ("chatcmpl-1", 1_800_000_000, "m")
    (chunk,) = written(TEXT, [Delta("a", logprobs=(LOGPROB,))])
    told_logprobs = chunk["choices"][0]["logprobs"]
    assert told_logprobs["tokens"] == ["\ufffd"]
    assert told_logprobs["top_logprobs"] == [{"a": -1.5}]
    assert told_logprobs["content"][0]["bytes"] == [0xF0, 0x9F]


def test_usage_is_a_chunk_without_choices() -> None:
    chunk = ChunkWriter(CHAT).usage_chunk(Usage(3, 4, 1))
    assert chunk["choices"] == []
    assert chunk["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


def choices() -> list[Choice]:
    made = [Choice(), Choice()]
    for event in EVENTS:
        if isinstance(event, Delta):
            made[event.choice].take(event)
        if isinstance(event, Finished):
            made[event.choice].finish_reason = event.reason
    return made


def test_a_whole_answer_is_the_stream_joined() -> None:
    whole = whole_answer(CHAT, choices(), Usage(3, 4))
    told = ChatCompletion.model_validate(whole, strict=True)
    first, second = told.choices
    assert (first.message.content, first.finish_reason) == ("Hello", "tool_calls")
    assert whole["choices"][0]["message"]["reasoning_content"] == "hm"
    assert whole["choices"][0]["message"]["tool_calls"] == [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    ]
    assert whole["choices"][0]["logprobs"]["content"][0]["logprob"] == -0.5
    assert (second.message.content, second.finish_reason) == ("b", "length")
    assert told.usage is not None
    assert told.usage.total_tokens == 7


def test_a_whole_completion() -> None:
    whole = whole_answer(TEXT, choices()[1:], Usage(3, 4))
    told = Completion.model_validate(whole, strict=True)
    assert (told.choices[0].text, told.choices[0].finish_reason) == ("b", "length")


def test_content_is_null_where_there_are_only_calls() -> None:
    choice = Choice()
    choice.take(Delta("", Channel.TOOL, tool=ToolDelta(0, "c", "f", "{}")))
    assert whole_answer(CHAT, [choice], Usage())["choices"][0]["message"]["content"] is None
    assert whole_answer(CHAT, [Choice()], Usage())["choices"][0]["message"]["content"] == ""


def test_a_call_that_could_not_be_read_is_content_streamed_or_not() -> None:
    events: list[Event] = [
        Delta("hm", Channel.REASONING),
        Delta("Sure: "),
        Delta('{"name": ', Channel.TOOL),
        Delta("or not."),
    ]
    choice = Choice()
    for event in events:
        assert isinstance(event, Delta)
        choice.take(event)
    for head, key in ((CHAT, "content"), (TEXT, "text")):
        made = [chunk["choices"][0] for chunk in written(head, events)]
        streamed = "".join(each.get("delta", each).get(key, "") for each in made)
        (whole,) = whole_answer(head, [choice], Usage())["choices"]
        assert streamed == whole.get("message", whole)[key] == 'Sure: {"name": or not.'


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (RateLimited("slow"), "rate_limited", 429),
        (EngineError('a "quote"\nand a line'), "engine_error", 502),
        (KeyError("x"), "internal_error", 500),
    ],
)
def test_errors_are_json_whatever_their_text(error: Exception, code: str, status: int) -> None:
    told = error_object(error)["error"]
    assert (told["message"], told["code"], told["status"]) == (str(error), code, status)
    framed = frame(error_object(error))
    assert framed.count(b"\n") == 2
    assert json.loads(framed.removeprefix(b"data: ")) == error_object(error)


def test_frames() -> None:
    assert frame({"a": "é"}) == 'data: {"a":"é"}\n\n'.encode()
    assert DONE == b"data: [DONE]\n\n"
