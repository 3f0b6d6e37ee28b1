"""The framing of answers, where it is not in chunks, and where it is over."""

from __future__ import annotations

import h11
import pytest

from bourn.server.framing import Framing

OLD = b"GET / HTTP/1.0\r\n\r\n"
NEW = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def asked(request: bytes, *headers: tuple[bytes, bytes]) -> Framing:
    """One that was asked, and has sent the head of its answer."""
    framing = Framing(h11.SERVER)
    framing.receive_data(request)
    assert isinstance(framing.next_event(), h11.Request)
    assert isinstance(framing.next_event(), h11.EndOfMessage)
    framing.send(h11.Response(status_code=200, headers=list(headers)))
    return framing


def test_in_chunks() -> None:
    framing = asked(NEW)
    assert framing.send(h11.Data(data=b"x" * 17)) == b"11\r\n" + b"x" * 17 + b"\r\n"
    assert framing.send(h11.Data(data=b"")) == b""
    assert framing.send(h11.EndOfMessage()) == b"0\r\n\r\n"


@pytest.mark.parametrize(
    "framing",
    [asked(OLD), asked(NEW, (b"content-length", b"5"))],
    ids=["HTTP/1.0", "with a length"],
)
def test_without_chunks(framing: Framing) -> None:
    assert framing.send(h11.Data(data=b"hello")) == b"hello"
    assert framing.send(h11.EndOfMessage()) == b""


def test_no_more_than_was_announced() -> None:
    with pytest.raises(h11.LocalProtocolError):
        asked(NEW, (b"content-length", b"1")).send(h11.Data(data=b"hello"))


def test_nothing_after_the_end_or_an_error() -> None:
    framing = asked(NEW)
    framing.send(h11.EndOfMessage())
    with pytest.raises(h11.LocalProtocolError):
        framing.send(h11.Data(data=b"x"))
    framing = asked(NEW)
    with pytest.raises(h11.LocalProtocolError):
        framing.send(h11.Response(status_code=400, headers=[]))
    with pytest.raises(h11.LocalProtocolError):
        framing.send(h11.Data(data=b"x"))


def test_the_next_answer_of_a_connection_is_framed_anew() -> None:
    framing = asked(NEW)
    framing.send(h11.EndOfMessage())
    framing.start_next_cycle()
    framing.receive_data(NEW)
    while framing.their_state is not h11.DONE:
        framing.next_event()
    framing.send(h11.Response(status_code=200, headers=[(b"content-length", b"1")]))
    assert framing.send(h11.Data(data=b"x")) == b"x"
