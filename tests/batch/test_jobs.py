from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bourn.batch import Job, count_lines, jobs
from bourn.errors import InvalidRequest
from bourn.settings import Settings
from bourn.types import DEFAULT_MAX_NEW_TOKENS, Message, Request, ToolCall

PLAIN = Settings()


def read(*lines: bytes | dict[str, Any], settings: Settings = PLAIN) -> list[Job]:
    written = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return list(jobs([line + b"\n" for line in written], settings))


def request(line: dict[str, Any], settings: Settings = PLAIN) -> Request:
    (job,) = read(line, settings=settings)
    assert isinstance(job.asked, Request), job.asked
    return job.asked


def refusal(line: bytes | dict[str, Any]) -> str:
    (job,) = read(line)
    assert isinstance(job.asked, InvalidRequest)
    return f"{job.asked} → {job.asked.hint}"


def test_a_prompt_is_a_question_and_raw_it_is_a_beginning() -> None:
    assert request({"prompt": "hi"}).messages == (Message("user", "hi"),)
    assert request({"prompt": "Once", "raw": True}).prompt == "Once"


def test_messages_are_as_in_openais_api() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    said = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    told = request({"messages": said})
    assert told.messages[0].text == "hi"
    assert told.messages[1].tool_calls == (ToolCall("c", "f", "{}"),)


def test_every_option_may_stand_in_a_line() -> None:
    told = request(
        {
            "prompt": "hi",
            "system": "Be brief.",
            "stop": ["a", "b"],
            "max_new_tokens": 5,
            "n": 2,
            "seed": 7,
            "temperature": 0,
            "top_p": 0.5,
            "top_k": 3,
            "min_p": 0,
            "logprobs": 1,
            "repetition_penalty": 1.1,
            "presence_penalty": 0.1,
            "frequency_penalty": -0.1,
            "min_new_tokens": 2,
            "stop_token_ids": [9],
            "logit_bias": {"5": -100, "6": 0.5},
            "ignore_eos": True,
            "reuse_prompt": False,
            "template_kwargs": {"x": 1},
            "tools": [{"type": "function"}],
            "tool_choice": "auto",
            "response_format": None,
        }
    )
    assert told.messages == (Message("system", "Be brief."), Message("user", "hi"))
    assert (told.stop, told.max_new_tokens, told.n, told.logprobs) == (("a", "b"), 5, 2, 1)
    assert told.sampling.given().keys() == {
        *("temperature", "top_p", "top_k", "min_p", "seed"),
        *("repetition_penalty", "presence_penalty", "frequency_penalty"),
    }
    assert told.logit_bias == {5: -100, 6: 0.5}
    assert (told.stop_token_ids, told.min_new_tokens) == ((9,), 2)
    assert (told.ignore_eos, told.reuse_prompt, told.template_kwargs) == (True, False, {"x": 1})


