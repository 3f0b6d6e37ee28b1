"""Writes a store as Ollama keeps one: manifests by name, and the blobs that they name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from tests.support.gguf_writer import gguf_bytes


def write_model(
    store: Path,
    name: str = "registry.ollama.ai/library/tiny/latest",
    params: Mapping[str, object] | None = None,
    gguf: bytes | None = None,
) -> Path:
    """A model in the store; where its GGUF blob lies."""
    blob, model = _layer(store, "model", gguf_bytes() if gguf is None else gguf)
    layers = [model, _layer(store, "template", b"{{ .Prompt }}")[1]]
    if params is not None:
        layers.append(_layer(store, "params", json.dumps(params).encode())[1])
    write_manifest(store, name, {"schemaVersion": 2, "layers": layers})
    return blob


def write_manifest(store: Path, name: str, told: object) -> Path:
    manifest = store / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps(told))
    return manifest


def _layer(store: Path, kind: str, content: bytes) -> tuple[Path, dict[str, object]]:
    digest = sha256(content).hexdigest()
    blob = store / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    media = f"application/vnd.ollama.image.{kind}"
    return blob, {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}
