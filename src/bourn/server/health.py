"""Whether the server lives, and whether it can take requests. Neither asks a model anything."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response

from bourn.server.openapi import gives, json_of
from bourn.server.state import fleet_of

routes = APIRouter(tags=["health"])


@routes.head("/health", include_in_schema=False)
@routes.get("/health", **gives("Health", "The process lives."))
async def health() -> Response:
    """Whether the process lives."""
    return JSONResponse({"status": "ok"})


_NOT_YET = {"503": json_of("Readiness", "It is loading, or about to stop.")}


@routes.head("/ready", include_in_schema=False)
@routes.get("/ready", **gives("Readiness", "Requests are taken.", **_NOT_YET))
async def ready(http: HTTPRequest) -> Response:
    """Whether requests are taken: not while models are loaded first, nor before a stop."""
    fleet = fleet_of(http)
    takes = fleet.ready and not fleet.draining
    told = {"ready": takes, "draining": fleet.draining, "models": dict(fleet.states())}
    return JSONResponse(told, 200 if takes else 503)
