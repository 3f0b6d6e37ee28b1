"""The models that are on this machine already, wherever a program has put them.

Reads headers only. A broken model is listed with its fault; it never spoils the list.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path
from typing import Literal

from bourn.catalog import checkpoint, gguf, ollama
from bourn.catalog.choice import models, quantisation
from bourn.catalog.hub import snapshots
from bourn.catalog.places import Places, bundled, files
from bourn.errors import BournError

Where = Literal["package", "hub", "ollama", "lmstudio"]


@dataclass(frozen=True, slots=True)
class Found:
    """A model on this machine.

    name: what `-m` takes for it. size: bytes, all parts together. window: tokens.
    chat_template: whether it carries one. fault: why it cannot be used; None where it can.
    """

    name: str
    where: Where
    path: Path
    size: int = 0
    quantisation: str | None = None
    window: int | None = None
    chat_template: bool = False
    kind: Literal["gguf", "checkpoint"] = "gguf"
    fault: str | None = None


def found(environ: Mapping[str, str] = os.environ) -> tuple[Found, ...]:
    """Every model on this machine: in installed packages, the hub's cache, Ollama, LM Studio.

    What is in two places is told once.
    """
    places = Places.of(environ)
    everywhere = chain(
        in_packages(),
        in_hub(places.hub),
        in_ollama(places.ollama),
        *map(in_lmstudio, places.lmstudio),
    )
    seen: dict[Path, Found] = {}
    for model in everywhere:
        seen.setdefault(model.path.resolve(), model)
    return tuple(seen.values())


def in_packages() -> Iterator[Found]:
    """Models that installed packages bring: the default one, and others by their paths."""
    default = bundled()
    if default is not None:
        yield _gguf("smollm2", "package", [default])
    for file in _packaged():
        if file != default:
            yield _gguf(str(file), "package", [file])


def _packaged() -> Iterator[Path]:
    """The GGUF files in packages' own lists of files, read as text since that is quick."""
    for package in distributions():
        listed = package.read_text("RECORD") or ""
        if ".gguf," in listed:
            names = (line.partition(",")[0] for line in listed.splitlines())
            for parts in models(names):
                yield Path(str(package.locate_file(parts[0])))


def in_hub(cache: Path) -> Iterator[Found]:
    """Models in the cache of Hugging Face's hub."""
    for snapshot in snapshots(cache):
        revision = f"@{snapshot.revision}" if snapshot.revision else ""
        listed = _below(snapshot.folder)
        for name, paths in _named(snapshot.repo, listed, snapshot.folder):
            yield _gguf(name + revision, "hub", paths)
        if not listed and checkpoint.is_checkpoint(snapshot.folder):
            yield _checkpoint(snapshot.repo + revision, snapshot.folder)


def in_ollama(store: Path) -> Iterator[Found]:
    """Models in Ollama's store."""
    for name, manifest in ollama.names(store):
        try:
            path = ollama.read(manifest, store).path
        except BournError as fault:
            yield Found(f"ollama:{name}", "ollama", manifest, fault=str(fault))
        else:
            yield _gguf(f"ollama:{name}", "ollama", [path])


def in_lmstudio(folder: Path) -> Iterator[Found]:
    """Models in a folder of LM Studio's: publisher/model/files."""
    repos: dict[str, list[str]] = {}
    for name in _below(folder):
        publisher, _, rest = name.partition("/")
        model, _, file = rest.partition("/")
        if file:
            repos.setdefault(f"{publisher}/{model}", []).append(file)
    for repo, listed in repos.items():
        for name, paths in _named(repo, listed, folder / repo):
            yield _gguf(f"lmstudio:{name}", "lmstudio", paths)


def _below(folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in files(folder)]


def _named(repo: str, listed: list[str], folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """Each model of a repository: a sure name of it, and its files."""
    each = models(listed)
    told = [quantisation(parts[0]) for parts in each]
    for parts, quant in zip(each, told, strict=True):
        sure = quant if quant and told.count(quant) == 1 else parts[0]
        yield f"{repo}:{sure}", [folder / part for part in parts]


def _gguf(name: str, where: Where, paths: list[Path]) -> Found:
    first = paths[0]
    try:
        size = sum(path.stat().st_size for path in paths)
        facts = gguf.read(first)
    except BournError as fault:
        return Found(name, where, first, fault=str(fault))
    except OSError as error:
        return Found(name, where, first, fault=f"{error.filename} cannot be read: {error.strerror}")
    return Found(
        name,
        where,
        first,
        size,
        quantisation=facts.quantisation or quantisation(first.name),
        window=facts.window,
        chat_template=facts.chat_template is not None,
        fault=facts.fault,
    )


def _checkpoint(name: str, folder: Path) -> Found:
    try:
        facts, size = checkpoint.read(folder), checkpoint.size(folder)
    except BournError as fault:
        return Found(name, "hub", folder, kind="checkpoint", fault=str(fault))
    return Found(
        name,
        "hub",
        folder,
        size,
        quantisation=facts.quantisation,
        window=facts.window,
        chat_template=facts.chat_template,
        kind="checkpoint",
    )
