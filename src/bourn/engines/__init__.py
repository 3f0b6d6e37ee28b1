"""What makes text: the seam, and an engine for each kind of model behind it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from bourn.settings import variable

if TYPE_CHECKING:
    from bourn.catalog import Checkpoint, Gguf, Source
    from bourn.engines.base import Engine
    from bourn.engines.hf.child.worker import Config
    from bourn.settings import Settings


SERVING_SLOTS = 4
"""Of a local model that is served: the least that makes good use of a machine for several users."""

OnProgress = Callable[[int, int], object]
"""Told how many of how many parts of a model are loaded, in the thread that loads it."""


def engine_for(settings: Settings, on_progress: OnProgress | None = None) -> Engine:
    """The engine of the model that the settings name. A GGUF file begins to load at once.

    on_progress: called while weights are read, by the engines that can tell.

    Raises:
        BournError: what `resolve` and the engines' constructors raise.
    """
    from bourn.catalog import resolve

    source = resolve(settings.model, code=settings.trust_remote_code)
    return engine_of(source, settings, on_progress)


def engine_of(
    source: Source,
    settings: Settings,
    on_progress: OnProgress | None = None,
    *,
    serving: bool = False,
) -> Engine:
    """As `engine_for`, for a model that was found already.

    serving: for a server: with `SERVING_SLOTS` where nobody says how many, and a local model in a
    process of its own, which begins to load at once. What an endpoint refuses for now is then told
    at once, too: clients ask again by themselves.
    """
    from bourn import catalog
    from bourn.engines.fit import check_fit

    check_fit(source, settings)
    # its own keys go before BOURN_API_KEY at a provider: `Address.key` chooses among them
    said = None if settings.api_key == os.environ.get(variable("api_key")) else settings.api_key
    match source:
        case catalog.Gguf():
            return _llamacpp(source, settings, serving=serving)
        case catalog.Endpoint():
            from bourn.engines.dialects import BY_KIND
            from bourn.engines.remote import RETRIES, Remote

            return Remote(
                source.base_url,
                model=source.model,
                api_key=said,
                dialect=source.kind and BY_KIND[source.kind],
                retries=0 if serving else RETRIES,
            )
        case catalog.VllmServe():
            from bourn.engines.vllm import Vllm

            return Vllm(source.model, source.command)
        case catalog.ScriptedSource():
            from bourn.engines.scripted import scripted

            return scripted(source.spec)
        case catalog.Checkpoint():
            return _transformers(source, settings, on_progress, serving=serving)


def _llamacpp(source: Gguf, settings: Settings, *, serving: bool) -> Engine:
    from bourn.catalog.templates import template
    from bourn.engines.fit import device
    from bourn.engines.llamacpp import LlamaCpp
    from bourn.engines.resident import Sharing

    named = settings.chat_template
    engine = LlamaCpp(
        source.path,
        window=settings.window,
        slots=_slots(settings, serving=serving),
        threads=settings.threads,
        cpu_only=device(settings) == "cpu",
        chat_template=None if named is None else template(named),
        llama_server=settings.llama_server,
        defaults=source.facts.sampling,
        train_window=source.facts.window,
        has_template=source.facts.chat_template is not None,
        name=source.name,
        sharing=None if serving else Sharing(settings.keep_alive),
    )
    engine.spawn()
    return engine


def _transformers(
    source: Checkpoint, settings: Settings, on_progress: OnProgress | None, *, serving: bool
) -> Engine:
    from bourn.catalog.packages import check_installed

    check_installed()
    config = _config(source, settings, serving=serving)
    if serving:
        from bourn.engines.hf.child.apart import Apart

        apart = Apart(config, on_progress=on_progress)
        apart.spawn()
        return apart
    from bourn.engines.hf.child.worker import here

    return here(config, on_progress)


def _config(source: Checkpoint, settings: Settings, *, serving: bool) -> Config:
    from bourn.catalog.checkpoint import configuration, quantised
    from bourn.catalog.templates import template
    from bourn.engines.fit import device
    from bourn.engines.hf.child.worker import Config

    named, quantization = settings.chat_template, settings.quantization
    if quantised(configuration(source.folder)) and "quantization" not in settings.called_for:
        quantization = None  # a standing wish, and it is small already
    return Config(
        folder=str(source.folder),
        name=source.name,
        slots=_slots(settings, serving=serving),
        window=settings.window,
        dtype=settings.dtype or "auto",
        device=device(settings),
        quantization=quantization,
        chat_template=None if named is None else template(named),
        trust_remote_code=settings.trust_remote_code,
        threads=settings.threads,
        compiled=settings.compile,
    )


def _slots(settings: Settings, *, serving: bool) -> int:
    return settings.slots or (SERVING_SLOTS if serving else 1)
