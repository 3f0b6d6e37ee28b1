from __future__ import annotations

from typing import Any

import pytest

from bourn.errors import InvalidRequest, UnsupportedField
from bourn.types import ImagePart, Message, Request, Sampling, TextPart, ToolCall
from bourn.wire.body import request_of, wants_usage

HI: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_the_least_there_is() -> None:
    wanted = Request(messages=(Message("user", "hi"),), max_new_tokens=None)
    assert request_of(HI) == wanted
    assert request_of({"prompt": "hi"}) == Request(prompt="hi", max_new_tokens=None)
    assert request_of({"prompt": ["hi"]}) == Request(prompt="hi", max_new_tokens=None)


def test_a_prompt_may_be_token_ids() -> None:
    for prompt in ([1, 2], [[1, 2]]):
        assert request_of({"prompt": prompt}) == Request(prompt=(1, 2), max_new_tokens=None)


def test_the_least_goes_up_to_the_limit() -> None:
    assert request_of(HI | {"min_tokens": 5}).min_new_tokens == 5
    assert request_of(HI | {"min_tokens": 5, "max_tokens": 5}).min_new_tokens == 5
    with pytest.raises(InvalidRequest, match="`min_tokens` is 6"):
        request_of(HI | {"min_tokens": 6, "max_tokens": 5})


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def test_everything_at_once() -> None:
    asked = request_of(
        HI
        | {
            "temperature": 0,
            "top_p": 0.9,
            "top_k": 5,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "presence_penalty": 0.2,
            "frequency_penalty": -0.3,
            "seed": 7,
            "max_tokens": 9,
            "stop": ["a", "b"],
            "n": 2,
            "logprobs": True,
            "top_logprobs": 3,
            "ignore_eos": True,
            "min_tokens": 2,
            "stop_token_ids": [5, 6],
            "logit_bias": {"5": -100, "6": 0.5},
            "tools": [TOOL],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "response_format": {"type": "json_object"},
            "chat_template_kwargs": {"enable_thinking": False},
            "cache_prompt": False,
            "stream": True,
            "stream_options": {"include_usage": True},
            "user": "u",
            "metadata": {"a": "b"},
        }
    )
    assert asked == Request(
        messages=(Message("user", "hi"),),
        sampling=Sampling(0, 0.9, 5, 0.1, 1.1, 0.2, -0.3, 7),
        max_new_tokens=9,
        min_new_tokens=2,
        stop=("a", "b"),
        stop_token_ids=(5, 6),
        logit_bias={5: -100, 6: 0.5},
        n=2,
        logprobs=3,
        ignore_eos=True,
        tools=(TOOL,),
        tool_choice="required",
        parallel_tool_calls=False,
        response_format={"type": "json_object"},
        template_kwargs={"enable_thinking": False},
        reuse_prompt=False,
    )


NAMES = [
    *Sampling.__dataclass_fields__,
    *("repeat_penalty", "max_tokens", "max_completion_tokens", "stop", "n", "logprobs", "tools"),
    *("top_logprobs", "ignore_eos", "tool_choice", "response_format", "chat_template_kwargs"),
    *("min_tokens", "stop_token_ids", "cache_prompt", "parallel_tool_calls", "store"),
    *("stream", "stream_options", "user", "logit_bias", "suffix", "reasoning_effort"),
]


@pytest.mark.parametrize("name", NAMES)
def test_null_is_not_said(name: str) -> None:
    assert request_of(HI | {name: None}) == request_of(HI)


def test_the_newer_limit_goes_before_the_older() -> None:
    assert request_of(HI | {"max_tokens": 5, "max_completion_tokens": 3}).max_new_tokens == 3
    assert request_of(HI | {"max_completion_tokens": 3}).max_new_tokens == 3


def test_a_whole_number_may_have_a_point() -> None:
    assert request_of(HI | {"max_tokens": 12.0, "n": 2.0}).max_new_tokens == 12
    assert request_of({"prompt": [1.0, 2]}).prompt == (1, 2)


def test_small_words() -> None:
    assert request_of(HI | {"stop": "x"}).stop == ("x",)
    assert request_of(HI | {"stop": []}).stop == ()
    assert request_of(HI | {"top_k": -1}).sampling.top_k == 0
    assert request_of(HI | {"repeat_penalty": 1.2}).sampling.repetition_penalty == 1.2
    assert request_of(HI | {"logprobs": True}).logprobs == 0
    assert request_of(HI | {"logprobs": False}).logprobs is None
    assert request_of({"prompt": "x", "logprobs": 2}).logprobs == 2
    assert request_of({"prompt": "x", "logprobs": 0}).logprobs == 0
    assert request_of(HI | {"response_format": {"type": "text"}}).response_format is None


