from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from bourn.errors import (
    BournError,
    EngineError,
    Interrupted,
    InvalidRequest,
    Overloaded,
    RateLimited,
)
from bourn.types import Channel, FinishReason, Piece, Usage
from bourn.wire.reply import ReplyReader
from tests.support.openai_server import chunk, sse, text_stream, usage


def read(parts: Iterable[bytes], n: int = 1) -> list[Piece]:
    """All pieces of a body, up to its end or as far as it is wanted."""
    reader = ReplyReader(n)
    pieces: list[Piece] = []
    for part in parts:
        pieces += reader.feed(part)
        if reader.done:
            break
    return [*pieces, *reader.close()]


def fed(reader: ReplyReader, *frames: Any) -> list[Piece]:
    return list(reader.feed(sse(*frames, done=False)))


def cuttings(body: bytes) -> list[list[bytes]]:
    halves = [[body[:at], body[at:]] for at in range(len(body) + 1)]
    return [[body], [bytes([byte]) for byte in body], *halves]


def texts(pieces: Iterable[Piece]) -> list[str]:
    return [piece.text for piece in pieces if piece.text]


HI = ["Hel", "lo", " \U0001f525"]
LAST = Piece(finish=FinishReason.STOP, usage=Usage(5, 3))

GOOD = {
    "usual": text_stream(*HI),
    "without the space": text_stream(*HI).replace(b"data: ", b"data:"),
    "CRLF": text_stream(*HI).replace(b"\n", b"\r\n"),
    "bare CR": text_stream(*HI).replace(b"\n", b"\r"),
    "with pings": b": ping\n\n" + text_stream(*HI).replace(b"data: {", b": ping\n\ndata: {"),
    "ping events": b"event: ping\ndata: {}\n\nevent: ping\ndata: soon\n\n" + text_stream(*HI),
    "no end mark": sse(*map(chunk, HI), chunk(finish="stop"), usage(5, 3), done=False),
    "no last blank line": text_stream(*HI).rstrip(b"\n"),
    "no last blank line, no end mark": sse(
        *map(chunk, HI), chunk(finish="stop"), usage(5, 3), done=False
    )[:-2],
    "framed twice": text_stream(*HI).replace(b"data: ", b"data: data: "),
    "JSON over several lines": b"".join(
        b"data: " + json.dumps(each, indent=1).replace("\n", "\ndata: ").encode() + b"\n\n"
        for each in [*map(chunk, HI), chunk(finish="stop"), usage(5, 3)]
    )
    + b"data: [DONE]\n\n",
    "finish with the last text": sse(
        chunk(HI[0]), chunk(HI[1]), chunk(HI[2], finish="stop"), usage(5, 3)
    ),
    "blank lines before": b"\n\n\r\n" + text_stream(*HI),
    "more after the end": text_stream(*HI) + text_stream("again"),
    "an error after the end": sse(
        *map(chunk, HI), chunk(finish="stop"), usage(5, 3), {"error": "late"}
    ),
}


@pytest.mark.parametrize("body", GOOD.values(), ids=GOOD)
def test_a_stream_is_read_the_same_in_every_cutting(body: bytes) -> None:
    for parts in cuttings(body):
        pieces = read(parts)
        assert texts(pieces) == HI
        assert pieces[-1] == LAST
        assert [piece.finish for piece in pieces[:-1]] == [None] * (len(pieces) - 1)


WHOLE = {
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello"},
            "finish_reason": "length",
        }
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3},
}


@pytest.mark.parametrize("before", [b"", b"\n  ", b"\xef\xbb\xbf"])
def test_one_json_object_is_an_answer_too(before: bytes) -> None:
    for parts in cuttings(before + json.dumps(WHOLE).encode()):
        text, last = read(parts)
        assert (text.text, text.tokens) == ("Hello", 3)
        assert last == Piece(finish=FinishReason.LENGTH, usage=Usage(5, 3))


def test_the_last_finish_waits_for_the_usage_and_others_do_not() -> None:
    reader = ReplyReader(2)
    first = fed(reader, chunk("a"), chunk(finish="stop"), chunk("b", index=1))
    assert [piece.finish for piece in first] == [None, FinishReason.STOP, None]
    assert not reader.finished
    assert fed(reader, chunk(finish="length", index=1)) == []
    assert reader.finished
    assert not reader.done
    assert fed(reader, usage(5, 9)) == []
    assert reader.done
    assert list(reader.close()) == [Piece(choice=1, finish=FinishReason.LENGTH, usage=Usage(5, 9))]


def test_usage_beside_the_finish_is_not_the_last_word() -> None:
    reader = ReplyReader()
    glued = chunk(finish="stop") | {"usage": {"prompt_tokens": 2, "completion_tokens": 1}}
    fed(reader, chunk("a"), glued)
    assert not reader.done
    assert list(reader.close()) == [Piece(finish=FinishReason.STOP, usage=Usage(2, 1))]


def test_an_end_mark_after_text_is_an_end() -> None:
    pieces = read([sse(chunk("a"))])
    assert pieces[-1].finish is FinishReason.STOP
    assert pieces[-1].assumed, "and it is told that nobody has said so"
    assert not read([sse(chunk("a"), chunk(finish="stop"))])[-1].assumed
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    assert read([sse(chunk(tool_calls=[call]))])[-1].finish is FinishReason.TOOL_CALLS
    thought = read([sse(chunk(reasoning="hm"))])
    assert thought[0].channel is Channel.REASONING
    assert thought[-1].finish is FinishReason.STOP


