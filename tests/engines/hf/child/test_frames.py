"""Frames between a parent and its child: their form, their limits, and what cannot be in one."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from typing import Any

import pytest

from bourn.engines.base import ModelInfo
from bourn.engines.hf.child.frames import (
    LIMIT,
    Ask,
    Decoder,
    Ended,
    Failed,
    Frame,
    Hello,
    Ready,
    Step,
    abroad,
    encode,
)
from bourn.errors import EngineError, InvalidRequest, QueueFull, UnsupportedField
from bourn.types import Channel, FinishReason, Message, Piece, Request, Sampling, TokenLogprob

REQUEST = Request(prompt="x")


def heard(data: bytes) -> list[Frame]:
    return list(Decoder().feed(data))


def test_a_usual_piece_is_a_short_row() -> None:
    step = Step(((1, Piece(" a", tokens=1)), (2, Piece("é", tokens=2))))
    encoded = encode(step)
    assert encoded == b'\x00\x00\x00\x24["Step",[[1," a",1],[2,"\\u00e9",2]]]'
    assert heard(encoded) == [step]


def test_every_other_field_of_a_piece_travels() -> None:
    unusual: dict[str, Any] = {
        "channel": Channel.REASONING,
        "choice": 1,
        "logprobs": (TokenLogprob("a", -math.inf, b"\xe2\x82", (TokenLogprob("b", 0.0),)),),
        "finish": FinishReason.LENGTH,
        "opened": Channel.TOOL,
        "prompt_done": 0,
    }
    for name, value in unusual.items():
        piece = replace(Piece("a", tokens=1), **{name: value})
        assert heard(encode(Step(((1, piece),)))) == [Step(((1, piece),))]


def test_two_frames_glued_and_cut_at_every_byte() -> None:
    said: list[Frame] = [Ask(7, REQUEST), Step(((7, Piece("a", tokens=1)),))]
    glued = b"".join(map(encode, said))
    assert heard(glued) == said
    for place in range(len(glued) + 1):
        decoder = Decoder()
        assert [*decoder.feed(glued[:place]), *decoder.feed(glued[place:])] == said
    decoder = Decoder()
    assert [frame for byte in glued for frame in decoder.feed(bytes([byte]))] == said


def test_a_frame_that_is_too_large_is_refused_before_it_is_read() -> None:
    decoder = Decoder(100)
    with pytest.raises(EngineError, match="101 bytes, where 100 are allowed"):
        list(decoder.feed((101).to_bytes(4, "big")))
    with pytest.raises(EngineError, match="4,294,967,295 bytes"):
        heard(b"\xff\xff\xff\xff")


def test_the_limit_may_change_between_two_frames() -> None:
    decoder = Decoder(100)
    large = Step(((1, Piece("x" * 200, tokens=1)),))
    frames = decoder.feed(encode(Hello("key")) + encode(large))
    assert next(frames) == Hello("key")
    decoder.limit = LIMIT
    assert next(frames) == large


def test_a_request_that_is_too_large_is_refused_where_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bourn.engines.hf.child.frames.LIMIT", 1000)
    with pytest.raises(InvalidRequest, match=r"1,0\d\d bytes are too many"):
        encode(Ask(1, Request(prompt="x" * 1000)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'["Nothing",{}]',
        b'["__class__",{}]',
        b'["Ask",{"id":1}]',
        b'["Ask",{"id":1,"request":{}}]',
        b'["Ask",{"id":1,"request":{"prompt":3}}]',
        b'["Ended",{"id":1,"unknown":2}]',
        b'["Step",3]',
        b'["Step",[[1]]]',
        b'["Failed",[1,{"code":"timeout"}]]',
        b'["Ended",' + b"[" * 100_000,
        "é".encode(),
        b"\x80\x04K\x01.",
    ],
)
def test_what_is_no_frame_is_refused(body: bytes) -> None:
    with pytest.raises(EngineError, match="a frame that cannot be read"):
        heard(len(body).to_bytes(4, "big") + body)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (replace(REQUEST, template_kwargs={"a": {1, 2}}), "`template_kwargs` holds .*set"),
        (replace(REQUEST, template_kwargs={"a": {1: 2}}), "`template_kwargs` holds a key"),
        (replace(REQUEST, tools=({"f": print},)), "`tools` holds .*builtin"),
        (replace(REQUEST, response_format={"a": 10**5000}), "cannot be told"),
    ],
)
def test_what_json_cannot_say_is_refused_by_name(request_: Request, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        encode(Ask(1, request_))


def test_objects_of_this_process_are_refused_by_name() -> None:
    asked = replace(REQUEST, engine_options={"logits_processor": [print]})
    with pytest.raises(UnsupportedField, match="`logits_processor`"):
        encode(Ask(1, asked))


def test_a_model_abroad_honours_what_can_travel() -> None:
    info = ModelInfo(
        "m", "e", honours=frozenset({"top_k", "logits_processor"}), why={"tools": "no template"}
    )
    told = abroad(info)
    assert told.honours == {"top_k"}
    assert told.why["tools"] == "no template"
    assert "bourn.hf" in told.why["logits_processor"]


def test_all_that_may_be_asked_for_can_travel_but_the_engines_own_options() -> None:
    sampling = Sampling(**dict.fromkeys((field.name for field in fields(Sampling)), 1))
    full = Request(
        messages=(Message("user", "x"),),
        sampling=sampling,
        min_new_tokens=1,
        stop_token_ids=(1,),
        logit_bias={1: 1.0},
        n=2,
        logprobs=1,
        ignore_eos=True,
        tools=({},),
        tool_choice="auto",
        response_format={},
        template_kwargs={"a": 1},
        engine_options={"own": object()},
    )
    raw = Request(prompt=(1, 2))
    wished = frozenset(full.asks() | raw.asks() | {"images"})
    assert abroad(ModelInfo("m", "e", honours=wished)).honours == wished - {"own"}


def test_a_foreign_error_is_named() -> None:
    (frame,) = heard(encode(Failed(1, KeyError("weights"))))
    assert isinstance(frame, Failed)
    assert type(frame.error) is EngineError
    assert str(frame.error) == "KeyError: 'weights'"
    (frame,) = heard(encode(Failed(None, AssertionError())))
    assert isinstance(frame, Failed)
    assert str(frame.error) == "AssertionError"


def test_an_error_of_a_kind_that_is_unknown_here_is_the_nearest_that_is_known() -> None:
    class Special(QueueFull):
        code = "special"

    error = Special("full", retry_after=2.0)
    error.thing = object()  # type: ignore[attr-defined]
    error.add_note("a note")
    (frame,) = heard(encode(Failed(1, error)))
    assert isinstance(frame, Failed)
    assert type(frame.error) is QueueFull
    assert frame.error.retry_after == 2.0


def test_frames_are_text_that_a_person_can_read() -> None:
    kind, told = json.loads(encode(Ready(ModelInfo("m", "e", window=8)))[4:])
    assert (kind, told) == ("Ready", {"info": {"name": "m", "engine": "e", "window": 8}})
    assert json.loads(encode(Ended(3))[4:]) == ["Ended", {"id": 3}]
