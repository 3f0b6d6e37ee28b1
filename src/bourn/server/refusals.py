"""Errors as answers over HTTP: a status, and a body as OpenAI's clients know it."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match

from bourn.errors import BournError, InvalidRequest, Overloaded, Unauthorized
from bourn.wire.answers import error_object

Handler = Callable[[Request, Any], Coroutine[Any, Any, Response]]

LONGEST_PATH = 200
"""Characters of one that are told back."""

RETRY_AFTER = 1.0
"""Seconds after which to ask again, where nobody knows better."""


def refusal(error: BaseException) -> JSONResponse:
    """The answer to a request that failed before there was anything to send.

    That an endpoint behind bourn refuses bourn's own key is no fault of the client's: a 502.
    """
    told = error_object(error)
    if isinstance(error, Unauthorized):
        told["error"]["status"] = 502
    headers: dict[str, str] = {}
    status = told["error"]["status"]
    if status >= 500 or isinstance(error, Overloaded):
        # the SDKs obey it, and would else ask again whatever failed
        headers["x-should-retry"] = str(getattr(error, "retryable", False)).lower()
    if isinstance(error, Overloaded):
        headers["retry-after"] = str(math.ceil(error.retry_after or RETRY_AFTER))
    return JSONResponse(told, status, headers)


def refused(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An answer of that status, for what is a matter of HTTP alone."""
    name = HTTPStatus(status).phrase
    told = {
        "message": message,
        "type": name.title().replace(" ", ""),
        "code": name.lower().replace(" ", "_"),
        "param": None,
        "status": status,
    }
    return JSONResponse({"error": told}, status, headers)


async def on_bourn_error(_: Request, error: Exception) -> Response:
    return refusal(error)


async def on_http_error(request: Request, error: HTTPException) -> Response:
    """No such page, or not with this method."""
    status, headers, message = error.status_code, dict(error.headers or {}), str(error.detail)
    what = f"{request.method} {request.url.path:.{LONGEST_PATH}}"
    if status == 404:
        message = f"there is no {what}"
    if status == 405:
        headers = {"allow": ", ".join(sorted(_methods(request)))}
        message = f"there is no {what}; there is {headers['allow']}"
    return refused(status, message, headers)


def _methods(request: Request) -> set[str]:
    """What the path takes; each route knows only its own."""
    routes: list[BaseRoute] = request.app.routes
    there = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in there for method in getattr(route, "methods", None) or ()}


async def on_invalid(_: Request, error: RequestValidationError) -> Response:
    """What FastAPI found wrong by itself, in a path or a query."""
    first = error.errors()[0]
    name = str(first["loc"][-1])
    return refusal(InvalidRequest(f"`{name}`: {first['msg']}", hint="see /docs", field=name))


async def on_hang_up(_: Request, __: Exception) -> Response:
    """Nobody is there to read it."""
    return Response(status_code=400)


async def on_crash(_: Request, error: Exception) -> Response:
    """The last resort; the traceback is in the log."""
    return refusal(error)


HANDLERS: dict[int | type[Exception], Handler] = {
    BournError: on_bourn_error,
    HTTPException: on_http_error,
    RequestValidationError: on_invalid,
    ClientDisconnect: on_hang_up,
    Exception: on_crash,
}
