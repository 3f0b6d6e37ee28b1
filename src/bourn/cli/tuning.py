"""The settings of a talk: which may change between two questions, which are kept with it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from bourn.engines.base import ModelInfo
from bourn.errors import InvalidRequest, UnsupportedField
from bourn.settings import Settings, flag, given, read
from bourn.types import DEFAULT_MAX_NEW_TOKENS, DEFAULT_SAMPLING, Sampling

_DRAWING = tuple(each.name for each in fields(Sampling))

CHANGEABLE = (*_DRAWING, "max_new_tokens", "stop")
"""What each question says, and what may change between two."""

_UNSAID: Mapping[str, Any] = dict.fromkeys(CHANGEABLE) | {"stop": ()}
_ELSEWHERE = {"model": "say :model NAME", "system": "say :system TEXT"}

_OF_THE_MODEL = ("chat_template", "window", "dtype", "quantization")
_KEPT = (*_OF_THE_MODEL, "cpu_only", "device", *CHANGEABLE)


def changed(settings: Settings, name: str, text: str, info: ModelInfo) -> Settings:
    """With another value for a setting, from its text; an empty text takes it back.

    Raises:
        SettingsError: there is no such setting, or it cannot be that.
        UnsupportedField: the model's engine cannot honour it.
        InvalidRequest: it cannot be changed in a talk, or not so.
    """
    if name in _ELSEWHERE:
        raise InvalidRequest(f"`{name}` is not set so", hint=_ELSEWHERE[name])
    value: Any = _UNSAID[name] if name in _UNSAID and not text else read(name, text)
    if name not in CHANGEABLE:
        raise InvalidRequest(
            f"`{name}` cannot be changed while the model is loaded",
            hint=f"start again with {flag(name)}",
        )
    if name in _DRAWING and value is not None and name not in info.honours:
        raise UnsupportedField(name, info.engine)
    return replace(settings, **{name: value})


def said(settings: Settings, *, all: bool = False) -> dict[str, Any]:  # noqa: A002
    """The settings that may change; those only that were said, unless `all` is wanted."""
    told = {name: getattr(settings, name) for name in CHANGEABLE}
    return {name: value for name, value in told.items() if all or value != _UNSAID[name]}


def unsaid(settings: Settings, info: ModelInfo) -> dict[str, Any]:
    """What the others are taken for, as far as that is known."""
    lower = info.defaults.over(DEFAULT_SAMPLING) if info.resolves else info.defaults
    known = {name: value for name, value in lower.given().items() if name in info.honours}
    known["max_new_tokens"] = DEFAULT_MAX_NEW_TOKENS
    return {name: value for name, value in known.items() if name not in said(settings)}


def to_load(settings: Settings) -> Settings:
    """What a model is loaded with: all but what each question says."""
    return replace(settings, system=None, **_UNSAID)


# -- kept ------------------------------------------------------------------------------------------


def kept(settings: Settings) -> dict[str, object]:
    """What is kept with a conversation, as JSON has it."""
    told = {name: getattr(settings, name) for name in _KEPT}
    said = {
        name: value
        for name, value in told.items()
        if value not in (None, ()) and value is not False
    }
    return {"model": lasting(settings.model), **said}


def resumed(kept: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags, over what was kept; another model does not have the first one's template."""
    said = given(flags)
    if "model" in said:
        kept = {name: value for name, value in kept.items() if name not in _OF_THE_MODEL}
    return {**kept, **said}


def lasting(name: str) -> str:
    """A model's name that means the same from any folder, and holds no secret."""
    if "://" in name:
        told = urlsplit(name)
        host = told.netloc.rpartition("@")[2]
        return urlunsplit((told.scheme, host, told.path, "", told.fragment))
    path = Path(name).expanduser()
    is_path = path.suffix == ".gguf" or len(path.parts) > 1
    return str(path.absolute()) if is_path and path.exists() else name
