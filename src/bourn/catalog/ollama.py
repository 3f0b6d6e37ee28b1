"""Ollama's models: its store on this disk, and where its server is.

In the store a name is a manifest, which names the blobs that the model is made of.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bourn.catalog.gguf import sampling_of
from bourn.catalog.places import files
from bourn.errors import LoadFailed, ModelNotFound
from bourn.types import Sampling

_REGISTRY, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_MEDIA = "application/vnd.ollama.image."
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_WORD = re.compile(r"[A-Za-z0-9][\w.-]*")
_PARAMS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repeat_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
}


@dataclass(frozen=True, slots=True)
class Stored:
    """A model in the store. `sampling`: from its parameters. Its Go template is of no use here."""

    path: Path
    sampling: Sampling = field(default_factory=Sampling)


def names(store: Path) -> Iterator[tuple[str, Path]]:
    """The name and the manifest of every model in the store."""
    root = store / "manifests"
    for manifest in files(root, "*/*/*/*"):
        yield _short(*manifest.relative_to(root).parts), manifest


def manifest_of(name: str, store: Path) -> Path:
    """Where the manifest of `[host/][namespace/]model[:tag]` would be.

    Raises:
        ModelNotFound: it is no such name.
    """
    *before, last = name.split("/")
    model, _, tag = last.partition(":")
    words = (*(_REGISTRY, _NAMESPACE)[: max(0, 2 - len(before))], *before, model, tag or _TAG)
    if len(words) != 4 or not all(map(_WORD.fullmatch, words)):
        raise ModelNotFound(f"`{name}` is no name of an Ollama model", hint="as in ollama:qwen3:4b")
    return store.joinpath("manifests", *words)


def read(manifest: Path, store: Path) -> Stored:
    """What a manifest says.

    Raises:
        LoadFailed: it is damaged, or its model has no GGUF file here.
    """
    layers = _layers(manifest)
    if "model" not in layers:
        raise LoadFailed(f"{manifest} has no GGUF file", hint="ask Ollama's own server for it")
    params = _params(_blob(layers["params"], store)) if "params" in layers else {}
    said = ((ours, params[theirs]) for theirs, ours in _PARAMS.items() if theirs in params)
    return Stored(_blob(layers["model"], store), sampling_of(said))


def _layers(manifest: Path) -> dict[str, str]:
    """Digests by kind of layer."""
    try:
        told = json.loads(manifest.read_bytes())
        layers = {layer["mediaType"]: str(layer["digest"]) for layer in told["layers"] or ()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise LoadFailed(f"{manifest} is damaged", hint="pull it with Ollama again") from None
    return {media.removeprefix(_MEDIA): digest for media, digest in layers.items()}


def _blob(digest: str, store: Path) -> Path:
    match = _DIGEST.fullmatch(digest)
    if not match:
        raise LoadFailed(f"`{digest:.80}` is no digest", hint="pull it with Ollama again")
    return store / "blobs" / f"sha256-{match[1]}"


def _params(blob: Path) -> Mapping[str, object]:
    try:
        told = json.loads(blob.read_bytes())
    except (OSError, ValueError):  # recommendations only: the model is usable without
        return {}
    return told if isinstance(told, dict) else {}


def _short(registry: str, namespace: str, model: str, tag: str) -> str:
    """A name as Ollama shows it."""
    if registry != _REGISTRY:
        return f"{registry}/{namespace}/{model}:{tag}"
    return f"{model}:{tag}" if namespace == _NAMESPACE else f"{namespace}/{model}:{tag}"


# -- the server ------------------------------------------------------------------------------------

PORT = 11434


@dataclass(frozen=True, slots=True)
class Server:
    """Where Ollama's server is to be found. `here`: on this machine."""

    scheme: str
    host: str
    port: int

    @property
    def here(self) -> bool:
        return self.host in ("127.0.0.1", "localhost", "::1")

    @property
    def base_url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/v1"

    def answers(self) -> bool:
        """Whether something listens there; asked only of this machine, where that is quick."""
        try:
            with socket.create_connection((self.host, self.port), timeout=0.5):
                return True
        except OSError:
            return False


def server(environ: Mapping[str, str]) -> Server:
    """The server that OLLAMA_HOST says, which may be a host, a port, both, or a URL.

    Raises:
        ModelNotFound: OLLAMA_HOST is none of these.
    """
    said = environ.get("OLLAMA_HOST", "").strip().strip("\"'")
    scheme, split, rest = said.rpartition("://")
    try:
        url = urlsplit(f"//{rest}")
        port = url.port
    except ValueError:
        raise ModelNotFound(
            f"OLLAMA_HOST is `{said}`", hint="give a host and a port, as in 127.0.0.1:11434"
        ) from None
    usual = {"http": 80, "https": 443}.get(scheme, PORT) if split else PORT
    host = url.hostname or "127.0.0.1"
    # what a server listens on is not what a client can call
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return Server(scheme or "http", host, port or usual)
