"""An answer as one JSON object: what a stream would have told, joined."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bourn.errors import BournError
from bourn.server.accesslog import tell
from bourn.server.hangups import while_connected
from bourn.server.refusals import refusal
from bourn.server.streaming import Open, Opened
from bourn.stream import Answer
from bourn.types import Event
from bourn.wire.answers import json_text, speed_object, whole_answer


class WholeAnswer(Response):
    """The response of one reader, closed with it. It begins once the answer is whole."""

    def __init__(self, open_: Open) -> None:
        super().__init__()
        self._open = open_

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer() -> None:
            response = await self._response(scope)
            await response(scope, receive, send)

        await while_connected(receive, answer())

    async def _response(self, scope: Scope) -> Response:
        try:
            return await _read(await self._open(), scope)
        except BournError as error:
            return refusal(error)


async def _read(opened: Opened, scope: Scope) -> Response:
    reader = opened.reader
    try:
        answer = _Answer(reader.id)
        while batch := await reader.next():
            answer.take(batch)
    finally:
        reader.leave()
    tell(scope, tokens=answer.usage.completion_tokens)
    if answer.error is not None:
        return refusal(answer.error)
    told = whole_answer(opened.head, answer.choices, answer.usage)
    told["metrics"] = speed_object(answer.metrics, earlier=reader.origin == "hit")
    body = json_text(told).encode("utf-8", "replace")
    return Response(body, headers=opened.headers, media_type="application/json")


class _Answer(Answer):
    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            self._see(event)
