"""`bourn serve`: an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bourn.cli import options, serving
from bourn.cli.neutral import neutral
from bourn.cli.serving import DEFAULTS
from bourn.cli.show import exit_codes, say
from bourn.server.config import ServerConfig
from bourn.settings import Settings

if TYPE_CHECKING:
    from bourn.archive import Archive
    from bourn.server.fleet import Offer
    from bourn.server.listening import Listener


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
    store: serving.Store = serving.MEMORY,
    share_answers: serving.ShareAnswers = False,
    verbose: serving.Verbose = False,
    log_prompts: serving.LogPrompts = False,
) -> None:
    """Serve models to whatever speaks OpenAI's API.

    The first Ctrl-C, or SIGTERM, lets running answers come to their end; the second does not.
    """
    said = locals()
    with exit_codes():
        settings = Settings.load(options.flags(said))
        config = serving.config(said)
        listener = serving.listener(config, uds, insecure=insecure)
        try:
            offered = _offered(models or [settings.model], settings, config, share=share_answers)
            _log_to_stderr(verbose=verbose)
            # they load while the rest is imported
            status = asyncio.run(_live(offered, config, listener, _archive(store)))
        finally:
            listener.close()
    raise SystemExit(status)


def _offered(
    names: Sequence[str], settings: Settings, config: ServerConfig, *, share: bool
) -> list[Offer]:
    from bourn.server.offers import found, offers

    models = found(names, settings)
    return offers(models, settings, patience=config.timeouts.queue, share=share)


async def _live(
    offered: Sequence[Offer], config: ServerConfig, listener: Listener, archive: Archive
) -> int:
    from bourn.server.app import application
    from bourn.server.fleet import Fleet
    from bourn.server.life import live

    fleet = Fleet(offered, queue_limit=config.queue_limit, archive=archive)
    announce = partial(_announce, listener, fleet.names, keys=bool(config.keys))
    return await live(application(fleet, config), fleet, config, listener, announce)


def _archive(store: str) -> Archive:
    from bourn.archive import Archive

    if store == serving.MEMORY:
        return Archive()
    from bourn.journal.sqlite import SqliteJournals

    return Archive(SqliteJournals(Path(store)))


def _announce(listener: Listener, names: Sequence[str], *, keys: bool) -> None:
    from bourn import __version__

    say(f"bourn {__version__} listens at {listener.url}")
    say(neutral(f"  models  {', '.join(names)}"))
    say(f"  keys    {'wanted' if keys else 'none wanted'}")
    if listener.path is None:
        say(f"  docs    {listener.url}/docs")


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
