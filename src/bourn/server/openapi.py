"""The OpenAPI page: what FastAPI knows of the routes, and what they themselves say of bodies."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from bourn.server.schema import (
    CHAT_REQUEST,
    COMPLETION_REQUEST,
    Schema,
)

_TEXT = {"type": "string"}
_NUMBER_OR_NULL = {"type": ["number", "null"]}


def _object(**properties: Any) -> Schema:
    """All of these are always there, perhaps with others."""
    return {"type": "object", "properties": properties, "required": [*properties]}


def _list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_ERROR = _object(
    error=_object(
        message=_TEXT,
        type=_TEXT,
        code=_TEXT,
        param={"type": ["string", "null"], "description": "The field that is wrong."},
    )
)
_USAGE = _object(
    prompt_tokens={"type": "integer"},
    completion_tokens={"type": "integer"},
    total_tokens={"type": "integer"},
    prompt_tokens_details=_object(cached_tokens={"type": "integer"}),
)
_METRICS = _object(
    **dict.fromkeys(
        (
            "time_to_first_token_ms",
            "generation_time_ms",
            "queue_time_ms",
            "mean_itl_ms",
            "tokens_per_second",
            "total_time_ms",
            "itl_p50_ms",
            "itl_p99_ms",
        ),
        _NUMBER_OR_NULL,
    )
)
_MODEL = _object(
    id=_TEXT,
    object={"const": "model"},
    created={"type": "integer"},
    owned_by=_TEXT,
    state={"enum": ["loading", "ready", "unloaded", "failed"]},
)


def _answer(kind: str, **choice: Schema) -> Schema:
    return _object(
        id={**_TEXT, "description": "Also the id of its stream."},
        object={"const": kind},
        created={"type": "integer"},
        model=_TEXT,
        choices=_list_of(_object(index={"type": "integer"}, **choice, finish_reason=_TEXT)),
        usage=_ref("Usage"),
        metrics=_ref("Metrics"),
    )


SCHEMAS: Schema = {
    "ChatRequest": CHAT_REQUEST,
    "CompletionRequest": COMPLETION_REQUEST,
    "ChatAnswer": _answer("chat.completion", message=_object(role=_TEXT)),
    "CompletionAnswer": _answer("text_completion", text=_TEXT),
    "Usage": _USAGE,
    "Metrics": _METRICS,
    "Model": _MODEL,
    "Models": _object(object={"const": "list"}, data=_list_of(_ref("Model"))),
    "Cancelled": _object(id=_TEXT, object={"const": "stream"}, cancelled={"type": "boolean"}),
    "Health": _object(status={"const": "ok"}),
    "Readiness": _object(
        ready={"type": "boolean"}, draining={"type": "boolean"}, models={"type": "object"}
    ),
    "Error": _ERROR,
}


def json_of(name: str, description: str) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": _ref(name)}}}


_STREAM: Schema = {
    "schema": {
        "type": "object",
        "description": "Of each event. The last one of all is `[DONE]`.",
        "properties": {
            "data": {**_TEXT, "description": "A chunk as in OpenAI's API, or an `error`."},
            "id": {**_TEXT, "description": "To come back by: the stream's id, and a number."},
        },
        "required": ["data"],
    }
}
_ERRORS: Schema = {
    "4XX": json_of("Error", "The request must change, or come later."),
    "5XX": json_of("Error", "The answer could not be made."),
}


def gives(name: str, description: str, **others: Schema) -> dict[str, Any]:
    """A route's options: it answers with that schema, or an error."""
    answers = {"200": json_of(name, description), **others, **_ERRORS}
    return {"responses": answers}


def answers(request: str, answer: str) -> dict[str, Any]:
    """The options of a route that takes a request for an answer, whole or streamed."""
    ok = json_of(answer, "The answer; with `stream`, as an event stream.")
    ok["content"]["text/event-stream"] = _STREAM
    body = {"required": True, "content": {"application/json": {"schema": _ref(request)}}}
    return {"responses": {"200": ok, **_ERRORS}, "openapi_extra": {"requestBody": body}}


def streams() -> dict[str, Any]:
    """The options of a route that gives an event stream."""
    ok = {"description": "The events.", "content": {"text/event-stream": _STREAM}}
    return {"responses": {"200": ok, **_ERRORS}}


_PAGE = {"schema": {"type": "string"}}

METRICS: dict[str, Any] = {
    "summary": "Numbers for Prometheus",
    "description": "What the server counts, as a page for Prometheus.",
    "responses": {
        "200": {
            "description": "The page.",
            "content": {"text/plain": _PAGE},
        },
        **_ERRORS,
    },
}


def describe(app: FastAPI, *, keys: bool) -> Schema:
    """The whole page. keys: whether one is asked for."""
    page = get_openapi(title=app.title, version=app.version, routes=app.routes)
    page["components"] = {"schemas": SCHEMAS}
    if keys:
        page["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        page["security"] = [{"key": []}]
    return page
