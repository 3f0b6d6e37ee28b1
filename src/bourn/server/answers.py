"""The routes that answer: a body becomes a request, a hub opens it, a reader is the response."""

from __future__ import annotations

import logging
from codecs import BOM_UTF8
from typing import Any

import jiter
from fastapi import APIRouter
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from bourn.engines.base import ModelInfo
from bourn.errors import InvalidRequest, UnsupportedField
from bourn.server.openapi import answers
from bourn.server.refusals import refused
from bourn.server.schema import CHAT_REQUEST, COMPLETION_REQUEST
from bourn.server.state import config_of, fleet_of, note_opened, owner_of
from bourn.server.streaming import EventStream, Opened
from bourn.server.streams import stream_id
from bourn.server.whole import WholeAnswer
from bourn.server.wishes import wishes_of
from bourn.wire.answers import Head, json_text
from bourn.wire.body import OURS, request_of, wants_usage
from bourn.wire.dialect import spoken
from bourn.wire.fields import Fields

routes = APIRouter(tags=["answers"])

LONGEST_PROMPT = 10_000
"""Characters of one that the log shows."""

_prompts = logging.getLogger("bourn.prompts")


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
    packed = http.headers.get("content-encoding", "")
    if packed.strip().lower() not in ("", "identity"):
        return refused(
            415, f"no body is unpacked here: send it without `Content-Encoding: {packed[:80]}`"
        )
    fleet, config = fleet_of(http), config_of(http)
    told = Fields(_object(await http.body()))
    told.refuse_unknown(known)
    _check_asked(told, "messages" if chat else "prompt")
    wishes = wishes_of(told.object("bourn") or {}, http.headers.get("cache-control", ""))
    model = told.text("model") or fleet.names[0]
    request = request_of({name: told.fields[name] for name in told.fields if name != "bourn"})
    terms = wishes.terms(owner_of(http), config.timeouts)

    async def opened() -> Opened:
        hub = await fleet.hub(model)
        try:
            reader = hub.open(request, terms)
        except UnsupportedField as error:
            raise _as_it_was_asked(error, hub.info) from None
        note_opened(http, reader, model)
        if config.log_prompts:
            _prompts.info("%s is asked: %.*s", model, LONGEST_PROMPT, _prompt(told))
        head = Head(stream_id(reader.id, chat=chat), model, int(reader.created), chat=chat)
        return Opened(reader, head)

    usage = wants_usage(told.fields)
    if not told.flag("stream"):
        return WholeAnswer(opened)
    return EventStream(opened, config, usage=usage, places=wishes.queue)


def _as_it_was_asked(error: UnsupportedField, info: ModelInfo) -> UnsupportedField:
    """The error with the name that the field has here."""
    named = error.field or ""
    if named in _INSIDE:
        error.field = _INSIDE[named]
    if named not in OURS:
        return error
    return UnsupportedField(OURS[named], spoken(info.engine), hint=info.why.get(named, ""))


_INSIDE = {"images": "messages", "token ids as prompt": "prompt"}
"""What is no field by itself, and the field that it is in."""


def _check_asked(told: Fields, name: str) -> None:
    if told.fields.get(name, []) == []:
        hint = f"give `{name}`: what it is that is to be answered"
        raise InvalidRequest("there is nothing to answer", hint=hint, field=name)


def _prompt(told: Fields) -> str:
    """What somebody has written, as JSON: it stays on one line."""
    names = ("messages", "prompt")
    return json_text({name: told.fields[name] for name in names if name in told.fields})


def _is_json(content_type: str) -> bool:
    """Web pages may send others without asking: to take those would let any page ask here."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json"


def _object(body: bytes) -> dict[str, Any]:
    try:
        told = jiter.from_json(body.removeprefix(BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is no JSON: {error}", hint="send an object") from None
    if not isinstance(told, dict):
        raise InvalidRequest("the body is no JSON object", hint='send {"messages": [...]}')
    return {name: value for name, value in told.items() if value is not None}
