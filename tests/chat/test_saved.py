from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bourn.chat import Chat
from bourn.errors import InvalidRequest
from bourn.types import FinishReason, ImagePart, Message, Metrics, TextPart, ToolCall

CALL = ToolCall("call_1", "weather", '{"city": "Ulm"}')
PICTURE = ImagePart("https://example.org/a.png", "low")

TALK = (
    Chat(system="Be brief.", max_turns=9, keep_first=True)
    .ask(Message("user", (TextPart("Weather?"), PICTURE)))
    .answered(Message("assistant", reasoning="hmm", tool_calls=(CALL,)))
    .ask(Message("tool", "rain", tool_call_id="call_1"))
    .answered("Es regnet. 漢字", finish_reason=FinishReason.CANCELLED, model="smollm2")
    .ask("Why?")
)


def saved(**changes: Any) -> str:
    return json.dumps(json.loads(TALK.to_json()) | changes)


def test_what_is_saved_is_loaded_back() -> None:
    assert Chat.from_json(TALK.to_json()) == TALK
    assert Chat.from_json(TALK.to_json(indent=2).encode()) == TALK
    assert Chat.from_json(Chat().to_json()) == Chat()


MEASURED = Metrics(ttft=0.25, tokens=7, tokens_per_second=12.5, total=1.0)


def test_how_an_answer_went_is_kept_beside_it() -> None:
    turn = replace(TALK.turns[0], metrics=MEASURED, error="the engine died\n(ask again)")
    chat = replace(TALK, turns=(turn, *TALK.turns[1:]))
    assert Chat.from_json(chat.to_json()) == chat
    mark = json.loads(chat.to_json())["turns"][0]
    told = {"ttft": 0.25, "tokens": 7, "tokens_per_second": 12.5, "total": 1.0}
    assert mark["metrics"] == told
    assert mark["error"] == "the engine died\n(ask again)"
    assert "*(broken off: the engine died (ask again))*" in chat.to_markdown().splitlines()


def test_measures_that_are_not_known_yet_are_passed_over() -> None:
    mark = {"messages": 6, "metrics": {"tokens": 7, "joules": [1], "total": None}}
    (turn,) = Chat.from_json(saved(turns=[mark])).turns
    assert turn.metrics == Metrics(tokens=7)


def test_the_messages_are_those_of_openai_s_api() -> None:
    told = json.loads(TALK.to_json())
    assert (told["format"], told["version"]) == ("bourn.chat", 1)
    assert told["messages"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Weather?"},
                {"type": "image_url", "image_url": {"url": PICTURE.url, "detail": "low"}},
            ],
        },
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hmm",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Ulm"}'},
                }
            ],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "call_1"},
        {"role": "assistant", "content": "Es regnet. 漢字"},
        {"role": "user", "content": "Why?"},
    ]
    assert told["turns"] == [
        {"messages": 4, "finish_reason": "cancelled", "model": "smollm2"},
        {"messages": 1},
    ]


def test_all_turns_are_saved_also_those_that_are_not_sent() -> None:
    chat = Chat(max_turns=1).ask("One?").answered("1").ask("Two?")
    assert len(chat.messages) == 1
    assert Chat.from_json(chat.to_json()) == chat


def test_an_answer_that_is_gone_on_with_is_saved_as_such() -> None:
    for prefill in (True, False):
        chat = Chat().ask("Count").answered("one").continued(prefill=prefill)
        assert Chat.from_json(chat.to_json()) == chat


def test_any_script_is_readable_and_half_a_pair_does_no_harm() -> None:
    assert "漢字" in TALK.to_json()
    chat = Chat().ask("bad \ud800 漢字 \0 \u2028")
    assert chat.to_json().encode()
    assert Chat.from_json(chat.to_json()) == chat


MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": None, "tool_calls": []},
]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(MESSAGES),
        json.dumps({"messages": MESSAGES}),
        json.dumps({"model": "gpt", "temperature": 1, "messages": MESSAGES}),
        "\ufeff".encode() + json.dumps(MESSAGES).encode(),
    ],
)
def test_messages_of_other_programs_are_taken(text: str | bytes) -> None:
    chat = Chat.from_json(text)
    assert chat.system == "Be brief."
    assert [message.text for message in chat.turns[0].messages] == ["One?", ""]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "line 1, column 1"),
        ('{"messages": [\n  {"role": }', "line 2, column 12"),
        (b"\xff\xfe\x00", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("7", "all of it is 7"),
        ("{}", "`messages` is missing"),
        ('{"messages": {}}', "`messages` is {}"),
        ('["hi"]', "message 1 is wrong: it is 'hi'"),
        ('[{"role": "user", "content": "?"}, {"content": "x"}]', "message 2 is wrong"),
        ('[{"role": "user", "content": 5}]', "message 1 is wrong: content is int"),
        ('[{"role": "user", "content": [{"type": "video"}]}]', "message 1 is wrong: content"),
        ('[{"role": "assistant", "tool_calls": [{"id": 1}]}]', "message 1 is wrong: `tool_calls`"),
        ('[{"role": 5}]', "message 1 is wrong: `role` is 5"),
        (saved(version=2), "version 2, and this bourn reads 1"),
        (saved(version=None), "version None"),
        (saved(turns=None), "`turns` is missing"),
        (saved(turns=[5, 6]), "turn 1 is 5"),
        (saved(turns=[{"messages": 5}, {}]), "`messages` of turn 2 is missing"),
        (saved(turns=[{"messages": 6}, {"messages": -1}]), "`messages` of turn 2 is -1"),
        (saved(turns=[{"messages": True}]), "`messages` of turn 1 is True"),
        (saved(turns=[{"messages": 7}]), "`turns` speak of 7 messages, and there are 6"),
        (saved(turns=[{"messages": 2}]), "`turns` speak of 2 messages, and there are 6"),
        (saved(turns=[{"messages": 5, "finish_reason": "bored"}]), "`finish_reason` of turn 1"),
        (saved(turns=[{"messages": 5, "finish_reason": 5}]), "`finish_reason` of turn 1 is 5"),
        (saved(turns=[{"messages": 5, "seed": "x"}]), "`seed` of turn 1 is 'x'"),
        (saved(turns=[{"messages": 5, "model": 5}]), "`model` of turn 1 is 5"),
        (saved(turns=[{"messages": 5, "error": 5}]), "`error` of turn 1 is 5"),
        (saved(turns=[{"messages": 5, "metrics": 5}]), "`metrics` of turn 1 is 5"),
        (saved(turns=[{"messages": 5, "metrics": {"ttft": "x"}}]), "`metrics` of turn 1 is {"),
        (saved(max_turns="9"), "`max_turns` is '9'"),
        (saved(max_turns=0), "max_turns is 0"),
        (saved(keep_first=1), "`keep_first` is 1"),
        (saved(bridge=5), "`bridge` is 5"),
        (saved(bridge=""), "no answer to go on with"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str | bytes, where: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Chat.from_json(text)
    assert where in str(caught.value)
    assert caught.value.hint


# -- to be read by people --------------------------------------------------------------------------


def test_as_markdown() -> None:
    assert (
        TALK.to_markdown()
        == """\
## System

Be brief.

## You

*(an image)*

Weather?

## Assistant

> hmm

    weather({"city": "Ulm"})

## Tool

rain

## Assistant (smollm2)

Es regnet. 漢字

*(stopped here)*

## You

Why?
"""
    )


def test_what_ended_by_itself_has_no_mark() -> None:
    assert Chat().ask("One?").answered("1").to_markdown() == "## You\n\nOne?\n\n## Assistant\n\n1\n"
    cut = Chat().ask("One?").answered("1", finish_reason=FinishReason.LENGTH)
    assert cut.to_markdown().endswith("*(cut here by the limit)*\n")
    assert Chat().to_markdown() == ""


def test_a_role_of_another_program_keeps_its_name() -> None:
    assert Chat.of([Message("critic", "bad")]).to_markdown() == "## critic\n\nbad\n"
