"""bourn streams text from any language model, and stops when it should.

    import bourn

    model = bourn.load("smollm2")
    with model.stream("Tell me a story", max_new_tokens=300) as stream:
        for text in stream:
            print(text, end="", flush=True)
    print(stream.finish_reason, stream.usage, stream.metrics.ttft)

The same names without waiting are in `bourn.aio`. Everything is imported when it is first used, so
that `import bourn` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bourn import aio, errors, gradio
    from bourn.chat import Chat
    from bourn.engines.hf.streamer import TextIteratorStreamer
    from bourn.errors import BournError
    from bourn.history import chat_stream
    from bourn.sync import Model, Stream, hf, load
    from bourn.types import Message, Request, Sampling

__version__ = "0.1.0"

__all__ = [
    "BournError",
    "Chat",
    "Message",
    "Model",
    "Request",
    "Sampling",
    "Stream",
    "TextIteratorStreamer",
    "__version__",
    "aio",
    "chat_stream",
    "errors",
    "gradio",
    "hf",
    "load",
]

_HOMES = {
    "BournError": "bourn.errors",
    "Chat": "bourn.chat",
    "Message": "bourn.types",
    "Model": "bourn.sync",
    "Request": "bourn.types",
    "Sampling": "bourn.types",
    "Stream": "bourn.sync",
    "TextIteratorStreamer": "bourn.engines.hf.streamer",
    "chat_stream": "bourn.history",
    "hf": "bourn.sync",
    "load": "bourn.sync",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in __all__:
        value = import_module(f"bourn.{name}")
    else:
        raise AttributeError(f"module 'bourn' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
