"""The models that are served, as OpenAI lists them."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response

from bourn.errors import ModelNotFound
from bourn.server.openapi import gives
from bourn.server.state import fleet_of

routes = APIRouter(tags=["models"])

_CREATED = int(time.time())


@routes.get("/v1/models", **gives("Models", "All of them; the first is for who names none."))
async def models(http: HTTPRequest) -> Response:
    """What may be named as `model`."""
    fleet = fleet_of(http)
    states = fleet.states()
    listed = [_model(name, states.get(name, "unloaded")) for name in fleet.names]
    return JSONResponse({"object": "list", "data": listed})


@routes.get("/v1/models/{id:path}", **gives("Model", "That one."))
async def model(http: HTTPRequest, id: str) -> Response:  # noqa: A002 (it is what it is called)
    """One of them."""
    fleet = fleet_of(http)
    if id not in fleet.names:
        raise ModelNotFound(f"there is no model {id:.80}", hint="see /v1/models")
    return JSONResponse(_model(id, fleet.states().get(id, "unloaded")))


def _model(name: str, state: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": _CREATED,
        "owned_by": "bourn",
        "state": state,
    }
