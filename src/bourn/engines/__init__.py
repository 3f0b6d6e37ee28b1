"""What makes text: the seam, and an engine for each kind of model behind it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bourn.errors import LoadFailed
from bourn.settings import variable

if TYPE_CHECKING:
    from bourn.catalog import Gguf, Source
    from bourn.engines.base import Engine
    from bourn.settings import Settings


def engine_for(settings: Settings) -> Engine:
    """The engine of the model that the settings name. A local model begins to load at once.

    Raises:
        BournError: what `resolve` and the engines' constructors raise.
    """
    from bourn.catalog import resolve

    return engine_of(resolve(settings.model), settings)


def engine_of(source: Source, settings: Settings) -> Engine:
    """As `engine_for`, for a model that was found already."""
    from bourn import catalog

    # its own keys go before BOURN_API_KEY at a provider: `Address.key` chooses among them
    said = None if settings.api_key == os.environ.get(variable("api_key")) else settings.api_key
    match source:
        case catalog.Gguf():
            return _llamacpp(source, settings)
        case catalog.Endpoint():
            from bourn.engines.dialects import BY_KIND
            from bourn.engines.remote import Remote

            return Remote(
                source.base_url,
                model=source.model,
                api_key=said,
                dialect=source.kind and BY_KIND[source.kind],
            )
        case catalog.VllmServe():
            from bourn.engines.vllm import Vllm

            return Vllm(source.model, source.command)
        case catalog.ScriptedSource():
            from bourn.engines.scripted import scripted

            return scripted(source.spec)
        case catalog.Checkpoint():
            raise LoadFailed(
                f"{source.folder} is a Hugging Face checkpoint, and bourn has no engine for those",
                hint="take a GGUF file of the model, or the URL of a server that runs it",
            )


def _llamacpp(source: Gguf, settings: Settings) -> Engine:
    from bourn.catalog.templates import template
    from bourn.engines.llamacpp import LlamaCpp
    from bourn.engines.resident import Sharing

    named = settings.chat_template
    engine = LlamaCpp(
        source.path,
        window=settings.window,
        slots=settings.slots or 1,
        threads=settings.threads,
        cpu_only=settings.cpu_only,
        chat_template=None if named is None else template(named),
        llama_server=settings.llama_server,
        defaults=source.facts.sampling,
        train_window=source.facts.window,
        has_template=source.facts.chat_template is not None,
        name=source.name,
        sharing=Sharing(settings.keep_alive),
    )
    engine.spawn()
    return engine
