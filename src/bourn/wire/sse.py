"""Server-sent events, both ways: bytes in, events out, and back. No I/O.

What the events mean is not known here: no JSON, no models, no ends of streams. Lines end in LF,
CRLF or a bare CR. The law: any cutting of the bytes gives the same events.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bourn.errors import EngineError

MAX_EVENT = 16 * 1024 * 1024
"""About how many bytes one event may have. More is no event but a mistake, or an attack."""

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile("\r\n|\n|\r")


class ServerSentEvent(NamedTuple):
    """One event. `id` is the last one told, also by an earlier event; `retry` is milliseconds."""

    data: str
    event: str = "message"
    id: str = ""
    retry: int | None = None


class SSEDecoder:
    """Reads events out of bytes that come in any pieces, in time linear in their length.

    Where the standard drops an event that the end of the stream leaves without its blank line,
    `flush` still gives it: there are servers that forget the last blank line, and the last event
    is the one that matters. Whether it was whole is for the reader to see.
    """

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._first = True
        self._after_cr = False
        self._tail: list[bytes] = []  # of a line whose end has not come
        self._id = ""
        self._data: list[str] = []
        self._event = ""
        self._retry: int | None = None
        self._pending = 0  # bytes held, of the tail and the data lines

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """The events that `data` completes.

        Raises:
            EngineError: one event grows larger than `max_event` bytes.
        """
        if self._is_one_event(data):
            self._first = False
            return [ServerSentEvent(data[6:-2].decode("utf-8", "replace"), id=self._id)]
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        events: list[ServerSentEvent] = []
        for line in data.splitlines(keepends=True):  # of bytes: at LF, CRLF and CR only
            if line.endswith((b"\n", b"\r")):
                self._line(self._whole(line), events)
            else:
                self._hold(line)
        self._after_cr = data.endswith(b"\r") or (self._after_cr and not data)
        return events

    def flush(self) -> list[ServerSentEvent]:
        """The event that the end of the stream left unterminated, if there is one."""
        events: list[ServerSentEvent] = []
        if self._tail:
            self._line(self._whole(b""), events)
        self._dispatch(events)
        return events

    def _is_one_event(self, data: bytes) -> bool:
        """Whether `data` is a plain `data: …` event, whole: what nearly every read is."""
        return (
            data.startswith(b"data: ")
            and data.find(b"\n") == len(data) - 2
            and data.endswith(b"\n\n")
            and b"\r" not in data
            and not (self._tail or self._data or self._after_cr)
            and self._event == ""
            and self._retry is None
            and len(data) <= self._max_event
        )

    def _hold(self, part: bytes) -> None:
        self._tail.append(part)
        self._grow(len(part))

    def _whole(self, end: bytes) -> bytes:
        """The line that `end` completes, without its line end."""
        if self._tail:
            end = b"".join((*self._tail, end))
            self._pending -= sum(map(len, self._tail))
            self._tail.clear()
        if self._first:
            self._first = False
            end = end.removeprefix(_BOM)
        return end.rstrip(b"\r\n")

    def _line(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        match name:
            case b"data":
                self._data.append(text)
                self._grow(len(value) + 1)
            case b"event":
                self._event = text
            case b"id" if "\0" not in text:
                self._id = text
            case b"retry" if text.isascii() and text.isdigit() and len(text) < 12:
                self._retry = int(text)
            case _:  # a comment, which has no name, or a field that nobody knows
                pass

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        if self._data:
            event = self._event or "message"
            events.append(ServerSentEvent("\n".join(self._data), event, self._id, self._retry))
        self._data = []
        self._event = ""
        self._retry = None
        self._pending = 0

    def _grow(self, by: int) -> None:
        self._pending += by
        if self._pending > self._max_event:
            raise EngineError(
                f"the endpoint sent an event larger than {self._max_event:,} bytes",
                hint="this is no event stream of a language model",
            )


def encode(data: str, event: str | None = None, id: str | None = None) -> bytes:  # noqa: A002
    r"""An event as bytes, its lines ended by `\n`. Line ends inside `data` are kept as `\n`.

    Raises:
        ValueError: `event` or `id` would break the framing.
    """
    lines = []
    if event is not None:
        lines.append(f"event: {_one_line('event', event)}")
    if id is not None:
        lines.append(f"id: {_one_line('id', id)}")
    lines += [f"data: {line}" for line in _LINE_END.split(data)]
    return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


def comment(text: str = "") -> bytes:
    """A line that readers ignore: it keeps a silent connection open."""
    return "".join(f": {line}\n" for line in _LINE_END.split(text)).encode() + b"\n"


def _one_line(name: str, value: str) -> str:
    if any(mark in value for mark in "\n\r\0"):
        raise ValueError(f"the {name} of a server-sent event holds a line end or NUL: {value!r}")
    return value
