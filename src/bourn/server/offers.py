"""What is to be served: names as people write them on the command line, into engines on standby.

    smollm2   ./checkpoint   https://host/v1#big   fast=smollm2

A name is known to clients as the catalog calls it, or as what stands before the `=`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

from bourn.catalog import Checkpoint, Endpoint, Gguf, ScriptedSource, Source, VllmServe, resolve
from bourn.catalog.identity import identity
from bourn.catalog.templates import template
from bourn.engines import OnProgress, engine_of
from bourn.engines.address import Address
from bourn.engines.base import Engine
from bourn.engines.fit import device, fitted
from bourn.errors import SettingsError
from bourn.server.fleet import Offer
from bourn.server.standby import Standby
from bourn.settings import Settings
from bourn.sharing import Key, key_for

_ALIASED = re.compile(r"(\w[\w.-]*(?:/[\w.-]+)?)=(.+)", re.DOTALL)
"""No path and no URL: these have a colon before, or begin with a dot or a slash."""


@dataclass(frozen=True, slots=True)
class Named:
    """A model that was found. alias: the user's own name for it; "" for none."""

    source: Source
    alias: str = ""

    @property
    def name(self) -> str:
        return self.alias or _name_of(self.source)


def found(names: Sequence[str], settings: Settings) -> list[Named]:
    """The models of these names, each by a name of its own. It may download them.

    Raises:
        SettingsError: two would have the same name.
        BournError: what `resolve` raises.
    """
    models = [_found(name, code=settings.trust_remote_code) for name in names]
    taken: set[str] = set()
    for model in models:
        if model.name in taken:
            raise SettingsError(
                f"two models are called {model.name}",
                hint=f"give one of them a name of its own: other={names[models.index(model)]}",
            )
        taken.add(model.name)
    return models


def offers(
    models: Sequence[Named],
    settings: Settings,
    *,
    patience: float | None = None,
    share: bool = False,
    lasting: bool = True,
) -> list[Offer]:
    """An engine for each, which begins to load at once. Needs no event loop.

    patience: seconds that requests wait for a load. share: answers are shared by all keys. lasting:
    they outlive the process.

    Raises:
        SettingsError: what was said fits none of them.
        BournError: what `engine_of` raises.
    """
    settings = replace(settings, called_for=settings.called_for - {"keep_alive"})  # is ours to do
    shares = fitted([model.source for model in models], settings)
    offered = []
    for model, said in zip(models, shares, strict=True):
        key = partial(_key, model.source, said, share=share, lasting=lasting)
        offered.append(Offer(_standby(model, said, patience), said.sampling, key))
    for offer in offered:
        offer.engine.prepare()
    return offered


def _standby(model: Named, settings: Settings, patience: float | None) -> Standby:
    def build(on_progress: OnProgress) -> Engine:
        return engine_of(model.source, settings, on_progress, serving=True)

    is_elsewhere = isinstance(model.source, Endpoint)
    keep_alive = None if is_elsewhere else settings.keep_alive or None
    return Standby(model.name, build, keep_alive=keep_alive, patience=patience)


# -- what it is, so that answers can be told to be its own -----------------------------------------


def _key(source: Source, settings: Settings, *, share: bool, lasting: bool) -> Key:
    from platformdirs import user_cache_path

    content = identity(source, user_cache_path("bourn") / "digests.json", lasting=lasting)
    told = [content, *_run_with(source, settings)]
    return key_for(sha256(json.dumps(told).encode()).hexdigest(), everybody=share)


def _run_with(source: Source, settings: Settings) -> list[str | None]:
    """What else makes a local model's answers: programs, and how they load it."""
    packages = _PACKAGES.get(type(source), ())
    if not packages:
        return []
    named = settings.chat_template
    return [
        *map(_version, packages),
        None if named is None else template(named),
        settings.dtype,
        settings.quantization,
        device(settings),
        str(settings.llama_server),
    ]


def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None


_PACKAGES: Mapping[type[Source], tuple[str, ...]] = {
    Gguf: ("bourn", "xllamacpp"),
    Checkpoint: ("bourn", "transformers", "torch"),
}


# -- what they are called --------------------------------------------------------------------------


def _found(name: str, *, code: bool) -> Named:
    aliased = _ALIASED.fullmatch(name)
    if aliased is None:
        return Named(resolve(name, code=code))
    return Named(resolve(aliased[2], code=code), aliased[1])


def _name_of(source: Source) -> str:
    match source:
        case Gguf() | Checkpoint():
            return source.name
        case VllmServe():
            return source.model
        case ScriptedSource():
            return "scripted"
        case Endpoint():
            return source.model or _place(Address.of(source.base_url))


def _place(address: Address) -> str:
    """Where an endpoint is, for one that has not said what it serves: it may not be up yet."""
    return urlsplit(address.url).netloc if address.socket is None else Path(address.socket).stem
