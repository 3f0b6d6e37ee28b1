"""What `import bourn` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bourn

NAMES = [
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


def test_the_public_names() -> None:
    assert sorted(bourn.__all__) == NAMES == dir(bourn)


@pytest.mark.parametrize("name", NAMES)
def test_each_can_be_imported(name: str) -> None:
    assert getattr(bourn, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        bourn.nothing_like_it  # noqa: B018


def test_import_bourn_loads_nothing_heavy() -> None:
    heavy = (
        "torch transformers xllamacpp gradio fastapi starlette httpx2 asyncio typer rich pydantic"
    )
    code = f"import bourn, sys; print(*(set({heavy.split()}) & set(sys.modules)))"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=15
    )
    assert told.stdout.split() == []
