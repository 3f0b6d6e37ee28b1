"""The server as one ASGI application: its routes, and before them the gate."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

from fastapi import FastAPI
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp

from bourn.server import answers, health, models, streams
from bourn.server.config import ServerConfig
from bourn.server.fleet import Fleet
from bourn.server.gate import Parted, gate
from bourn.server.openapi import METRICS, describe
from bourn.server.pages import page
from bourn.server.refusals import HANDLERS
from bourn.server.schema import Schema
from bourn.server.telemetry import Telemetry


def application(fleet: Fleet, config: ServerConfig, page: ASGIApp | None = None) -> ASGIApp:
    """All of it. What becomes of the fleet's answers is counted from now on.

    page: has all paths that are not the API's, and lets in whom it likes.
    """
    telemetry = Telemetry()
    fleet.on_end = telemetry.observe
    app = routes(fleet, config, telemetry)
    api = gate(app, config, telemetry=telemetry, access_log=True)
    return api if page is None else Parted(api, page, config)


def routes(fleet: Fleet, config: ServerConfig, telemetry: Telemetry) -> FastAPI:
    """The routes alone, which let everybody in."""
    app = FastAPI(
        title="bourn",
        version=version("bourn"),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers=HANDLERS,
    )
    app.state.fleet, app.state.config, app.state.telemetry = fleet, config, telemetry
    for room in (answers, streams, models, health):
        app.router.routes += room.routes.routes  # flat, so that a path knows all its methods
    app.get("/metrics", tags=["health"], **METRICS)(telemetry.endpoint)

    @cache
    def api() -> Schema:
        return describe(app, keys=bool(config.keys))

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(api())

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page(api()))

    return app
