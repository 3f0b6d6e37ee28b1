"""Messages from what people and programs write: a text, or dicts as in OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bourn.errors import InvalidRequest
from bourn.types import ImagePart, Message, TextPart, ToolCall

_FIELDS = frozenset(
    {
        "role",
        "content",
        "name",
        "reasoning_content",
        "reasoning",
        "tool_calls",
        "tool_call_id",
        # beside an answer, and of no consequence when it is sent back
        "annotations",
        "parsed",
    }
)


def messages_of(asked: Any) -> tuple[Message, ...]:
    """Messages from what a person writes: a text, one message, or several; dicts as OpenAI's.

    Raises:
        InvalidRequest: a message has no role, content of an unknown kind, or says something that no
            model would be told. Its `field` is named as in the message.
    """
    if isinstance(asked, str):
        asked = [Message("user", asked)]
    elif isinstance(asked, Message | Mapping):
        asked = [asked]
    return tuple(map(_message, asked))


def _message(value: Any) -> Message:
    if isinstance(value, Message):
        return value
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"this is no message: {value!r:.80}", hint=_A_MESSAGE)
    if not isinstance(value.get("role"), str):
        raise InvalidRequest("this is no message: it has no role", hint=_A_MESSAGE, field="role")
    _refuse_unknown(value)
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


_A_MESSAGE = 'write {"role": "user", "content": "…"}'


def _refuse_unknown(message: Mapping[Any, Any]) -> None:
    """Whoever sends an answer back sends all that it had, most of it empty."""
    for name, said in message.items():
        if said and name not in _FIELDS:
            raise InvalidRequest(
                f"a message has no field `{name!s:.80}`",
                hint=_INSTEAD.get(name, "leave it out"),
                field=f"{name!s:.80}",
            )


_INSTEAD = {
    "function_call": "write it as one of `tool_calls`",
    "refusal": "write it as the content",
}


def _content(value: Any) -> str | tuple[TextPart | ImagePart, ...]:
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list | tuple):
        what = f"content is {type(value).__name__}"
        raise InvalidRequest(what, hint="give a text or parts", field="content")
    return tuple(_part(part, f"content[{place}]") for place, part in enumerate(value))


def _part(value: Any, where: str) -> TextPart | ImagePart:
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
        case {"type": "text" | "image_url" as kind}:
            what = f"{where} is a part of type `{kind}` without its {_WITHIN[kind]}"
        case _:
            what = f"{where} is a part of an unknown kind"
    hint = 'parts are {"type": "text", "text": "…"} and {"type": "image_url", "image_url": …}'
    raise InvalidRequest(what, hint=hint, field=where)


_WITHIN = {"text": "text", "image_url": "URL"}