BAD: list[tuple[str, Any]] = [
    ("temperature", "warm"),
    ("temperature", True),
    ("temperature", -1),
    ("temperature", float("nan")),
    ("top_p", 1.5),
    ("top_k", 1.5),
    ("seed", -1),
    ("n", 0),
    ("n", "2"),
    ("max_tokens", 0),
    ("max_tokens", 1.5),
    ("max_tokens", 2**31),
    ("max_completion_tokens", 2**31),
    ("min_tokens", 2**31),
    ("max_completion_tokens", True),
    ("stop", 5),
    ("stop", ["a", 5]),
    ("logprobs", 3),
    ("top_logprobs", 3),
    ("ignore_eos", "yes"),
    ("cache_prompt", 1),
    ("tools", {}),
    ("tools", [{"type": "retrieval"}]),
    ("tools", ["f"]),
    ("tool_choice", "sometimes"),
    ("tool_choice", 5),
    ("response_format", "json"),
    ("response_format", {"type": "xml"}),
    ("chat_template_kwargs", []),
    ("messages", "hi"),
    ("messages", ["hi"]),
    ("messages", [{"content": "hi"}]),
    ("messages", [{"role": "user", "content": 5}]),
    ("messages", [{"role": "user", "name": 5}]),
    ("prompt", ["a", "b"]),
    ("prompt", [[1], [2]]),
    ("prompt", []),
    ("prompt", [[]]),
    ("prompt", [1, -2]),
    ("prompt", [1, True]),
    ("prompt", 5),
    ("n", 129),
    ("min_tokens", -1),
    ("min_tokens", 1.5),
    ("stop", [""]),
    ("stop", ["x"] * 65),
    ("stop", "x" * 1001),
    ("stop_token_ids", 5),
    ("stop_token_ids", ["5"]),
    ("stop_token_ids", [-1]),
    ("logit_bias", []),
    ("logit_bias", {"hello": 1}),
    ("logit_bias", {"-5": 1}),
    ("logit_bias", {"²": 1}),
    ("logit_bias", {"5": "1"}),
    ("logit_bias", {"5": True}),
    ("logit_bias", {"5": 101}),
    ("logit_bias", {"5": float("nan")}),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_field_of_a_wrong_type_or_size_is_named(name: str, value: Any) -> None:
    named = "message|content" if name == "messages" else f"`?{name}`? is|without"
    body = HI | {name: value} if name != "prompt" else {"prompt": value}
    with pytest.raises(InvalidRequest, match=named) as raised:
        request_of(body)
    assert raised.value.hint
    if name != "messages" and "without" not in str(raised.value):
        assert raised.value.field == name


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"type": "json_schema"}, ".json_schema.schema"),
        ({"type": "json_schema", "json_schema": 5}, ".json_schema"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, ".json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"schema": "hi"}}, ".json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"schema": []}}, ".json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"schema": True}}, ".json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"schema": {}, "name": 5}}, ".json_schema.name"),
        ({"type": "json_schema", "json_schema": {"schema": {}, "x": 5}}, ".json_schema.x"),
        ({"type": "json_object", "schema": {"type": "string"}}, ".schema"),
    ],
)
def test_a_shape_has_a_schema(wanted: Any, named: str) -> None:
    with pytest.raises(InvalidRequest, match="response_format") as raised:
        request_of(HI | {"response_format": wanted})
    assert raised.value.field == f"response_format{named}"
    assert raised.value.hint


def test_a_schema_may_be_any_object() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "strict": True}}
    assert request_of(HI | {"response_format": wanted}).response_format == wanted


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
@pytest.mark.parametrize("more", [{}, {"tools": []}, {"tools": None}])
def test_a_call_is_of_a_tool(choice: Any, more: Any) -> None:
    with pytest.raises(InvalidRequest, match="`tool_choice` wants a call") as raised:
        request_of(HI | more | {"tool_choice": choice})
    assert raised.value.field == "tool_choice"


@pytest.mark.parametrize("choice", ["none", "auto", None])
def test_without_tools_no_call_is_nothing(choice: Any) -> None:
    assert request_of(HI | {"tools": [], "tool_choice": choice}) == request_of(HI)


@pytest.mark.parametrize(
    ("name", "most", "value"), [("logit_bias", 1024, 1), ("chat_template_kwargs", 256, True)]
)
def test_there_is_an_end_to_what_anybody_may_name(name: str, most: int, value: Any) -> None:
    entries = {str(n): value for n in range(most + 1)}
    with pytest.raises(InvalidRequest, match=f"`{name}` has {most + 1} entries") as raised:
        request_of(HI | {name: entries})
    assert raised.value.field == name
    del entries["0"]
    request_of(HI | {name: entries})


def test_logprobs_have_bounds() -> None:
    with pytest.raises(InvalidRequest, match="`logprobs` is 21"):
        request_of({"prompt": "x", "logprobs": 21})
    with pytest.raises(InvalidRequest, match="`top_logprobs` is -1"):
        request_of(HI | {"logprobs": True, "top_logprobs": -1})


