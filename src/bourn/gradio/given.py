"""What Gradio gives to a chat's function, as bourn's own values: messages, and options."""

from __future__ import annotations

import mimetypes
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bourn.errors import InvalidRequest
from bourn.types import ImagePart, Message, TextPart

_WHOLE = frozenset({"max_new_tokens", "min_new_tokens", "seed", "top_k"})


def options_of(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """The options that the additional inputs are; whole numbers where sliders give none."""
    if len(values) > len(names):
        raise InvalidRequest(
            f"there are {len(values)} additional inputs, and {len(names)} have a name",
            hint="say which options they are: bourn.gradio.chat(model, inputs=[…])",
        )
    told = {name: value for name, value in zip(names, values, strict=False) if value not in _EMPTY}
    whole = {name: int(value) for name, value in told.items() if name in _WHOLE}
    return told | whole


_EMPTY: tuple[Any, ...] = (None, "")


def titles_of(history: Sequence[Any]) -> frozenset[str]:
    """Of what stands beside the conversation."""
    return frozenset(map(_title, map(_fields, history)))


def messages_of(history: Sequence[Any], *, images: bool) -> list[Message]:
    """The conversation alone, without reasoning and errors."""
    said = [each for each in map(_fields, history) if not _title(each)]
    return [_earlier(each["role"], each["content"], images=images) for each in said]


def message_of(role: str, said: Any, *, images: bool) -> Message:
    """A message from what Gradio has for its content: a text, a text with files, or parts.

    Raises:
        InvalidRequest: there is a file that this model cannot see.
    """
    texts, files = _parts(said)
    text = "\n\n".join(texts)
    if not files:
        return Message(role, text)
    if not images:
        raise InvalidRequest("this model reads text only", hint="ask again without the file")
    return Message(role, (*map(_image, files), TextPart(text)) if text else (*map(_image, files),))


def _earlier(role: str, said: Any, *, images: bool) -> Message:
    try:
        return message_of(role, said, images=images)
    except InvalidRequest:  # which was told then, and must not be told of every later question
        return Message(role, "\n\n".join(_parts(said)[0]))


def _parts(said: Any) -> tuple[list[str], list[Path]]:
    """Its texts and its files. A text is never taken for a path."""
    if isinstance(said, Mapping) and "files" in said:
        files = [{"path": each} if isinstance(each, str) else each for each in said["files"]]
        said = [*files, said.get("text")]
    parts = list(said) if isinstance(said, list | tuple) else [said]
    told: list[Any] = [{"text": each} if isinstance(each, str) else each for each in parts]
    known = [each for each in told if isinstance(each, Mapping)]
    texts = [each["text"] for each in known if each.get("text")]
    paths = [each.get("file", each).get("path") for each in known]
    return texts, [Path(path) for path in paths if path]


def _image(path: Path) -> ImagePart:
    kind, _ = mimetypes.guess_type(path.name)
    if kind is None or not kind.startswith("image/"):
        raise InvalidRequest(f"{path.name} is no image", hint="give texts and images only")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path.name} cannot be read", hint="upload it again") from error
    return ImagePart(f"data:{kind};base64,{b64encode(data).decode()}")


def _fields(message: Any) -> Mapping[str, Any]:
    return message if isinstance(message, Mapping) else vars(message)


def _title(message: Mapping[str, Any]) -> str:
    """Of what stands beside the conversation: reasoning, an error; "" is a part of it."""
    return (message.get("metadata") or {}).get("title") or ""
