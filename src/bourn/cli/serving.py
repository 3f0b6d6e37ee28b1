"""The flags of `bourn serve` and `bourn web` alone, and what becomes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from bourn.cli.show import say
from bourn.engines import SERVING_SLOTS
from bourn.errors import SettingsError
from bourn.server.config import ServerConfig, WebConfig
from bourn.server.listening import Listener, is_private, listen, listen_unix
from bourn.settings import read
from bourn.terms import Timeouts

DEFAULTS = ServerConfig()
MEMORY = "memory"


def _seconds(text: str) -> float:
    try:
        return float(str(read("keep_alive", text)))
    except SettingsError as wrong:
        raise typer.BadParameter(wrong.hint) from None


def _time(about: str) -> Any:
    return Option(metavar="TIME", parser=_seconds, help=about, show_default=False)


Models = Annotated[
    list[str] | None,
    Argument(
        metavar="MODEL...",
        help="As `bourn run` knows them; name=MODEL gives one a name. The first is the default.",
        show_default=False,
    ),
]
Port = Annotated[int, Option("-p", "--port", min=0, max=65535, help="0 is any that is free.")]
Host = Annotated[str, Option(help="The address to listen at.")]
Uds = Annotated[
    Path | None, Option(metavar="PATH", help="Listen at a unix socket of yours instead of a port.")
]
ApiKey = Annotated[
    list[str] | None,
    Option(
        "--api-key",
        metavar="KEY",
        help="Who shows it may ask. Repeat it for several. Other users of this machine can see it "
        "here: safer are --api-key-file and BOURN_API_KEYS.",
    ),
]
ApiKeyFile = Annotated[
    Path | None, Option(metavar="FILE", help="The keys of those who may ask, one a line.")
]
MetricsKey = Annotated[
    str | None,
    Option(metavar="KEY", envvar="BOURN_METRICS_KEY", show_envvar=True, help="For /metrics alone."),
]
Insecure = Annotated[
    bool, Option("--insecure", help="Let everybody who can reach the address ask, without a key.")
]
Cors = Annotated[
    list[str] | None,
    Option(metavar="ORIGIN", help="Web pages from there may ask: https://host. Repeatable."),
]
Slots = Annotated[
    int | None, Option(min=1, help=f"Answers at once of each local model [{SERVING_SLOTS}].")
]
KeepAlive = Annotated[
    str | None,
    Option(metavar="TIME", help="Unload a model that nobody has asked for so long [never]."),
]
Drain = Annotated[
    float | None,
    _time(f"For running answers to end when it is stopped [{DEFAULTS.drain:g}]."),
]
QueueLimit = Annotated[int, Option(min=0, help="Requests that may wait for a slot, of each model.")]
QueueTimeout = Annotated[float | None, _time("To wait for a slot, or for the model [no end].")]
FirstTokenTimeout = Annotated[
    float | None, _time("For the first token; progress in the prompt counts [no end].")
]
Timeout = Annotated[float | None, _time("For a whole answer [no end].")]
Store = Annotated[
    str,
    Option(metavar="memory|FILE", help="Where answers are kept; an SQLite file outlives this."),
]
ShareAnswers = Annotated[
    bool,
    Option("--share-answers", help="Let what one key's request was answered answer another's too."),
]
Web = Annotated[bool, Option("--web", help="Show the chat page, too, at the server's address.")]
Conversations = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Where the page keeps conversations [where `bourn chat` does].",
        show_default=False,
    ),
]
Example = Annotated[
    list[str] | None,
    Option(metavar="TEXT", help="A question that the page offers. Repeatable.", show_default=False),
]
Verbose = Annotated[bool, Option("-v", "--verbose", help="Log a line a request.")]
LogPrompts = Annotated[bool, Option("--log-prompts", help="Log what people ask, a line each.")]


def config(said: Mapping[str, Any]) -> ServerConfig:
    """How the server is to behave, by the command's parameters.

    Raises:
        SettingsError: a key cannot be sent, or they cannot be read; an origin is none.
    """
    waits = [said.get(name) for name in ("queue_timeout", "first_token_timeout", "timeout")]
    return ServerConfig(
        host=said["host"],
        port=said["port"],
        keys=_keys(said["keys"] or (), said["api_key_file"]),
        metrics_key=said.get("metrics_key"),
        origins=tuple(map(_origin, said.get("cors") or ())),
        drain=DEFAULTS.drain if said["drain"] is None else said["drain"],
        queue_limit=said.get("queue_limit", DEFAULTS.queue_limit),
        timeouts=Timeouts(*(seconds or None for seconds in waits)),  # 0 is off
        log_prompts=said.get("log_prompts", False),
    )


_ORIGIN = re.compile(
    r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^][/?#@:\s]+)(:[0-9]{1,5})?/?", re.IGNORECASE
)


def _origin(said: str) -> str:
    if said != "*" and not _ORIGIN.fullmatch(said):
        raise SettingsError(
            f"--cors {said[:100]} is no origin of web pages",
            hint="say https://host, https://host:port, or * for all of them",
        )
    return said


def page(said: Mapping[str, Any]) -> WebConfig | None:
    """How the page is to behave; None where none is wanted.

    Raises:
        SettingsError: it cannot be had, or something is said of it and it is not wanted.
    """
    if not said["web"]:
        for name in ("conversations", "example"):
            if said[name]:
                raise SettingsError(f"--{name} is for the page", hint="say --web, too")
        return None
    if find_spec("gradio") is None:
        raise SettingsError(
            "the page needs Gradio, which is not installed", hint="pip install 'bourn[web]'"
        )
    examples = tuple(said["example"] or WebConfig().examples)
    return WebConfig(conversations=said["conversations"], examples=examples)


def _keys(said: Sequence[str], file: Path | None) -> frozenset[str]:
    """The keys of those who may ask, from everywhere that they may be said."""
    from bourn.server.keys import exposure, keys_from_environment, keys_from_file

    for key in said:
        if not (key and key.isascii() and key.isprintable()) or " " in key:
            hint = "a key is made of ASCII letters, digits and signs, without blanks"
            raise SettingsError("one --api-key cannot be sent in a header", hint=hint)
    known = frozenset(said) | keys_from_environment()
    if file is not None:
        known |= keys_from_file(file)
        if told := exposure(file):
            say(f"bourn: {told}")
    return known


def listener(config: ServerConfig, uds: Path | None, *, insecure: bool) -> Listener:
    """Where requests come in.

    Raises:
        SettingsError: it is not ours to take; or everybody could reach it, and needs no key.
    """
    if uds is not None:
        return listen_unix(uds)
    if not (config.keys or insecure or is_private(config.host)):
        raise SettingsError(
            f"whoever can reach {config.host} could use this server",
            hint="want a key with --api-key-file, or say --insecure if that is meant",
        )
    return listen(config.host, config.port)
