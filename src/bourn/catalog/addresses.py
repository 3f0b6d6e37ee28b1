"""Names of servers into `Endpoint`s: URLs, unix sockets, OpenAI. No connection is made."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from bourn.catalog.places import expanded
from bourn.catalog.sources import Endpoint
from bourn.errors import ModelNotFound

OPENAI = "https://api.openai.com/v1"
_HUB_HOSTS = ("huggingface.co", "hf.co")
_EXAMPLE = "as in http://127.0.0.1:8000/v1#model"


def url(name: str) -> Endpoint:
    """`https://host[/path][#model]`; without a path, `/v1` is meant.

    Raises:
        ModelNotFound: it is no URL of a server; a page of the hub is not.
    """
    try:
        told = urlsplit(name)
        host, _ = told.hostname, told.port
    except ValueError as error:
        raise ModelNotFound(f"the server's URL is wrong: {error}", hint=_EXAMPLE) from None
    if not host:
        raise ModelNotFound("the server's URL names no host", hint=_EXAMPLE)
    if host in _HUB_HOSTS:
        repo = "/".join(told.path.split("/")[1:3])
        raise ModelNotFound(f"a page of {host} is no server of models", hint=f"say hf:{repo}")
    path = told.path.rstrip("/") or "/v1"
    base_url = urlunsplit((told.scheme, told.netloc, path, told.query, ""))
    return Endpoint(base_url, told.fragment or None)


def unix(rest: str) -> Endpoint:
    """What follows `unix:`: a socket's path, and `#model` perhaps.

    Raises:
        ModelNotFound: there is no path.
    """
    path, _, model = rest.partition("#")
    if not path:
        raise ModelNotFound("`unix:` names no socket", hint="as in unix:/run/model.sock#model")
    return Endpoint(f"unix:{expanded(path).absolute()}", model or None)


def openai(model: str, environ: Mapping[str, str]) -> Endpoint:
    """A model of OpenAI's, or of the server that OPENAI_BASE_URL names.

    Raises:
        ModelNotFound: no model is named.
    """
    if not model:
        raise ModelNotFound("`openai:` names no model", hint="as in openai:gpt-5")
    if other := environ.get("OPENAI_BASE_URL"):
        return Endpoint(url(other).base_url, model)
    return Endpoint(OPENAI, model, "openai")
