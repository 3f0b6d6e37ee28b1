from __future__ import annotations

import pytest

from bourn.asking import Asked, Options, request_for
from bourn.errors import InvalidRequest
from bourn.settings import Settings
from bourn.types import (
    DEFAULT_MAX_NEW_TOKENS,
    ImagePart,
    Message,
    Request,
    Sampling,
    TextPart,
    ToolCall,
)

USER = Message("user", "hi")
PLAIN = Settings()


def asked(what: Asked, options: Options | None = None, settings: Settings = PLAIN) -> Request:
    return request_for(what, options or {}, settings)


@pytest.mark.parametrize("what", ["hi", USER, {"role": "user", "content": "hi"}, [USER], (USER,)])
def test_every_way_to_ask_one_question(what: Asked) -> None:
    assert asked(what).messages == (USER,)


def test_a_whole_message_as_on_the_wire() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:,x", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://x/y"}},
    ]
    request = asked(
        [
            {"role": "user", "content": parts, "name": "ann"},
            {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm"},
            {"role": "tool", "content": "42", "tool_call_id": "1"},
        ]
    )
    images = (ImagePart("data:,x", "low"), ImagePart("https://x/y"))
    assert request.messages == (
        Message("user", (TextPart("see"), *images), name="ann"),
        Message("assistant", "", tool_calls=(ToolCall("1", "f", "{}"),), reasoning="hm"),
        Message("tool", "42", tool_call_id="1"),
    )
    assert request.messages[0].text == "see"
    assert request.messages[0].images == images
    assert "images" in request.asks()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ([], "nothing to answer"),
        ([{"content": "hi"}], "no message"),
        ([{"role": "user", "content": 5}], "content is int"),
        ([{"role": "user", "content": [{"type": "audio"}]}], "unknown kind"),
    ],
)
def test_what_is_no_question(what: Asked, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        asked(what)


def test_defaults_of_bourn_then_the_users_then_what_is_said() -> None:
    assert asked("hi").max_new_tokens == DEFAULT_MAX_NEW_TOKENS
    own = Settings(max_new_tokens=7, stop=("END",), system="Be brief.")
    request = asked("hi", settings=own)
    assert (request.max_new_tokens, request.stop) == (7, ("END",))
    assert request.messages[0] == Message("system", "Be brief.")
    request = asked("hi", {"max_new_tokens": None, "stop": "X", "system": None}, own)
    assert (request.max_new_tokens, request.stop, len(request.messages)) == (None, ("X",), 1)


def test_there_is_one_system_message_at_most() -> None:
    first = Message("system", "I was here first.")
    assert asked([first, USER], settings=Settings(system="Me too.")).messages == (first, USER)


def test_sampling_and_a_raw_prompt() -> None:
    request = asked("Once", {"raw": True, "temperature": 0, "seed": 3, "stop": ["a", "b"]})
    assert (request.prompt, request.messages) == ("Once", ())
    assert request.sampling == Sampling(temperature=0, seed=3)
    assert request.stop == ("a", "b")
    with pytest.raises(InvalidRequest, match="one text"):
        asked([USER], {"raw": True})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stop": ["a", ""]}, "stop string is empty"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"n": 0}, "n is 0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"temprature": 1}, "no option `temprature`"),
    ],
)
def test_wrong_options_are_named(options: Options, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        asked("hi", options)
