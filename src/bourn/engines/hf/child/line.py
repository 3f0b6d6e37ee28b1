"""One end of a connection that carries frames. It does not know what they mean."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import cast

from bourn.engines.hf.child.frames import LIMIT, Decoder, Frame, encode
from bourn.errors import EngineError


class Line(asyncio.Protocol):
    """`heard` is called with each frame, and `lost` once, at the end.

    A frame that cannot be understood ends the line: nothing after it could be trusted.

    limit: bytes of a frame that is taken, until it is trusted. fault: why this end hung up, where
    the other one gave it cause.
    """

    def __init__(self, *, limit: int = LIMIT) -> None:
        self.fault = ""
        self._decoder = Decoder(limit)
        self._transport: asyncio.Transport | None = None
        self._gone = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()

    @abstractmethod
    def heard(self, frame: Frame) -> None:
        """What the other end says."""

    def lost(self) -> None:
        """Nothing more can be said or heard."""

    def trust(self) -> None:
        """From here on frames may be large."""
        self._decoder.limit = LIMIT

    @property
    def gone(self) -> bool:
        return self._gone.is_set()

    @property
    def flowing(self) -> bool:
        """Whether the other end reads as fast as this one writes; if not, wait with `room`."""
        return self._flowing.is_set()

    async def room(self) -> None:
        """Wait until the other end has read most of what was said; or for the end."""
        await self._flowing.wait()

    async def end(self) -> None:
        """Wait for the end."""
        await self._gone.wait()

    def say(self, frame: Frame) -> None:
        """Say it; on a line that is gone, to nobody. Raises what `encode` raises."""
        self.write(encode(frame))

    def write(self, encoded: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encoded)

    def hang_up(self, fault: str = "") -> None:
        """End it now, whatever is still to be said. Idempotent."""
        self.fault = self.fault or fault
        if self._transport is not None:
            self._transport.abort()

    # -- what asyncio calls ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self.heard(frame)
                if self.fault:
                    return
        except EngineError as error:
            self.hang_up(str(error))

    def pause_writing(self) -> None:
        self._flowing.clear()

    def resume_writing(self) -> None:
        self._flowing.set()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 (broken is broken)
        self._gone.set()
        self._flowing.set()
        self.lost()
