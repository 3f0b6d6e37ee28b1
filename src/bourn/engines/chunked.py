"""A response body in chunks (RFC 9112, 7.1), in: bytes come in any pieces. No I/O.

h11 reads them too, at five times the cost: with one chunk for each token that is much of what a
token costs.
"""

from __future__ import annotations

import re

_SIZE = re.compile(rb"\r\n([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
"""What stands between two chunks; before the first one too, once its line end is thought there."""

_LONGEST_SIZE = 16 * 1024


class ChunkedBody:
    """Takes the chunks of one body apart. Its trailers are not waited for."""

    def __init__(self) -> None:
        self._held = b"\r\n"  # of what stands before the next chunk
        self._left = 0  # bytes of this chunk that are still to come
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """What `data` adds to the body.

        Raises:
            ValueError: these are no chunks.
        """
        parts: list[bytes] = []
        while data and not self.ended:
            if not self._left:
                data = self._held + data
                size = _SIZE.match(data)
                if size is None:
                    self._hold(data)
                    break
                self._held = b""
                self._left = int(size[1], 16)
                self.ended = self._left == 0
                data = data[size.end() :]
            part = data[: self._left]
            parts.append(part)
            self._left -= len(part)
            data = data[len(part) :]
        return b"".join(parts)

    def _hold(self, start: bytes) -> None:
        if start[:2] not in (b"\r", b"\r\n") or b"\n" in start[2:] or len(start) > _LONGEST_SIZE:
            raise ValueError(f"no chunk begins so: {start[:40]!r}")
        self._held = start