@pytest.mark.parametrize(
    "call",
    [
        {},
        "f",
        {"id": "a"},
        {"id": "a", "function": {"name": "f"}},
        {"id": "a", "function": {"name": "f", "arguments": {}}},
        {"function": {"name": "f", "arguments": "{}"}},
    ],
)
def test_a_tool_call_of_another_shape_is_refused(call: Any) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    with pytest.raises(InvalidRequest, match=r"messages\[1\].tool_calls"):
        request_of({"messages": [*HI["messages"], message]})


def test_an_unknown_field_is_named_with_the_nearest_known() -> None:
    with pytest.raises(InvalidRequest, match="`temprature`") as raised:
        request_of(HI | {"temprature": 1})
    assert raised.value.hint == "did you mean `temperature`?"
    assert raised.value.field == "temprature"


@pytest.mark.parametrize(
    ("name", "neutral", "real"),
    [
        ("best_of", 1, 3),
        ("best_of", 1, True),
        ("echo", False, True),
        ("echo", False, 0),
        ("suffix", "", "end"),
        ("store", False, True),
        ("modalities", ["text"], ["text", "audio"]),
    ],
)
def test_what_bourn_cannot_do_is_refused_unless_it_asks_for_nothing(
    name: str, neutral: object, real: object
) -> None:
    assert request_of(HI | {name: neutral}) == request_of(HI)
    with pytest.raises(UnsupportedField, match=name):
        request_of(HI | {name: real})


@pytest.mark.parametrize(
    "body", [{}, {"messages": []}, {"messages": [{"role": "user"}], "prompt": "x"}]
)
def test_there_is_one_thing_to_answer(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        request_of(body)


def test_messages_in_full() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    picture = {"type": "image_url", "image_url": {"url": "https://x", "detail": "low"}}
    told = [
        {"role": "user", "content": [{"type": "text", "text": "?"}, picture], "name": "Ann"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "content": "42", "tool_call_id": "c"},
    ]
    assert request_of({"messages": told}).messages == (
        Message("user", (TextPart("?"), ImagePart("https://x", "low")), name="Ann"),
        Message("assistant", "", reasoning="hm", tool_calls=(ToolCall("c", "f", "{}"),)),
        Message("tool", "42", tool_call_id="c"),
    )


def test_usage_only_when_asked() -> None:
    assert wants_usage({"stream_options": {"include_usage": True}})
    assert not wants_usage({"stream_options": {"include_usage": False}})
    assert not wants_usage({"stream_options": None})
    assert not wants_usage({})
    assert not wants_usage({"stream_options": {"include_obfuscation": False}})
    for bad in (5, {"include_usage": "yes"}, {"usage": True}, {"include_obfuscation": True}):
        with pytest.raises(InvalidRequest, match="stream_options"):
            wants_usage({"stream_options": bad})


def test_what_is_huge_is_refused_in_few_words() -> None:
    for huge in ({"x" * 10**6: 1}, {"n": "9" * 10**6}, {"tools": [5] * 10**5}):
        with pytest.raises(InvalidRequest) as raised:
            request_of(HI | huge)
        assert len(str(raised.value)) < 200
        assert len(raised.value.field or "") < 100
    with pytest.raises(InvalidRequest, match="`messages` is 10001"):
        request_of({"messages": HI["messages"] * 10_001})


def said_by(**message: Any) -> dict[str, Any]:
    return {"messages": [*HI["messages"], {"role": "assistant", "content": None, **message}]}


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ({"function_call": {"name": "f", "arguments": "{}"}}, "function_call"),
        ({"refusal": "no"}, "refusal"),
        ({"audio": {"id": "a"}}, "audio"),
        ({"content": "x", "foo": 1}, "foo"),
        ({"content": 5}, "content"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text"}]}, "content[1]"),
        ({"content": [{"type": "image_url"}]}, "content[0]"),
        ({"content": [{"type": "input_audio"}]}, "content[0]"),
        ({"role": None}, "role"),
        ({"role": 5}, "role"),
        ({"name": 5}, "name"),
    ],
)
def test_what_is_wrong_in_a_message_is_named(message: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidRequest, match=r"messages\[1\]") as raised:
        request_of(said_by(**message))
    assert raised.value.field == f"messages[1].{named}"
    assert raised.value.hint


def test_an_answer_may_be_sent_back_with_all_that_it_had() -> None:
    nothing: dict[str, Any] = {
        "refusal": None,
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "reasoning_details": [],
        "prefix": False,
    }
    more: dict[str, Any] = {
        "content": "x",
        "annotations": [{"type": "url_citation"}],
        "parsed": {"a": 1},
        "reasoning_content": None,
        "tool_calls": [],
    }
    said = Message("assistant", "x")
    assert request_of(said_by(**nothing, **{k: more[k] for k in ("content",)})).messages[1] == said
    assert request_of(said_by(**nothing | more)).messages[1] == said