def test_what_a_line_does_not_say_the_settings_do() -> None:
    settings = Settings(system="Be brief.", stop=("x",), max_new_tokens=9)
    told = request({"prompt": "hi"}, settings)
    assert told.messages[0] == Message("system", "Be brief.")
    assert (told.stop, told.max_new_tokens) == (("x",), 9)
    assert request({"prompt": "hi"}).max_new_tokens == DEFAULT_MAX_NEW_TOKENS
    assert request({"prompt": "hi", "max_new_tokens": None}).max_new_tokens is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{broken", "line 1 is no JSON"),
        (b'{"prompt": "\xff"}', "line 1 is no JSON"),
        (b'"hi"', "line 1 is no object"),
        (b"[1]", "line 1 is no object"),
        ({}, "there is no prompt"),
        ({"prompt": "a", "messages": []}, "a prompt and messages"),
        ({"prompt": 5}, "`prompt` is 5 → give a text"),
        ({"prompt": None}, "`prompt` is None"),
        ({"messages": "hi"}, "`messages` is 'hi' → give a list"),
        ({"messages": []}, "nothing to answer"),
        ({"messages": ["hi"]}, "no message"),
        ({"messages": [{"role": "user", "content": 5}]}, "content is int"),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]}]},
            "it cannot be read: KeyError('function')",
        ),
        ({"messages": [{"role": "user", "content": "hi"}], "raw": True}, "raw prompt is one text"),
        ({"prompt": "hi", "max_new_token": 5}, "did you mean `max_new_tokens`?"),
        ({"prompt": "hi", "max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"prompt": "hi", "max_new_tokens": "5"}, "`max_new_tokens` is '5' → give a whole number"),
        ({"prompt": "hi", "max_new_tokens": True}, "`max_new_tokens` is True"),
        ({"prompt": "hi", "temperature": "hot"}, "`temperature` is 'hot' → give a number"),
        ({"prompt": "hi", "temperature": -1}, "temperature is -1"),
        ({"prompt": "hi", "seed": 1.5}, "`seed` is 1.5"),
        ({"prompt": "hi", "stop": [""]}, "a stop string is empty"),
        ({"prompt": "hi", "stop": 5}, "`stop` is 5"),
        ({"prompt": "hi", "stop": [5]}, "`stop` is [5]"),
        ({"prompt": "hi", "n": None}, "`n` is None"),
        ({"prompt": "hi", "raw": 1}, "`raw` is 1 → give true or false"),
        ({"prompt": "hi", "tools": [1]}, "`tools` is [1]"),
        ({"prompt": "hi", "template_kwargs": []}, "`template_kwargs` is []"),
        ({"prompt": "hi", "logit_bias": {"a": 1}}, "`logit_bias` is {'a': 1}"),
        ({"prompt": "hi", "logit_bias": {"1": "a"}}, "`logit_bias` is {'1': 'a'}"),
        ({"prompt": "hi", "logits_processor": []}, "`logits_processor` cannot be said in a file"),
        ({"id": 1.5, "prompt": "hi"}, "the id is 1.5"),
        ({"id": True, "prompt": "hi"}, "the id is True"),
        ({"id": ["a"], "prompt": "hi"}, "the id is ['a']"),
        ({"body": "hi"}, "`body` is 'hi'"),
        ({"body": {"messages": []}}, "nothing to answer"),
        ({"body": {"input": "hi"}}, "no field `input`"),
        ({"url": "/v1/embeddings", "body": {}}, "`url` is '/v1/embeddings'"),
        ({"method": "GET", "body": {}}, "`method` is 'GET'"),
        ({"id": "a", "body": {}}, "no field `id`"),
    ],
)
def test_what_cannot_be_meant_is_told(line: bytes | dict[str, Any], words: str) -> None:
    assert words in refusal(line)


def test_ids_are_their_own_or_the_number_of_the_line() -> None:
    got = read(
        {"prompt": "a"}, b"  ", {"id": "x", "prompt": "b"}, {"id": None, "prompt": "c"}, b"?"
    )
    assert [(job.id, job.line) for job in got] == [(1, 1), ("x", 3), (4, 4), (5, 5)]


def test_an_id_may_be_there_once() -> None:
    got = read({"id": 2, "prompt": "a"}, {"prompt": "b"}, {"id": "2", "prompt": "c"})
    assert [job.id for job in got] == [2, None, "2"]
    twice = got[1].asked
    assert isinstance(twice, InvalidRequest)
    assert "line 2 has the id of line 1: 2" in str(twice)
    assert isinstance(got[0].asked, Request)
    assert isinstance(got[2].asked, Request)


def test_a_mark_of_byte_order_is_none_of_the_json() -> None:
    (job,) = read(b'\xef\xbb\xbf{"prompt": "a"}')
    assert isinstance(job.asked, Request)


def test_a_request_of_openais_batch_files() -> None:
    messages = [{"role": "user", "content": "hi"}]
    line = {
        "custom_id": "one",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "gpt-x", "messages": messages, "max_tokens": 5, "stop": "x"},
    }
    settings = Settings(system="Be brief.", stop=("y",), max_new_tokens=9)
    (job,) = read(line, settings=settings)
    assert (job.id, job.openai) == ("one", True)
    assert isinstance(job.asked, Request)
    assert job.asked.messages == (Message("system", "Be brief."), Message("user", "hi"))
    assert (job.asked.max_new_tokens, job.asked.stop) == (5, ("x",))
    told = request({"body": {"prompt": "Once"}}, settings)
    assert (told.prompt, told.max_new_tokens, told.stop) == ("Once", 9, ("y",))
    assert request({"body": {"prompt": "Once"}}).max_new_tokens is None


def test_blank_lines_are_not_counted(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(b'{"prompt": "a"}\n\n \n{"prompt": "b"}')
    assert count_lines(file) == 2


def test_lines_are_read_one_by_one() -> None:
    endless = iter(lambda: b'{"prompt": "a"}\n', None)
    first = next(jobs((line for line in endless), PLAIN))
    assert first.id == 1
