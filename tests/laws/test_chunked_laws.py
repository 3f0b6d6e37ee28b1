"""Bodies in chunks: however they are cut, and as h11 reads them."""

from __future__ import annotations

import h11
from hypothesis import given
from hypothesis import strategies as st

from bourn.engines.chunked import ChunkedBody
from bourn.server.framing import Framing

bodies = st.lists(st.binary(min_size=1, max_size=40) | st.just(b"\r\n0\r\n\r\n"), max_size=6)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    parts = []
    for size in sizes:
        parts.append(data[:size])
        data = data[size:]
    return [*parts, data]


def framed(parts: list[bytes], connection: h11.Connection) -> list[bytes]:
    """What goes over the wire of an answer with these parts."""
    connection.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    while connection.next_event() is not h11.PAUSED and connection.their_state is not h11.DONE:
        pass
    events = [
        h11.Response(status_code=200, headers=[]),
        *(h11.Data(data=part) for part in parts),
        h11.EndOfMessage(),
    ]
    return [connection.send(event) or b"" for event in events]


@given(bodies, st.lists(st.integers(0, 9), max_size=60))
def test_any_cutting_gives_the_same_body(parts: list[bytes], sizes: list[int]) -> None:
    _, *told = framed(parts, h11.Connection(h11.SERVER))
    body = ChunkedBody()
    assert b"".join(body.feed(part) for part in cut(b"".join(told), sizes)) == b"".join(parts)
    assert body.ended


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_answers_are_framed_as_h11_frames_them(parts: list[bytes]) -> None:
    ours, theirs = Framing(h11.SERVER), h11.Connection(h11.SERVER)
    assert framed(parts, ours) == framed(parts, theirs)
    assert ours.our_state is theirs.our_state
