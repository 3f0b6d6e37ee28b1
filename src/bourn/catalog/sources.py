"""What a model's name can turn out to be: a small closed set of values.

They say where a model is, not how it is loaded: nothing here knows an engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bourn.catalog.gguf import GgufFacts

EndpointKind = Literal["openai", "ollama"]


@dataclass(frozen=True, slots=True)
class Gguf:
    """A GGUF file, for llama.cpp. A split model is its first part. `size`: bytes of all parts."""

    path: Path
    facts: GgufFacts
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder as Hugging Face's `save_pretrained` writes it, for transformers."""

    folder: Path
    name: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that speaks OpenAI's wire.

    base_url: up to and including `/v1`, or `unix:/path.sock`; it may hold a password, so that no
    repr shows it. model: None lets the server say. kind: the dialect it speaks, where it is known.
    """

    base_url: str = field(repr=False)
    model: str | None = None
    kind: EndpointKind | None = None


@dataclass(frozen=True, slots=True)
class VllmServe:
    """A model that an own `vllm serve` is to be started for. `command`: where vllm is."""

    model: str
    command: Path


@dataclass(frozen=True, slots=True)
class ScriptedSource:
    """The engine that answers by a script."""

    spec: str


Source = Gguf | Checkpoint | Endpoint | VllmServe | ScriptedSource
