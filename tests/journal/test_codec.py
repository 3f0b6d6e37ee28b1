from __future__ import annotations

import json

import pytest

from bourn.errors import EngineCrashed, EngineError
from bourn.journal.codec import decode, encode
from bourn.types import Channel, Delta, Done, Sampling, Started, TokenLogprob, Usage


def test_plain_text_is_written_short() -> None:
    assert encode(Delta("Hi", tokens=1)) == '["Hi",1]'
    assert decode('["Hi",1]') == Delta("Hi", tokens=1)


def test_text_that_is_called_as_an_event_is() -> None:
    assert decode(encode(Delta("Done", tokens=2))) == Delta("Done", tokens=2)


def test_what_differs_from_plain_text_is_kept() -> None:
    entry = TokenLogprob("é", -0.5, b"\xc3", (TokenLogprob("e", float("-inf")),))
    for delta in (
        Delta("a", Channel.REASONING),
        Delta("a", choice=1),
        Delta("", logprobs=(entry,)),
    ):
        assert decode(encode(delta)) == delta


def test_half_a_character_is_kept() -> None:
    text = encode(Delta("\ud83c 漢\0"))
    assert text.isascii()
    assert decode(text) == Delta("\ud83c 漢\0")


def test_an_error_is_of_its_class_again() -> None:
    error = EngineCrashed("it died", last_words=("out of memory",), hint="a smaller model")
    done = decode(encode(Done("failed", Usage(1, 2), error=error)))
    assert isinstance(done, Done)
    assert done.usage == Usage(1, 2)
    assert isinstance(done.error, EngineCrashed)
    assert done.error.last_words == ("out of memory",)
    assert done.error.hint == "a smaller model"


def test_a_foreign_error_is_named() -> None:
    done = decode(encode(Done("failed", error=KeyError("weights"))))
    assert isinstance(done, Done)
    assert type(done.error) is EngineError
    assert str(done.error) == "KeyError: 'weights'"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '"Done"',
        '["Done"]',
        '["Done",{"state":"over","usage":{},"metrics":{}}]',
        '["Done",{"state":[],"usage":{},"metrics":{}}]',
        '["Done",{"state":"failed","usage":{},"metrics":{},"error":{}}]',
        '["Started",{"sampling":{"top_p":7}}]',
        '["Finished",{"reason":"bored"}]',
        '["Delta",{"text":"a","colour":"red"}]',
        '["os.system",{"command":"true"}]',
        '["Delta",null]',
        "[" * 100_000,
    ],
)
def test_what_was_never_written_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no event can be read"):
        decode(text)


def test_what_a_type_does_not_allow_is_refused() -> None:
    with pytest.raises(TypeError):
        encode(Delta(b"bytes"))  # type: ignore[arg-type]


def test_what_is_not_said_is_not_written() -> None:
    assert json.loads(encode(Started(Sampling(seed=1)))) == ["Started", {"sampling": {"seed": 1}}]
