from __future__ import annotations

import pytest

from bourn.errors import EngineError
from bourn.wire.sse import ServerSentEvent, SSEDecoder, comment, encode


def decode(*parts: bytes) -> list[ServerSentEvent]:
    decoder = SSEDecoder()
    events = [event for part in parts for event in decoder.feed(part)]
    return [*events, *decoder.flush()]


def data(*parts: bytes) -> list[str]:
    return [event.data for event in decode(*parts)]


def every_cutting(stream: bytes) -> list[list[bytes]]:
    """Whole; cut in two at every byte; and in single bytes."""
    halves = [[stream[:at], stream[at:]] for at in range(len(stream) + 1)]
    return [[stream], *halves, [bytes([byte]) for byte in stream]]


STREAMS = {
    "with a space": (b"data: {}\n\ndata: {}\n\n", ["{}", "{}"]),
    "without a space": (b"data:{}\n\ndata:{}\n\n", ["{}", "{}"]),
    "two spaces, one is data": (b"data:  x\n\n", [" x"]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
    "bare CR": (b"data: a\r\rdata: b\r\r", ["a", "b"]),
    "mixed line ends": (b"data: a\r\n\ndata: b\n\r\ndata: c\r\r\n", ["a", "b", "c"]),
    "two events in one read": (b"data: a\n\ndata: b\n\n", ["a", "b"]),
    "several data lines": (b"data: a\ndata:\ndata: b\n\n", ["a\n\nb"]),
    "comments and pings": (b": ping\n\n:\n\ndata: a\n: in between\n\n", ["a"]),
    "fields without a colon": (b"data\n\nnonsense\ndata: a\n\n", ["", "a"]),
    "unknown fields": (b"foo: bar\ndata: a\n\n", ["a"]),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\n\ndata: b\n\n", ["a", "b"]),
    "characters of several bytes": ("data: \U0001f525é\n\n".encode(), ["\U0001f525é"]),
    "a literal replacement character": ("data: a\ufffdb\n\n".encode(), ["a\ufffdb"]),
    "line separators that are none": (
        "data: a\u2028b\x0bc\x85\n\n".encode(),
        ["a\u2028b\x0bc\x85"],
    ),
    "blank lines first": (b"\n\r\n\ndata: a\n\n", ["a"]),
    "no last blank line": (b"data: a\n\ndata: b\n", ["a", "b"]),
    "no last line end": (b"data: a\n\ndata: b", ["a", "b"]),
    "nothing": (b"", []),
    "only an event name": (b"event: x\n\n", []),
}


@pytest.mark.parametrize(("stream", "wanted"), STREAMS.values(), ids=STREAMS)
def test_framing_is_the_same_in_every_cutting(stream: bytes, wanted: list[str]) -> None:
    for parts in every_cutting(stream):
        assert data(*parts) == wanted


def test_the_event_name_is_kept_to_the_blank_line_and_no_further() -> None:
    stream = b"event: error\ndata: a\ndata: b\n\ndata: c\n\n"
    for parts in every_cutting(stream):
        assert decode(*parts) == [("a\nb", "error", "", None), ("c", "message", "", None)]


def test_an_id_stays_and_a_retry_does_not() -> None:
    stream = b"id: 7\nretry: 3000\ndata: a\n\ndata: b\n\nid\ndata: c\n\n"
    for parts in every_cutting(stream):
        told = [(event.id, event.retry) for event in decode(*parts)]
        assert told == [("7", 3000), ("7", None), ("", None)]


@pytest.mark.parametrize("field", [b"id: a\0b", b"retry: 3s", b"retry: -1", b"retry: " + b"9" * 50])
def test_a_bad_id_or_retry_is_ignored(field: bytes) -> None:
    assert decode(field + b"\ndata: a\n\n") == [("a", "message", "", None)]


def test_bytes_that_are_no_text_become_the_replacement_character() -> None:
    assert data(b"data: a\xff\xf0\x9f\n\n") == ["a\ufffd\ufffd"]


def test_an_event_is_given_as_soon_as_its_blank_line_is_there() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [("a", "message", "", None)]
    assert decoder.feed(b"\ndata: b\n") == []
    assert decoder.feed(b"\n") == [("b", "message", "", None)]


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
@pytest.mark.parametrize("stream", [b"data: " + b"x" * 2000, b"data: x\n" * 400, b"x" * 2000])
def test_an_event_without_end_is_refused(stream: bytes, size: int) -> None:
    decoder = SSEDecoder(max_event=1000)
    parts = [stream[at : at + size] for at in range(0, len(stream), size)]
    with pytest.raises(EngineError, match="larger than 1,000 bytes"):
        list(map(decoder.feed, parts))


def test_many_small_events_are_no_large_one() -> None:
    decoder = SSEDecoder(max_event=100)
    given = [decoder.feed(part) for part in [b"data: 0123456789", b"\n\n", b": c\n", b"\n"] * 100]
    assert sum(map(len, given)) == 100


@pytest.mark.parametrize(
    ("event", "wanted"),
    [
        (("x",), b"data: x\n\n"),
        (("",), b"data: \n\n"),
        (("a\nb\r\nc\rd",), b"data: a\ndata: b\ndata: c\ndata: d\n\n"),
        (("x", "error", "12"), b"event: error\nid: 12\ndata: x\n\n"),
        (("\U0001f525",), "data: \U0001f525\n\n".encode()),
        (("\ud83d",), b"data: ?\n\n"),
    ],
)
def test_events_are_written_with_line_feeds(event: tuple[str, ...], wanted: bytes) -> None:
    assert encode(*event) == wanted


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\0b"])
@pytest.mark.parametrize("name", ["event", "id"])
def test_a_name_or_id_that_would_break_the_framing_is_refused(name: str, bad: str) -> None:
    with pytest.raises(ValueError, match=name):
        encode("x", **{name: bad})


@pytest.mark.parametrize("text", ["", "ping", "two\nlines"])
def test_a_comment_is_no_event(text: str) -> None:
    assert data(comment(text), encode("a"), comment(text)) == ["a"]
    assert comment(text).startswith(b":")
