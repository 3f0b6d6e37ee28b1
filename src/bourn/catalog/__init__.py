"""From a model's name to something that can be loaded, and what is known of it before it is."""

from bourn.catalog.names import resolve
from bourn.catalog.sources import (
    Checkpoint,
    Endpoint,
    Gguf,
    ScriptedSource,
    Source,
    VllmServe,
)

__all__ = [
    "Checkpoint",
    "Endpoint",
    "Gguf",
    "ScriptedSource",
    "Source",
    "VllmServe",
    "resolve",
]
