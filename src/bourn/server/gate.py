"""All that a request passes before it reaches the routes, in the order that it must have."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from bourn.server.accesslog import AccessLog
from bourn.server.asgi import is_for_page, linger
from bourn.server.config import ServerConfig
from bourn.server.keys import Keys
from bourn.server.limits import AtOnce, Limits
from bourn.server.origins import Origins
from bourn.server.telemetry import Responses, Telemetry


def gate(
    app: ASGIApp,
    config: ServerConfig,
    *,
    telemetry: Telemetry | None = None,
    access_log: bool = False,
    at_once: int | None = None,
) -> ASGIApp:
    """The application behind its gate.

    telemetry: counts what becomes of requests. access_log: whether a line is written of each.
    at_once: requests that a key may have open.

    From the inside out: nobody's body is read before their key was seen; a page is told of a
    refusal too, and its browser asks beforehand without a key; what is counted and written down is
    all that came.
    """
    app = Limits(app, config)
    if at_once is not None:
        app = AtOnce(app, at_once)
    app = Keys(app, config)
    app = Origins(app, config)
    if telemetry is not None:
        app = Responses(app, telemetry)
    return AccessLog(app) if access_log else app


class Parted:
    """The API, and beside it a page, which sees to its visitors itself.

    What a page asks is neither written down nor counted, and the server's end does not wait for it:
    a browser keeps a connection open for as long as it shows the page.
    """

    def __init__(self, api: ASGIApp, page: ASGIApp, config: ServerConfig) -> None:
        self._api = api
        self._page = Origins(page, config, own=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_for_page(scope):
            if scope["type"] == "http":
                linger()
            await self._page(scope, receive, send)
        else:
            await self._api(scope, receive, send)
