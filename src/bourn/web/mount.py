"""The page as an application: Gradio's, on this server's models, behind its visitors' door."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from bourn.server.config import ServerConfig, WebConfig
from bourn.server.fleet import Fleet
from bourn.server.limits import Limits
from bourn.server.refusals import HANDLERS
from bourn.web.desk import Desk
from bourn.web.exports import exports
from bourn.web.visitors import Visitors

if TYPE_CHECKING:
    import gradio as gr

AT_ONCE = 1000
"""Functions of the page that may run at the same time. Gradio's own limit is 40, of answers too;
how many answers are made is the fleet's business."""

SESSIONS = 500
"""Tabs of which Gradio remembers what their lists hold, at 0.7 MB each, those seen last; its own
number is 10,000."""

_LOOK_FOR_WORK = 0.01
"""Seconds. Gradio's own is 0.001, which takes a processor 6 % of its time with nobody there."""

_KEEPING = 5.0
"""Seconds to keep what was being answered at the end."""

_log = logging.getLogger(__name__)


def prepare() -> None:
    """Import Gradio, which takes seconds; it then tells nobody that it runs."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    import bourn.web.page  # noqa: F401


def site(
    fleet: Fleet,
    config: ServerConfig,
    web: WebConfig,
    page: Callable[[Desk], gr.Blocks] | None = None,
) -> ASGIApp:
    """All that a browser sees, for `bourn.server.app.application`. page: another than bourn's own.

    Its start and its end are the application's, as ASGI tells them (lifespan): it has to be told.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, exception_handlers=HANDLERS)
    mount(app, fleet, config, web, page)
    return Visitors(Limits(app, config), config)


def mount(
    app: FastAPI,
    fleet: Fleet,
    config: ServerConfig,
    web: WebConfig,
    page: Callable[[Desk], gr.Blocks] | None = None,
) -> Desk:
    """Give the application the page, at `/`, and all that belongs to it but the door."""
    prepare()
    import gradio

    desk = Desk(fleet, web.conversations, timeouts=config.timeouts)
    app.router.routes += exports(desk)
    look: dict[str, Any] = {}
    if page is None:
        from bourn.web import page as ours

        page = partial(ours.page, examples=web.examples, keyed=bool(config.keys))
        look = ours.look()
    blocks = page(desk)
    blocks.max_threads = AT_ONCE
    blocks.state_session_capacity = SESSIONS
    blocks.queue(default_concurrency_limit=None)
    blocks._queue.sleep_when_free = _LOOK_FOR_WORK  # nothing else sets these
    blocks._queue.progress_update_sleep_when_free = 0.2  # for bars that the page does not have
    gradio.mount_gradio_app(
        app,
        blocks,
        path="/",
        footer_links=[],
        run_history=False,
        show_error=False,
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
        pwa=False,
        **look,
    )
    app.router.lifespan_context = _lasting(app, desk)
    return desk


async def _closed(desk: Desk) -> None:
    try:
        async with asyncio.timeout(_KEEPING):
            await desk.aclose()
    except TimeoutError:
        _log.warning("what was being answered could not be kept in time")


def _lasting(app: FastAPI, desk: Desk) -> Any:
    """The life of the application: in its end what is being answered is kept."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
        async with inner(app) as state:
            try:
                yield state
            finally:
                await _closed(desk)

    return lifespan
