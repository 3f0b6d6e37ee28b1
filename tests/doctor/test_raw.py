"""Answers as they came over the wire, read strictly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bourn.doctor.raw import Exchange, has_text
from tests.support.openai_server import chunk, sse, text_stream, usage


def told(body: bytes, status: int = 200, *, broke: str = "") -> Exchange:
    return Exchange(status, "text/event-stream", body, broke)


def test_a_good_stream() -> None:
    said = told(text_stream("Hello", " you", finish="length"))
    assert (said.finish, said.generated, said.done, said.error) == ("length", 2, True, "")
    assert said.strays == said.broken_json == []
    assert [delta.get("content") for delta in said.deltas] == [None, "Hello", " you", None]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_all_ends_of_lines_are_ends_of_lines(end: str) -> None:
    body = text_stream("Hello").replace(b"\n", end.encode())
    assert told(body).generated == 1
    assert told(body).strays == []


def test_what_an_event_stream_may_hold_besides_data() -> None:
    body = b": ping\n\nevent: x\nid: 7\nretry: 5\ndata:" + json.dumps(chunk("a")).encode() + b"\n\n"
    assert told(body).strays == []
    assert told(body).deltas == [{"content": "a"}]


def test_what_it_may_not() -> None:
    assert told(b'data: {"a": 1}\n\n{"b": 2}\n\n').strays == ['{"b": 2}']
    assert told(b'data: data: {"a": 1}\n\n').broken_json == ['data: {"a": 1}']
    assert told(b'data: {"a": \n\n').broken_json == ['{"a": ']
    assert told(b"data: [1]\n\n").broken_json == ["[1]"]


def test_done_is_the_last_thing() -> None:
    assert not told(sse(chunk("a"), done=False)).done
    assert not told(sse(chunk("a")) + sse(usage(1, 1), done=False)).done
    assert not told(b"").done


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (told(b'{"error": {"message": "no such model"}}', status=404), "status 404: no such model"),
        (told(b'{"detail": "nope"}', status=422), "status 422: nope"),
        (told(b'{"error": "busy"}', status=503), "status 503: busy"),
        (told(b"<html>\n Bad   Gateway", status=502), "status 502: <html> Bad Gateway"),
        (told(sse(chunk("a"), {"error": {"message": "out of memory"}})), "error: out of memory"),
        (told(b"", broke="the connection broke"), "the connection broke"),
        (told(b"", status=401), "status 401: "),
    ],
)
def test_a_refusal_in_its_own_words(answer: Exchange, error: str) -> None:
    assert answer.error.endswith(error)


@pytest.mark.parametrize("odd", [{"choices": None}, {"choices": [None]}, {"usage": 3}, {}])
def test_odd_chunks_are_no_trouble(odd: dict[str, Any]) -> None:
    said = told(sse(odd, chunk("a", finish="stop")))
    assert (said.finish, said.usage, said.error) == ("stop", None, "")


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (sse(chunk("a"), done=False), True),
        (sse(chunk(None, reasoning_content="hm"), done=False), True),
        (sse(chunk(None, role="assistant", content=""), done=False), False),
        (b": ping\n\n", False),
        (b'data: {"choices": [{"del', False),
    ],
)
def test_whether_something_was_generated(part: bytes, text: bool) -> None:
    assert has_text(part) is text
