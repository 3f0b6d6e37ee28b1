"""One line a request, where somebody wants it: never what people write, and never a key.

Lines go to the logger `bourn.access`, such as

    POST /v1/chat/completions 200 1.204s model=smollm2 stream=Zk3f8Qa1 origin=miss tokens=57
"""

from __future__ import annotations

import logging
import re
from time import perf_counter
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

ABOUT = "bourn.about"
"""Where the scope holds what routes tell of a request, while its line is wanted."""

_log = logging.getLogger("bourn.access")

_STREAM = re.compile(r"(/streams/(?:chatcmpl-|cmpl-)?)([^/]+)")


def tell(
    scope: Scope,
    *,
    model: str | None = None,
    stream: str | None = None,
    origin: str | None = None,
    tokens: int | None = None,
) -> None:
    """What a route knows of the answer it gives, for the line. Nothing where none is wanted.

    stream: its id, of which the line shows the beginning: who knows the whole of it may read.
    """
    if (about := scope.get(ABOUT)) is not None:
        known = {"model": model, "stream": stream and _short(stream), "origin": origin}
        about |= {name: quote(value) for name, value in known.items() if value}
        about |= {} if tokens is None else {"tokens": tokens}


class AccessLog:
    """Writes the line when a request has ended, also one whose client has hung up.

    It stands before all others, so that it tells of what they refuse too.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _log.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        line = _Line(scope, send)
        try:
            await self._app(scope, receive, line.send)
        finally:
            line.write()


class _Line:
    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._begun = perf_counter()
        self._status: int | None = None
        self._whole = False
        self._about: dict[str, object] = {}
        scope[ABOUT] = self._about

    async def send(self, message: Message) -> None:
        if self._status is None:
            self._status = message.get("status")
        elif not message.get("more_body", False):
            self._whole = True
        await self._send(message)

    def write(self) -> None:
        seconds = perf_counter() - self._begun
        ended = "" if self._whole else " broken off"
        about = "".join(f" {name}={value}" for name, value in self._about.items())
        method, path = self._scope["method"], _path(self._scope["path"])
        status = self._status or "-"
        _log.info("%s %s %s %.3fs%s%s", method, path, status, seconds, ended, about)


def _path(path: str) -> str:
    """A path as it may be shown: on one line, not too long, and no id as a whole."""
    return quote(_STREAM.sub(lambda found: found[1] + _short(found[2]), path))[:200]


def _short(stream: str) -> str:
    """Its beginning, after what kind of answer it is."""
    return re.sub("^(chat)?cmpl-", "", stream)[:8]
