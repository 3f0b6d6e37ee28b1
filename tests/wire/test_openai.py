from __future__ import annotations

from typing import Any

import pytest

from bourn.engines.dialects import GENERIC, LLAMACPP, MISTRAL, OLLAMA, OPENAI, SGLANG, VLLM
from bourn.errors import InvalidRequest, UnsupportedField
from bourn.types import ImagePart, Message, Request, Sampling, TextPart, ToolCall
from bourn.wire.dialect import Dialect
from bourn.wire.openai import body_of

ALL = [GENERIC, LLAMACPP, MISTRAL, OLLAMA, OPENAI, SGLANG, VLLM]
HI = (Message("user", "hi"),)
USAGE = {"include_usage": True}


def body(dialect: Dialect = GENERIC, **fields: Any) -> dict[str, Any]:
    if "prompt" not in fields:
        fields.setdefault("messages", HI)
    return body_of(Request(**fields), "m", dialect)


def test_a_hosted_api_gets_nothing_it_does_not_know() -> None:
    assert body(OPENAI) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_completion_tokens": 1024,
        "stream": True,
        "stream_options": USAGE,
    }


def test_mistral_refuses_even_stream_options() -> None:
    assert body(MISTRAL, sampling=Sampling(seed=3)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 1024,
        "stream": True,
        "random_seed": 3,
    }


def test_llamacpp_is_always_asked_for_progress_and_counts() -> None:
    told = body(LLAMACPP)
    assert told["return_progress"] is told["timings_per_token"] is told["cache_prompt"] is True
    assert told["stream_options"] == USAGE
    assert told["reasoning_format"] == "auto"
    assert "reasoning_format" not in body(LLAMACPP, prompt="x")


@pytest.mark.parametrize("dialect", [VLLM, SGLANG])
def test_counts_in_every_chunk(dialect: Dialect) -> None:
    assert body(dialect)["stream_options"] == {**USAGE, "continuous_usage_stats": True}


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_stop_strings_are_not_sent(dialect: Dialect) -> None:
    assert "stop" not in body(dialect, stop=("\nUser:",))


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_what_a_dialect_does_not_take_is_refused_by_name(dialect: Dialect) -> None:
    asked: dict[str, dict[str, Any]] = {
        "n": {"n": 2},
        "logprobs": {"logprobs": 1},
        "ignore_eos": {"ignore_eos": True},
        "tools": {"tools": ({},)},
        "tool_choice": {"tool_choice": "auto"},
        "response_format": {"response_format": {"type": "json_object"}},
        "template_kwargs": {"template_kwargs": {"a": 1}},
        "prompt": {"prompt": "x"},
        "logit_bias": {"logit_bias": {5: -100}},
        "min_new_tokens": {"min_new_tokens": 2},
        "stop_token_ids": {"stop_token_ids": (5,)},
        "images": {"messages": (Message("user", (ImagePart("https://x/y.png"),)),)},
        "top_k": {"sampling": Sampling(top_k=3)},
        "min_p": {"sampling": Sampling(min_p=0.1)},
        "repetition_penalty": {"sampling": Sampling(repetition_penalty=1.1)},
    }
    for name, fields in asked.items():
        if name in dialect.honours:
            assert body(dialect, **fields)["model"] == "m"
        else:
            with pytest.raises(UnsupportedField) as raised:
                body(dialect, **fields)
            assert raised.value.field == name


@pytest.mark.parametrize("dialect", [VLLM, SGLANG])
def test_ends_and_biases_by_token_id(dialect: Dialect) -> None:
    wished = {"min_new_tokens": 2, "stop_token_ids": (5, 6), "logit_bias": {7: -100, 8: 0.5}}
    told = body(dialect, **wished)
    assert told["min_tokens"] == 2
    assert told["stop_token_ids"] == (5, 6)
    assert told["logit_bias"] == {"7": -100, "8": 0.5}
    assert not {"min_tokens", "stop_token_ids", "logit_bias"} & body(dialect).keys()


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_a_prompt_of_token_ids(dialect: Dialect) -> None:
    if "token ids as prompt" in dialect.honours:
        assert body(dialect, prompt=(1, 2))["prompt"] == (1, 2)
    else:
        with pytest.raises(UnsupportedField):
            body(dialect, prompt=(1, 2))


FULL = Sampling(
    temperature=0.0,
    top_p=0.9,
    top_k=0,
    min_p=0.1,
    repetition_penalty=1.1,
    presence_penalty=0.2,
    frequency_penalty=0.3,
    seed=7,
)


