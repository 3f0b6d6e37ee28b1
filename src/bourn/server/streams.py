"""Streams by their ids: come back to one, or end it.

The id of an answer is the id of its stream: the seat that its client has in the hub, and before it
what kind of answer it is. A stream that is unknown, forgotten or somebody else's is a 404.
"""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Header, Query
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response

from bourn.errors import InvalidRequest, StreamNotFound
from bourn.server.accesslog import tell
from bourn.server.openapi import gives, streams
from bourn.server.state import config_of, fleet_of, owner_of
from bourn.server.streaming import EventStream, Opened
from bourn.wire.answers import Head

routes = APIRouter(tags=["streams"])

Number = Annotated[int, Query(ge=0, description="Of the last event that was seen.")]
LastEvent = Annotated[
    str,
    Header(
        description="The id of the last event that was seen.",
        json_schema_extra={"pattern": "^$|^.+:[0-9]{1,15}$"},
    ),
]

_PREFIXES = {"chatcmpl-": True, "cmpl-": False}
_CANCELLED = gives("Cancelled", "Whether there was something to end.")


class Seat(NamedTuple):
    """What a stream's id says. chat: else an old-style completion."""

    id: str
    chat: bool


def stream_id(seat: str, *, chat: bool) -> str:
    """The id by which clients know a seat."""
    return next(prefix for prefix, kind in _PREFIXES.items() if kind is chat) + seat


def seat_of(stream: str) -> Seat:
    """The way back. What is no id of ours becomes a seat that is nobody's."""
    for prefix, chat in _PREFIXES.items():
        if stream.startswith(prefix):
            return Seat(stream.removeprefix(prefix), chat)
    return Seat("", chat=True)


@routes.get("/v1/streams/{id}", **streams())
async def resume(
    http: HTTPRequest,
    id: str,  # noqa: A002 (it is what it is called)
    after: Number = 0,
    starting_after: Number = 0,
    include_usage: bool = False,  # noqa: FBT001, FBT002 (a parameter of the query)
    last_event_id: LastEvent = "",
) -> Response:
    """Come back to a stream: what was not seen yet, and then what comes.

    What was seen is in the header `Last-Event-ID`, else in `after` or `starting_after`.
    """
    seat = seat_of(id)
    # a browser sends the header beside the address that it had at first
    seen = _seen(last_event_id, id) if last_event_id else max(after, starting_after)

    async def opened() -> Opened:
        model, hub = fleet_of(http).find(seat.id)
        try:
            reader = hub.attach(seat.id, owner=owner_of(http))
        except KeyError:
            raise StreamNotFound(f"there is no stream {id:.80}") from None
        tell(http.scope, model=model, stream=reader.id)
        return Opened(reader, Head(id, model, int(reader.created), chat=seat.chat), seen)

    return EventStream(opened, config_of(http), usage=include_usage)


@routes.post("/v1/streams/{id}/cancel", **_CANCELLED)
@routes.delete("/v1/streams/{id}", **_CANCELLED)
async def cancel(http: HTTPRequest, id: str) -> Response:  # noqa: A002
    """Want no more of a stream. A shared generation ends with the last who wants it.

    It may be said again and again. What has ended, is forgotten, or never was cannot be told apart,
    and none of it computes anything: `cancelled` is false then.
    """
    seat = seat_of(id)
    _, hub = fleet_of(http).find(seat.id)
    cancelled = hub.cancel(seat.id, owner=owner_of(http))
    return JSONResponse({"id": id, "object": "stream", "cancelled": cancelled})


def _seen(last_event: str, stream: str) -> int:
    """The number in an event's id, which is `<id of the stream>:<number>`."""
    id_, _, number = last_event.rpartition(":")
    if id_ != stream or not re.fullmatch("[0-9]{1,15}", number):
        raise InvalidRequest(
            f"`Last-Event-ID` is {last_event!r:.100}",
            hint=f"send the id of an event of this stream, {stream[:100]}:<number>",
            field="Last-Event-ID",
        )
    return int(number)
