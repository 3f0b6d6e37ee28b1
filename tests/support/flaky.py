"""A reader on a bad line: its connection breaks again and again, and it comes back each time."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from tests.support.connection import Connection, text_in
from tests.support.scripted_site import CHAT, Frame

RATE = 0.01
"""Of events after which the connection breaks."""


class Read(NamedTuple):
    """An answer as it came: its events, `[DONE]` the last, and how often the line broke."""

    frames: list[Frame]
    breaks: int

    @property
    def text(self) -> str:
        return "".join(map(text_in, self.frames))

    @property
    def gapless(self) -> bool:
        """Whether each event came once, and in order."""
        numbers = [frame.number for frame in self.frames[:-1]]
        return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def flaky(port: int, body: Any, dice: random.Random) -> Read:
    """Ask for a stream, and read it to its end. The answer has to be one to come back to."""
    seen: list[Frame] = []
    asked = await Connection.ask(port, CHAT, body)
    for breaks in range(1000):
        with asked:
            await asked.head()
            assert asked.status == 200
            where = f"/v1/streams/{asked.headers['x-bourn-stream']}"
            async for frame in asked.frames():
                if frame.id or frame.data == "[DONE]":  # the role, which has none, may be repeated
                    seen.append(frame)
                if seen and dice.random() < RATE:
                    break
        if seen and seen[-1].data == "[DONE]":
            return Read(seen, breaks)
        asked = await Connection.ask(port, where, last_event_id=seen[-1].id if seen else "")
    raise AssertionError("it never ends")
