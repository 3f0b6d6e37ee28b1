"""Bodies in chunks, as servers send them and as they break."""

from __future__ import annotations

import pytest

from bourn.engines.chunked import ChunkedBody


@pytest.mark.parametrize(
    "told",
    [
        b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n02;name=value\r\nde\r\n000\r\n\r\n",
        b"5\r\nabcde\r\n0\r\nTrailer: x\r\n\r\n",
    ],
    ids=["plain", "extended", "with a trailer"],
)
def test_its_parts_joined(told: bytes) -> None:
    body = ChunkedBody()
    assert (body.feed(told), body.ended) == (b"abcde", True)


def test_line_ends_in_the_data_are_data() -> None:
    body = ChunkedBody()
    assert body.feed(b"A\r\n\r\n0\r\n\r\n\r\na\r\n") == b"\r\n0\r\n\r\n\r\na"
    assert not body.ended
    assert body.feed(b"0\r\n") == b""
    assert body.ended


def test_a_part_of_a_chunk_is_given_as_it_comes() -> None:
    body = ChunkedBody()
    assert [body.feed(part) for part in (b"4\r\na", b"b", b"cd", b"\r\n1\r\n", b"e")] == [
        b"a",
        b"b",
        b"cd",
        b"",
        b"e",
    ]


@pytest.mark.parametrize(
    "told",
    [
        b"data: 1\n\n",
        b"-1\r\nx",
        b"\r\n1\r\nx",
        b"1\r\nxy\r\n",
        b"1\r\nx\n1\r\n",
        b"1" * 16 + b"\r\n",
        b"1;" + b"x" * 20_000,
    ],
    ids=["bare", "negative", "blank", "longer than told", "bare line end", "huge", "endless"],
)
def test_what_is_no_chunk(told: bytes) -> None:
    with pytest.raises(ValueError, match="no chunk"):
        ChunkedBody().feed(told)
