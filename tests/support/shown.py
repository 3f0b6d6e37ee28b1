"""What a chat box shows, as somebody reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import unescape
from typing import Any


def as_typed(text: str) -> str:
    """What the page's script makes of a question again."""
    return unescape(re.sub(r"^&#32;$", "", text, flags=re.MULTILINE))


def texts(messages: Iterable[Mapping[str, Any]] | None) -> list[str]:
    """What the visitor and the model have written."""
    found: list[str] = []
    for message in messages or ():
        parts = [part["text"] for part in message["content"] if part["type"] == "text"]
        found += map(as_typed, parts) if message["role"] == "user" else parts
    return found


def told(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """What bourn says of it, as HTML."""
    parts = [part for message in messages for part in message["content"]]
    return [part["value"] for part in parts if part["type"] == "component"]
