"""`bourn serve`: an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bourn.cli import options, serving
from bourn.cli.mortal import Mortal
from bourn.cli.neutral import neutral
from bourn.cli.serving import DEFAULTS
from bourn.cli.show import exit_codes, say
from bourn.errors import SettingsError, StoreFailed
from bourn.server.config import ServerConfig, WebConfig
from bourn.settings import Settings

if TYPE_CHECKING:
    from bourn.archive import Archive
    from bourn.server.fleet import Offer
    from bourn.server.listening import Listener

Begun = Callable[[str], object]
"""Told the address once requests are answered."""


def serve(
    models: serving.Models = None,
    port: serving.Port = DEFAULTS.port,
    host: serving.Host = DEFAULTS.host,
    uds: serving.Uds = None,
    keys: serving.ApiKey = None,
    api_key_file: serving.ApiKeyFile = None,
    metrics_key: serving.MetricsKey = None,
    insecure: serving.Insecure = False,
    cors: serving.Cors = None,
    slots: serving.Slots = None,
    window: options.Window = None,
    dtype: options.Dtype = None,
    device: options.Device = None,
    quantization: options.Quantization = None,
    chat_template: options.ChatTemplate = None,
    threads: options.Threads = None,
    cpu_only: options.CpuOnly = None,
    llama_server: options.LlamaServer = None,
    trust_remote_code: options.TrustRemoteCode = None,
    keep_alive: serving.KeepAlive = None,
    drain: serving.Drain = None,
    queue_limit: serving.QueueLimit = DEFAULTS.queue_limit,
    queue_timeout: serving.QueueTimeout = None,
    first_token_timeout: serving.FirstTokenTimeout = None,
    timeout: serving.Timeout = None,
    web: serving.Web = False,
    conversations: serving.Conversations = None,
    example: serving.Example = None,
    store: serving.Store = serving.MEMORY,
    share_answers: serving.ShareAnswers = False,
    verbose: serving.Verbose = False,
    log_prompts: serving.LogPrompts = False,
) -> None:
    """Serve models to whatever speaks OpenAI's API.

    The first Ctrl-C, or SIGTERM, lets running answers come to their end; the second does not.
    """
    run(locals())


def run(said: Mapping[str, Any], begun: Begun = lambda _: None) -> None:
    """Serve, by the parameters of a command, until a signal ends it; and end the program."""
    with Mortal() as mortal, exit_codes():
        settings = Settings.load(options.flags(said))
        config, web = serving.config(said), serving.page(said)
        listener = serving.listener(config, said.get("uds"), insecure=said["insecure"])
        try:
            offered = _offered(said["models"] or [settings.model], settings, config, said)
            _log_to_stderr(verbose=said["verbose"])
            archive = _archive(said.get("store", serving.MEMORY))
            with mortal.held():
                _import_the_rest(page=web is not None)  # while the models load
                loops = _loops()
            with asyncio.Runner(loop_factory=loops) as runner:
                status = runner.run(_live(offered, config, web, listener, archive, begun))
        finally:
            listener.close()
    raise SystemExit(status)


def _loops() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's, with which an event takes a seventh less; Windows has none."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _import_the_rest(*, page: bool) -> None:
    import bourn.server.app
    import bourn.server.life  # noqa: F401

    if page:
        from bourn.web.mount import prepare

        prepare()


def _offered(
    names: Sequence[str], settings: Settings, config: ServerConfig, said: Mapping[str, Any]
) -> list[Offer]:
    from bourn.server.offers import found, offers

    models = found(names, settings)
    return offers(
        models,
        settings,
        patience=config.timeouts.queue,
        share=said.get("share_answers", False),
        lasting=said.get("store", serving.MEMORY) != serving.MEMORY,
    )


async def _live(
    offered: Sequence[Offer],
    config: ServerConfig,
    web: WebConfig | None,
    listener: Listener,
    archive: Archive,
    begun: Begun,
) -> int:
    from bourn.server.app import application
    from bourn.server.fleet import Fleet
    from bourn.server.life import live

    fleet = Fleet(offered, queue_limit=config.queue_limit, archive=archive)
    page = None
    if web is not None:
        from bourn.web.mount import site

        page = site(fleet, config, web)

    def announce() -> None:
        _announce(listener, fleet.names, keys=bool(config.keys), page=page is not None)
        begun(listener.url)

    try:
        return await live(application(fleet, config, page), fleet, config, listener, announce)
    except StoreFailed as error:
        raise SettingsError(f"--store: {error}", hint=error.hint) from error


def _archive(store: str) -> Archive:
    from bourn.archive import Archive

    if store == serving.MEMORY:
        return Archive()
    from bourn.journal.sqlite import SqliteJournals

    return Archive(SqliteJournals(Path(store)))


def _announce(listener: Listener, names: Sequence[str], *, keys: bool, page: bool) -> None:
    from bourn import __version__

    say(f"bourn {__version__} listens at {listener.url}")
    say(neutral(f"  models  {', '.join(names)}"))
    say(f"  keys    {'wanted' if keys else 'none wanted'}")
    if listener.path is None:
        say(f"  docs    {listener.url}/docs")
    if page:
        say(f"  page    {listener.url}{'' if listener.path else '/'}")


class _Format(logging.Formatter):
    default_msec_format = None

    def format(self, record: logging.LogRecord) -> str:
        return neutral(super().format(record))  # a server elsewhere may have written it


def _log_to_stderr(*, verbose: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Format("%(asctime)s %(message)s"))
    for name, level in (("bourn", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)
    logging.getLogger("bourn.access").setLevel(logging.INFO if verbose else logging.WARNING)
