"""One streamed answer as it came over the wire, read strictly: no mistake is put right.

What our own reader forgives is what the doctor looks for, so that nothing of it takes part here.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bourn.errors import BournError

if TYPE_CHECKING:
    from bourn.engines.http import Endpoint

DONE = "[DONE]"
_CHAT = "/chat/completions"
_FIELD = re.compile(r"(data|event|id|retry)?:( ?)(.*)")


@dataclass(frozen=True)
class Exchange:
    """status, content_type: of its head. body: all of it, as bytes. broke: how the connection did.

    first, seconds: after which the first bytes, and the last, had come.
    """

    status: int
    content_type: str
    body: bytes
    broke: str = ""
    first: float | None = None
    seconds: float = 0.0
    asked: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @cached_property
    def lines(self) -> list[str]:
        return re.split(r"\r\n|\r|\n", self.text)

    @cached_property
    def data(self) -> list[str]:
        """What stands after each `data:`; several lines of one event are several."""
        matches = filter(None, map(_FIELD.fullmatch, self.lines))
        return [match[3] for match in matches if match[1] == "data"]

    @cached_property
    def strays(self) -> list[str]:
        """Lines that are no part of an event stream."""
        return [line for line in self.lines if line and not _FIELD.fullmatch(line)]

    @cached_property
    def broken_json(self) -> list[str]:
        return [text for text in self.data if text != DONE and _parsed(text) is None]

    @cached_property
    def chunks(self) -> list[Mapping[str, Any]]:
        return list(filter(None, map(_parsed, self.data)))

    @cached_property
    def deltas(self) -> list[Mapping[str, Any]]:
        found = (choice.get("delta") for choice in self.choices)
        return [delta for delta in found if isinstance(delta, dict)]

    @cached_property
    def choices(self) -> list[Mapping[str, Any]]:
        listed = (chunk.get("choices") for chunk in self.chunks)
        each = (one for many in listed if isinstance(many, list) for one in many)
        return [one for one in each if isinstance(one, dict)]

    @property
    def done(self) -> bool:
        return self.data[-1:] == [DONE]

    @cached_property
    def finish(self) -> str | None:
        reasons = [choice.get("finish_reason") for choice in self.choices]
        return next((reason for reason in reversed(reasons) if reason), None)

    @cached_property
    def usage(self) -> Mapping[str, Any] | None:
        told = [chunk.get("usage") for chunk in self.chunks]
        return next((usage for usage in reversed(told) if isinstance(usage, dict)), None)

    @cached_property
    def generated(self) -> int | None:
        """Tokens of the answer, as it counts them."""
        count = (self.usage or {}).get("completion_tokens")
        return count if isinstance(count, int) else None

    @cached_property
    def error(self) -> str:
        """What it says instead of an answer, if it does."""
        if self.broke:
            return self.broke
        if self.status >= 300:
            return f"it answers with status {self.status}: {_message(self.text)}"
        failed = next((chunk for chunk in self.chunks if chunk.get("error")), None)
        return f"it answers with an error: {_message(json.dumps(failed))}" if failed else ""


async def exchange(wire: Endpoint, body: Mapping[str, Any], limit: float) -> Exchange:
    """Ask, and read all that comes within so many seconds."""
    import asyncio

    parts: list[bytes] = []
    first, status, kind, broke = None, 0, "", ""
    start = perf_counter()
    try:
        async with asyncio.timeout(limit), wire.exchange("POST", _CHAT, body) as response:
            status, kind = response.status_code, response.headers.get("content-type", "")
            async for part in response.aiter_raw():
                first = first if parts else perf_counter() - start
                parts.append(part)
    except BournError as error:
        broke = str(error)
    except TimeoutError:
        broke = f"it was not done in {limit:g} seconds"
    seconds = perf_counter() - start
    return Exchange(status, kind, b"".join(parts), broke, first, seconds, body)


@asynccontextmanager
async def streaming(
    wire: Endpoint, body: Mapping[str, Any]
) -> AsyncGenerator[AsyncIterator[bytes]]:
    """The parts of an answer that is being made; leaving hangs up at once.

    Raises:
        BournError: it cannot be reached, or breaks off.
    """
    async with wire.exchange("POST", _CHAT, body) as response:
        yield response.aiter_raw()


def has_text(part: bytes) -> bool:
    """Whether something generated is in it, not only a role or a comment."""
    found = Exchange(200, "", part).deltas
    return any(delta.get(name) for delta in found for name in _GENERATED)


_GENERATED = ("content", "reasoning_content", "reasoning", "tool_calls")


def _parsed(text: str) -> Mapping[str, Any] | None:
    try:
        told = json.loads(text)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _message(text: str) -> str:
    """The message in an error's body, or its beginning."""
    return next(_messages(_parsed(text)), " ".join(text.split())[:200])


def _messages(told: object) -> Iterator[str]:
    if isinstance(told, str):
        yield told
    elif isinstance(told, dict):
        for name in ("error", "message", "detail"):
            if told.get(name):
                yield from _messages(told[name])
                return