@pytest.mark.parametrize(
    ("dialect", "repetition", "no_top_k"),
    [
        (LLAMACPP, "repeat_penalty", 0),
        (VLLM, "repetition_penalty", -1),
        (SGLANG, "repetition_penalty", -1),
    ],
)
def test_sampling_in_full(dialect: Dialect, repetition: str, no_top_k: int) -> None:
    told = body(dialect, sampling=FULL)
    for name in ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "seed"):
        assert told[name] == getattr(FULL, name)
    assert told[repetition] == 1.1
    assert told["top_k"] == no_top_k


def test_the_rest_of_the_window_is_no_limit_on_the_wire() -> None:
    assert not {"max_tokens", "max_completion_tokens"} & body(OPENAI, max_new_tokens=None).keys()
    assert body(OPENAI, prompt="x", max_new_tokens=5)["max_tokens"] == 5


def test_options_are_sent_only_when_used() -> None:
    told = body(
        VLLM,
        n=2,
        logprobs=0,
        ignore_eos=True,
        tools=({"type": "function"},),
        tool_choice="auto",
        response_format={"type": "json_object"},
        template_kwargs={"enable_thinking": False},
    )
    plain = body(VLLM)
    assert {name: value for name, value in told.items() if name not in plain} == {
        "n": 2,
        "logprobs": True,
        "top_logprobs": 0,
        "ignore_eos": True,
        "tools": [{"type": "function"}],
        "tool_choice": "auto",
        "response_format": {"type": "json_object"},
        "chat_template_kwargs": {"enable_thinking": False},
    }


NAMED = {"type": "function", "function": {"name": "g"}}


def test_a_named_call_is_asked_of_those_who_would_pass_over_the_name_by_showing_it_alone() -> None:
    tools = tuple({"type": "function", "function": {"name": name}} for name in "fgh")
    told = body(LLAMACPP, tools=tools, tool_choice=NAMED)
    assert (told["tools"], told["tool_choice"]) == ([tools[1]], "required")
    told = body(VLLM, tools=tools, tool_choice=NAMED)
    assert (told["tools"], told["tool_choice"]) == ([*tools], NAMED)
    for choice in (NAMED, {"type": "allowed_tools"}):
        with pytest.raises(InvalidRequest, match="none of the tools") as caught:
            body(LLAMACPP, tools=tools[:1], tool_choice=choice)
        assert caught.value.field == "tool_choice"


def test_reading_the_prompt_anew_is_asked_of_those_who_can() -> None:
    assert body(LLAMACPP, reuse_prompt=False)["cache_prompt"] is False
    assert body(GENERIC, reuse_prompt=False) == body(GENERIC)


def test_llamacpp_is_asked_for_one_alternative_at_least() -> None:
    assert body(LLAMACPP, logprobs=0)["top_logprobs"] == 1
    assert body(LLAMACPP, logprobs=5)["top_logprobs"] == 5
    assert body(LLAMACPP, prompt="x", logprobs=0)["logprobs"] == 1
    assert body(GENERIC, prompt="x", logprobs=0)["logprobs"] == 0


def test_messages() -> None:
    call = ToolCall("c1", "f", '{"a": 1}')
    parts = (
        TextPart("what?"),
        ImagePart("data:image/png;base64,AA", "low"),
        ImagePart("https://x"),
    )
    messages = (
        Message("user", parts, name="Ann"),
        Message("assistant", reasoning="hm", tool_calls=(call,)),
        Message("tool", "42", tool_call_id="c1"),
    )
    assert body(VLLM, messages=messages)["messages"] == [
        {
            "role": "user",
            "name": "Ann",
            "content": [
                {"type": "text", "text": "what?"},
                {
                    "type": "image_url",
                    "image_url": {"url": "data:image/png;base64,AA", "detail": "low"},
                },
                {"type": "image_url", "image_url": {"url": "https://x"}},
            ],
        },
        {
            "role": "assistant",
            "content": "",
            "reasoning": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
            ],
        },
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]


def test_a_call_without_arguments_goes_back_as_json() -> None:
    call = ToolCall("c1", "f", "")
    for dialect, sent in ((LLAMACPP, "{}"), (OPENAI, "")):
        (told,) = body(dialect, messages=(Message("assistant", tool_calls=(call,)),))["messages"]
        assert told["tool_calls"][0]["function"]["arguments"] == sent


def test_reasoning_goes_back_only_to_those_who_take_it() -> None:
    messages = (*HI, Message("assistant", "yes", reasoning="hm"), *HI)
    assert body(OPENAI, messages=messages)["messages"][1] == {"role": "assistant", "content": "yes"}
    assert body(LLAMACPP, messages=messages)["messages"][1]["reasoning_content"] == "hm"
