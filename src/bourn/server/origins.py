"""Which web pages may ask.

A server that listens on one's own machine is within reach of every page that its user visits: a
page may send it a request without asking first (a form, or text that happens to be JSON), or give
its own domain the address 127.0.0.1 and be no stranger then (DNS rebinding). So, where no key
stands in the way:

- a request must call the server by a name that no stranger can have: an address, `localhost`, a
  name without a dot or of a private domain, the name that it was bound to, or that of one of
  `config.origins`;
- what a browser sends for a page of another origin is refused, unless that origin is allowed.

With keys neither is asked for: a page that knows none gets nothing, and a proxy may call the server
what it likes. Browsers let a page read an answer only where `config.origins` names it (CORS), with
keys and without. `*` there lets every page in.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from bourn.errors import Forbidden
from bourn.server.asgi import headers, is_guarded, refuse
from bourn.server.config import ServerConfig
from bourn.server.refusals import refusal

PRIVATE = ("localhost", "local", "internal", "home.arpa")
"""Domains that nobody can register."""

METHODS = ("GET", "HEAD", "POST", "DELETE")


class Origins:
    """Refuses strangers' pages, and says to browsers which pages are none.

    It adds no header to an answer where `config.origins` is empty. own: what is behind it is for a
    page of ours alone, whatever other pages may ask of the rest.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig, *, own: bool = False) -> None:
        self._app = _with_cors(app, config.origins) if config.origins and not own else app
        self._guards = not config.keys and (own or "*" not in config.origins)
        origins = {origin.lower().rstrip("/") for origin in config.origins}
        self._origins = set() if own else origins
        hosts = {_host(_netloc(origin)) for origin in origins}
        self._hosts = (hosts | {config.host.lower()}) - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._objection(scope) if self._guards and is_guarded(scope) else None
        if error is not None:
            await refuse(refusal(error), scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _objection(self, scope: Scope) -> Forbidden | None:
        called = next(iter(headers(scope, b"host")), "")
        if not self._is_ours(_host(called)):
            return Forbidden(
                f"this server is not called {called[:100]!r}",
                hint="ask it by its address, or start it with a key for other names",
            )
        for origin in headers(scope, b"origin"):
            if not self._is_friend(origin.lower(), called.lower()):
                return Forbidden(
                    f"pages of {origin[:100]!r} may not ask this server",
                    hint="allow that origin where the server is started, or start it with a key",
                )
        return None

    def _is_ours(self, host: str) -> bool:
        # no browser leaves the host out, and none takes a page from a name without one
        name = host.rstrip(".")
        if "." not in name or name in self._hosts or _is_address(name):
            return True
        return name.endswith(tuple(f".{domain}" for domain in PRIVATE))

    def _is_friend(self, origin: str, called: str) -> bool:
        return origin in self._origins or _netloc(origin) == called != ""


def _with_cors(app: ASGIApp, origins: tuple[str, ...]) -> ASGIApp:
    """Starlette's own: it changes the head of an answer, and nothing else of it.

    No cookies: a key comes in a header. A page that was allowed may also come from the internet to
    this machine, which Chrome asks about.
    """
    return CORSMiddleware(
        app,
        allow_origins=[origin.rstrip("/") for origin in origins],
        allow_methods=METHODS,
        allow_headers=["*"],
        expose_headers=["*"],
        allow_private_network=True,
    )


def _netloc(origin: str) -> str:
    return origin.partition("://")[2]


def _host(netloc: str) -> str:
    """A host without its port and in small letters; "" of what is none."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return "not.a.host"


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
