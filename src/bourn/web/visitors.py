"""Who looks at the page, and what browsers are told of it. It knows no Gradio.

Where the server has keys, whoever shows one at `/login` is given a cookie: who they are and until
when, with a code that only the key makes. Nothing of it is kept here, so it outlives the server,
and is worthless once the key is gone. Without keys each browser is a visitor of its own, by a
random cookie. Either opens the page and nothing else: the API takes no cookies.

Cookies are `SameSite=Lax`: a stricter one would be held back from whoever follows a link to the
page, who would be a stranger then. Instead whatever another page asks is refused here, even one of
the same host, with which a browser would send them.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from html import escape
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.requests import Request as HTTPRequest
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bourn.errors import Forbidden
from bourn.server.asgi import headers, route
from bourn.server.config import ServerConfig
from bourn.server.keys import OWNER
from bourn.server.limits import Limits
from bourn.server.refusals import refusal, refused
from bourn.web.logins import LOGGED_IN, LOGIN, LOGOUT, Logins, inside

LOGIN_COOKIE, VISITOR_COOKIE = "bourn_login", "bourn_visitor"

_REMEMBERED = 365 * 24 * 3600
_LARGEST_FORM = 16 * 2**10
_CLOSED = ("upload", "deep_link", "proxy=", "process_recording", "run-history", "vibe-")
"""Routes of Gradio's that a chat has no use for: they would keep what strangers send, or fetch
what they name."""

_log = logging.getLogger(__name__)


def owner_of_request(request: Any) -> str:
    """Whose request it is, of one that Gradio hands to a function (`gr.Request`), or Starlette's.

    Raises:
        LookupError: it did not come through here.
    """
    inner = getattr(request, "request", None) or request
    owner: str = inner.scope[OWNER]
    if not owner:
        raise LookupError("the page has no such owner")
    return owner


class Visitors:
    """Lets in who is known, tells the application whose request it is, and guards what it sends.

    patience: seconds that a wrong key has to wait for its answer.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig, *, patience: float = 1.0) -> None:
        self._door = Keyed(app, config, patience) if config.keys else Open(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._door.page(scope, receive, send)
            return
        path = route(scope)
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif _is_foreign(scope):
            error = Forbidden("the page answers no other page", hint="open it by its own address")
            await refusal(error)(scope, receive, _with_headers(send))
        elif path.startswith(tuple(f"/gradio_api/{name}" for name in _CLOSED)):
            await refused(404, f"there is no {path[:100]}")(scope, receive, _with_headers(send))
        else:
            await self._door(scope, receive, _with_headers(send))


# -- without keys ----------------------------------------------------------------------------------


class Open:
    """Everybody is let in, each browser as somebody of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.page = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = route(scope)
        if path in {LOGIN, LOGOUT}:  # from when there were keys
            await RedirectResponse("/", 303)(scope, receive, send)
            return
        known = _cookie(scope, VISITOR_COOKIE)
        visitor = (
            known if re.fullmatch(r"[\w-]{43}", known, re.ASCII) else secrets.token_urlsafe(32)
        )
        scope[OWNER] = _visitor_owner(visitor)
        if visitor != known or path == "/":
            cookie = _set_cookie(scope, VISITOR_COOKIE, visitor, _REMEMBERED)
            send = _with_cookie(send, cookie)
        await self.page(scope, receive, send)


def _visitor_owner(visitor: str) -> str:
    """Never that of a key, nor the terminal's."""
    return "v" + blake2b(visitor.encode(), digest_size=16, person=b"bourn visitor").hexdigest()


# -- with keys -------------------------------------------------------------------------------------


class Keyed:
    """Lets in who has logged in."""

    def __init__(self, app: ASGIApp, config: ServerConfig, patience: float) -> None:
        self.page = app
        self._logins = Logins(config.keys)
        self._patience = patience
        self._form = Limits(self._checked, replace(config, largest_body=_LARGEST_FORM))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = route(scope)
        owner = self._logins.owner(_cookie(scope, LOGIN_COOKIE), time.time())
        if path == LOGIN and scope["method"] == "POST":
            await self._form(scope, receive, send)
        elif path == LOGIN:
            target = inside(HTTPRequest(scope).query_params.get("next", "/"))
            here = owner is not None
            answer = RedirectResponse(target, 303) if here else _login_page(target)
            await answer(scope, receive, send)
        elif path == LOGOUT:
            await _logged_out(scope)(scope, receive, send)
        elif owner is not None:
            scope[OWNER] = owner
            await self.page(scope, receive, send)
        else:
            await _turned_away(scope)(scope, receive, send)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The form that was sent: a redirect into the page, or the form again."""
        form = parse_qs((await HTTPRequest(scope, receive).body()).decode("utf-8", "replace"))
        target = inside(form.get("next", ["/"])[0])
        cookie = self._logins.cookie(form.get("key", [""])[0].strip(), time.time())
        if cookie is None:
            _log.warning("somebody has shown a wrong key at %s", LOGIN)
            await asyncio.sleep(self._patience)
            await _login_page(target, wrong=True)(scope, receive, send)
        else:
            answer = RedirectResponse(target, 303)
            answer.headers["set-cookie"] = _set_cookie(scope, LOGIN_COOKIE, cookie, LOGGED_IN)
            await answer(scope, receive, send)


def _turned_away(scope: Scope) -> Response:
    """Who comes to look is sent to the login; what the page's own script asks is told why not."""
    wants_page = any("text/html" in value for value in headers(scope, b"accept"))
    if scope["method"] not in {"GET", "HEAD"} or not wants_page:
        return refused(401, "log in first", {"cache-control": "no-store"})
    query = scope.get("query_string", b"").decode("latin-1")
    target = inside(quote(route(scope)) + (f"?{query}" if query else ""))
    where = LOGIN if target == "/" else f"{LOGIN}?next={quote(target, safe='/')}"
    return RedirectResponse(where, 303, {"cache-control": "no-store"})


def _logged_out(scope: Scope) -> Response:
    if scope["method"] != "POST":  # no link in an answer is to log anybody out
        return RedirectResponse("/", 303)
    cookie = _set_cookie(scope, LOGIN_COOKIE, "", 0)
    return RedirectResponse(LOGIN, 303, {"set-cookie": cookie, "cache-control": "no-store"})


@cache
def _form() -> Template:
    return Template(files("bourn.web").joinpath("assets/login.html").read_text("utf-8"))


def _login_page(target: str, *, wrong: bool = False) -> Response:
    told = '<p id="wrong" role="alert">This is not one of the keys.</p>' if wrong else ""
    marks = ' aria-invalid="true" aria-describedby="wrong"' if wrong else ""
    html = _form().substitute(told=told, marks=marks, next=escape(target))
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; " + _BOUNDS
    told_headers = {"cache-control": "no-store", "content-security-policy": policy}
    return HTMLResponse(html, 401 if wrong else 200, told_headers)


# -- what comes, and what goes ---------------------------------------------------------------------


def _is_foreign(scope: Scope) -> bool:
    """Whether another page asks. To be opened from elsewhere, by a link, is no such thing.

    Browsers tell it by `Sec-Fetch-Site`, which no page can change, but not over plain HTTP: then by
    the origin, which must be what the server is called.
    """
    for site in headers(scope, b"sec-fetch-site"):
        if site not in {"same-origin", "none"}:
            is_visit = scope["method"] == "GET" and headers(scope, b"sec-fetch-mode") == [
                "navigate"
            ]
            return not is_visit
        return False
    called = headers(scope, b"host")
    origins = headers(scope, b"origin")
    return any(
        [origin.partition("://")[2].lower()] != [*map(str.lower, called)] for origin in origins
    )


def _cookie(scope: Scope, name: str) -> str:
    return HTTPConnection(scope).cookies.get(name, "")


def _set_cookie(scope: Scope, name: str, value: str, seconds: int) -> str:
    secure = "; Secure" if _is_secure(scope) else ""
    return f"{name}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Lax{secure}"


def _is_secure(scope: Scope) -> bool:
    """Whether the browser speaks HTTPS, if need be to a proxy. Who lies harms nobody else."""
    told = [scope.get("scheme", "http"), *headers(scope, b"x-forwarded-proto")]
    return "https" in told or any(
        origin.startswith("https:") for origin in headers(scope, b"origin")
    )


_BOUNDS = "form-action 'self'; base-uri 'self'; frame-ancestors 'none'"

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src data: blob:; media-src data: blob:; "
    "font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; frame-src 'none'; "
    "object-src 'none'; " + _BOUNDS
)
"""Nothing leaves this host, whatever a model's answer holds, nor does a picture in it ask this host
for anything: `/logout`, say. The page that Gradio makes has scripts in it, and others that it makes
of texts."""

_HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "cross-origin-resource-policy": "same-origin",
    # with `no-referrer` browsers would send forms without their origin
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


def _with_headers(send: Send) -> Send:
    """Adds to an answer what the application has not said of it itself."""

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            told = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                told.setdefault(name, value)
            kind = told.get("content-type", "")
            if kind.startswith("text/event-stream"):
                told.setdefault("x-accel-buffering", "no")  # or nginx would collect it
            elif kind.startswith("text/html"):
                told.setdefault("cache-control", "no-store")  # for whoever is here after a logout
        await send(message)

    return guarded


def _with_cookie(send: Send, cookie: str) -> Send:
    async def giving(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).append("set-cookie", cookie)
        await send(message)

    return giving
