"""The routes that answer: a body becomes a request, a hub opens it, a reader is the response."""

from __future__ import annotations

from typing import Any

import jiter
from fastapi import APIRouter
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from bourn.errors import InvalidRequest
from bourn.server.openapi import answers
from bourn.server.refusals import refused
from bourn.server.schema import CHAT_REQUEST, COMPLETION_REQUEST
from bourn.server.state import config_of, fleet_of, note_opened, owner_of
from bourn.server.streaming import EventStream, Opened
from bourn.server.streams import stream_id
from bourn.server.whole import WholeAnswer
from bourn.server.wishes import wishes_of
from bourn.wire.answers import Head
from bourn.wire.body import request_of, wants_usage
from bourn.wire.fields import Fields

routes = APIRouter(tags=["answers"])


@routes.post("/v1/chat/completions", **answers("ChatRequest", "ChatAnswer"))
async def chat(http: HTTPRequest) -> Response:
    """Answer a conversation, whole or as an event stream."""
    return await _answer(http, CHAT_REQUEST["properties"], chat=True)


@routes.post("/v1/completions", **answers("CompletionRequest", "CompletionAnswer"))
async def complete(http: HTTPRequest) -> Response:
    """Go on with a text, without a chat template."""
    return await _answer(http, COMPLETION_REQUEST["properties"], chat=False)


async def _answer(http: HTTPRequest, known: dict[str, Any], *, chat: bool) -> Response:
    if not _is_json(http.headers.get("content-type", "")):
        return refused(415, "this route takes JSON: say so, `Content-Type: application/json`")
    fleet, config = fleet_of(http), config_of(http)
    told = Fields(_object(await http.body()))
    told.refuse_unknown(known)
    wishes = wishes_of(told.object("bourn") or {}, http.headers.get("cache-control", ""))
    model = told.text("model") or fleet.names[0]
    request = request_of({name: told.fields[name] for name in told.fields if name != "bourn"})
    terms = wishes.terms(owner_of(http), config.timeouts)

    async def opened() -> Opened:
        hub = await fleet.hub(model)
        reader = hub.open(request, terms)
        note_opened(http, reader, model)
        head = Head(stream_id(reader.id, chat=chat), model, int(reader.created), chat=chat)
        return Opened(reader, head)

    usage = wants_usage(told.fields)
    if not told.flag("stream"):
        return WholeAnswer(opened)
    return EventStream(opened, config, usage=usage, places=wishes.queue)


def _is_json(content_type: str) -> bool:
    """Web pages may send others without asking: to take those would let any page ask here."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json"


def _object(body: bytes) -> dict[str, Any]:
    try:
        told = jiter.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is no JSON: {error}", hint="send an object") from None
    if not isinstance(told, dict):
        raise InvalidRequest("the body is no JSON object", hint='send {"messages": [...]}')
    return {name: value for name, value in told.items() if value is not None}