def test_an_empty_answer_with_a_reason_is_whole() -> None:
    assert [piece.finish for piece in read([sse(chunk(finish="stop"))])] == [FinishReason.STOP]


INTERRUPTED = {
    "nothing": b"",
    "blank lines": b"\n\n",
    "only the end mark": b"data: [DONE]\n\n",
    "only a role": sse(chunk(None, role="assistant")),
    "only pings": b": ping\n\n: ping\n\n",
    "no finish": sse(chunk("a"), chunk("b"), done=False),
    "only usage": sse(usage(5, 0)),
    "a page of HTML": b"<html><body>log in</body></html>",
}


@pytest.mark.parametrize("body", INTERRUPTED.values(), ids=INTERRUPTED)
def test_an_end_without_a_reason_is_an_interruption(body: bytes) -> None:
    for parts in cuttings(body):
        with pytest.raises(Interrupted):
            read(parts)


def test_text_before_an_interruption_is_given() -> None:
    reader = ReplyReader()
    given = list(reader.feed(sse(chunk("a"), chunk("b"), done=False)[:-1]))  # no blank line
    closing = reader.close()
    assert texts([*given, next(closing)]) == ["a", "b"]
    with pytest.raises(Interrupted, match="without a finish reason"):
        next(closing)


def test_a_stream_cut_at_any_byte_is_whole_or_interrupted() -> None:
    body = text_stream(*HI)
    told = body.index(b'"finish_reason": "stop"')
    whole = body.index(b"\n\n", told)
    for at in range(len(body)):
        if at < whole:
            with pytest.raises(Interrupted):
                read([body[:at]])
        else:
            assert texts(read([body[:at]])) == HI


def test_a_choice_that_is_missing_is_an_interruption() -> None:
    with pytest.raises(Interrupted, match="choice 2 of 2"):
        read([sse(chunk("a"), chunk(finish="stop"))], n=2)


FAILURES: dict[str, tuple[bytes, type[BournError], str]] = {
    "an error frame": (sse({"error": {"message": "out of memory"}}), EngineError, "out of memory"),
    "with a status": (sse({"error": {"message": "slow", "code": 429}}), RateLimited, "slow"),
    "a text": (sse({"error": "no"}), EngineError, "no"),
    "an error event": (b'event: error\ndata: {"message": "no", "code": 503}\n\n', Overloaded, "no"),
    "an error event in words": (b"event: error\ndata: it broke\n\n", EngineError, "it broke"),
    "an old style": (sse({"object": "error", "message": "no", "code": 400}), InvalidRequest, "no"),
    "quotes put together by hand": (
        b'data: {"error": "CUDA "oom" at"}\n\n',
        EngineError,
        'CUDA "oom" at',
    ),
    "a line end put together by hand": (
        b'data: {"error": "first\nsecond"}\n\n',
        EngineError,
        "first",
    ),
}


@pytest.mark.parametrize("after", [b"", sse(chunk("a"), chunk("b"), chunk("c"), done=False)])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_errors_inside_the_stream(
    failure: tuple[bytes, type[BournError], str], after: bytes
) -> None:
    frame, kind, words = failure
    for parts in cuttings(after + frame):
        with pytest.raises(kind) as raised:
            read(parts)
        assert str(raised.value) == f"the endpoint failed: {words}"


def test_an_error_without_framing() -> None:
    with pytest.raises(EngineError, match="the endpoint failed: no"):
        read([b'{"error": {"message": "no"}}'])


def test_text_before_an_error_is_given() -> None:
    pieces = ReplyReader().feed(sse(chunk("a"), chunk("b"), {"error": "no"}))
    assert [next(pieces).text, next(pieces).text] == ["a", "b"]
    with pytest.raises(EngineError):
        next(pieces)


UNREADABLE: dict[str, Any] = {
    "no JSON": "so it goes",
    "a list": [1],
    "a text": '"x"',
    "choices that are none": {"choices": 5},
    "a choice that is none": {"choices": ["x"]},
    "usage that is none": {"choices": [], "usage": 5},
    "tools that are none": chunk(tool_calls=[5]),
}


@pytest.mark.parametrize("frame", UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_chunk_is_refused_in_words(frame: Any) -> None:
    with pytest.raises(EngineError, match="no chunk of an answer"):
        read([sse(frame)])


def test_an_endless_json_object_is_refused() -> None:
    reader = ReplyReader()
    with pytest.raises(EngineError, match="endless"):
        [*reader.feed(b"{"), *(piece for _ in range(20) for piece in reader.feed(b" " * 1_000_000))]


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    body = sse(chunk("a"), chunk(finish="stop")).replace(b'"a"', b'"\\ud83d!"')
    assert texts(read([body])) == ["\ufffd!"]


def test_a_literal_replacement_character_is_text() -> None:
    assert texts(read([text_stream("prefix \ufffd after")])) == ["prefix \ufffd after"]


def test_failures_are_made_by_whoever_knows_the_endpoint() -> None:
    seen: list[tuple[int | None, str]] = []

    def failure(status: int | None, told: str) -> BournError:
        seen.append((status, told))
        return RateLimited("mine")

    reader = ReplyReader(failure=failure)
    with pytest.raises(RateLimited, match="mine"):
        fed(reader, {"error": "no"})
    assert seen == [(None, '{"error": "no"}')]
