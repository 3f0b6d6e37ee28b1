"""Messages from what people and programs write: a text, or dicts as in OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bourn.errors import InvalidRequest
from bourn.types import ImagePart, Message, TextPart, ToolCall


def messages_of(asked: Any) -> tuple[Message, ...]:
    """Messages from what a person writes: a text, one message, or several; dicts as OpenAI's.

    Raises:
        InvalidRequest: a message has no role, or content of an unknown kind.
    """
    if isinstance(asked, str):
        asked = [Message("user", asked)]
    elif isinstance(asked, Message | Mapping):
        asked = [asked]
    return tuple(map(_message, asked))


def _message(value: Any) -> Message:
    if isinstance(value, Message):
        return value
    if not isinstance(value, Mapping) or not isinstance(value.get("role"), str):
        raise InvalidRequest(
            f"this is no message: {value!r:.80}", hint='write {"role": "user", "content": "…"}'
        )
    calls = value.get("tool_calls") or ()
    return Message(
        role=value["role"],
        content=_content(value.get("content")),
        name=value.get("name"),
        reasoning=value.get("reasoning_content") or value.get("reasoning") or "",
        tool_calls=tuple(
            ToolCall(call.get("id", ""), call["function"]["name"], call["function"]["arguments"])
            for call in calls
        ),
        tool_call_id=value.get("tool_call_id"),
    )


def _content(value: Any) -> str | tuple[TextPart | ImagePart, ...]:
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list | tuple):
        raise InvalidRequest(f"content is {type(value).__name__}", hint="give a text or parts")
    return tuple(map(_part, value))


def _part(value: Any) -> TextPart | ImagePart:
    match value:
        case TextPart() | ImagePart():
            return value
        case str():
            return TextPart(value)
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "image_url", "image_url": str(url)}:
            return ImagePart(url)
        case {"type": "image_url", "image_url": {"url": str(url), "detail": str(detail)}}:
            return ImagePart(url, detail)
        case {"type": "image_url", "image_url": {"url": str(url)} as image} if (
            image.get("detail") is None
        ):
            return ImagePart(url)
    raise InvalidRequest(
        f"content has a part of an unknown kind: {value!r:.80}",
        hint='parts are {"type": "text"} and {"type": "image_url"}',
    )
