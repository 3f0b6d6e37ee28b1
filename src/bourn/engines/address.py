"""Where an endpoint is, and which key belongs to it. No connection, and cheap to import.

Secrets are kept apart from what is shown: no repr, message or log of ours holds a key, or the name
and password of a URL.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from bourn.errors import SettingsError

_KEYS = {
    "api.openai.com": "OPENAI_API_KEY",
    "openrouter.ai": "OPENROUTER_API_KEY",
    "api.mistral.ai": "MISTRAL_API_KEY",
    "api.groq.com": "GROQ_API_KEY",
    "api.deepseek.com": "DEEPSEEK_API_KEY",
    "api.together.xyz": "TOGETHER_API_KEY",
    "api.together.ai": "TOGETHER_API_KEY",
    "api.fireworks.ai": "FIREWORKS_API_KEY",
    "api.cerebras.ai": "CEREBRAS_API_KEY",
    "api.x.ai": "XAI_API_KEY",
    "router.huggingface.co": "HF_TOKEN",
    "generativelanguage.googleapis.com": "GEMINI_API_KEY",
}
_HINT = "write http://host:port/v1, https://host/v1 or unix:/path/to.sock"


@dataclass(frozen=True, slots=True)
class Address:
    """The base URL of an endpoint, taken apart.

    url: without secrets, query and final slash. query: sent with every request, never shown.
    login: the value of an Authorization header made from the URL's name and password.
    socket: the path of a unix socket; the URL then only names a path on it.
    """

    url: str
    host: str
    query: str = field(default="", repr=False)
    login: str | None = field(default=None, repr=False)
    socket: str | None = None

    @classmethod
    def of(cls, base_url: str) -> Address:
        """`http://…`, `https://…`, or `unix:/path/to.sock`, which is `/v1` on that socket.

        Raises:
            SettingsError: it is none of these.
        """
        try:
            parts = urlsplit(base_url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise SettingsError("the endpoint's address is no URL", hint=_HINT) from error
        if parts.scheme == "unix" and parts.path:
            return cls("http://localhost/v1", "localhost", socket=parts.path)
        if parts.scheme not in ("http", "https") or not host:
            raise SettingsError("the endpoint's address is no http:// or https:// URL", hint=_HINT)
        named = f"[{host}]" if ":" in host else host
        place = named if port is None else f"{named}:{port}"
        url = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"
        return cls(url, host, parts.query, _login(parts.username, parts.password))

    @property
    def root(self) -> str:
        """Where the server's own pages are, beside its OpenAI-compatible ones."""
        return self.url.removesuffix("/v1")

    @property
    def shown(self) -> str:
        """For messages."""
        return self.url if self.socket is None else f"unix:{self.socket}"

    @property
    def plain_local(self) -> bool:
        """Whether it is on this machine and needs no TLS."""
        return self.url.startswith("http:") and (self.socket is not None or _is_loopback(self.host))

    def key(self, environ: Mapping[str, str]) -> str | None:
        """The key for this endpoint from the environment: the provider's own, else BOURN_API_KEY.

        A provider's key goes to that provider alone, and only over TLS; OPENAI_API_KEY also to the
        host of OPENAI_BASE_URL.
        """
        for host, variable in _KEYS.items():
            known = self.host == host or self.host.endswith(f".{host}")
            if known and self.url.startswith("https:") and environ.get(variable):
                return environ[variable]
        if self.socket is None and self.host == _host(environ.get("OPENAI_BASE_URL", "")):
            return environ.get("OPENAI_API_KEY") or environ.get("BOURN_API_KEY")
        return environ.get("BOURN_API_KEY")


def _login(name: str | None, password: str | None) -> str | None:
    if name is None:
        return None
    pair = f"{unquote(name)}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
