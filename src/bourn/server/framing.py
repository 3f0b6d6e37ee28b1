"""How answers are framed on a connection: as h11 has it, with a short way for parts of a stream.

It knows HTTP/1.1, and neither requests nor answers.
"""

from __future__ import annotations

import h11

_IN_CHUNKS = b"\r\nTransfer-Encoding: chunked\r\n"


class Framing(h11.Connection):
    """A connection of h11's, whose state machine is not asked about the parts of a body in chunks.

    Nothing else may come between the head and the end of one, and a part needs no more than its
    length before it.
    """

    _in_chunks = False

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override]  # for each kind
        if self._in_chunks and type(event) is h11.Data:
            return b"%x\r\n%b\r\n" % (len(event.data), event.data) if event.data else b""
        self._in_chunks = False
        sent = super().send(event)
        self._in_chunks = type(event) is h11.Response and _IN_CHUNKS in (sent or b"")
        return sent
