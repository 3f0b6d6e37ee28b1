"""The fields of a JSON object, each asked for by its type. It knows no particular field."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from bourn.errors import InvalidRequest

T = TypeVar("T")

_SHOWN = 80  # characters of what was sent
_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


class Fields:
    """Fields by type. Each raises `InvalidRequest`, naming the field, where the type is wrong.

    where: what stands before their names when one is told.
    """

    def __init__(self, fields: Mapping[str, Any], where: str = "") -> None:
        self.fields = fields
        self._where = where

    def whole(self, name: str) -> int | None:
        whole = whole_of(self.fields.get(name))
        return self._of(name, int, "a whole number") if whole is None else whole

    def number(self, name: str) -> float | None:
        value = self.fields.get(name)
        if type(value) is int:  # and no bool, which is an int to Python
            return value
        return self._of(name, float, "a number")

    def text(self, name: str) -> str | None:
        return self._of(name, str, "a text")

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._of(name, bool, "true or false")
        return default if value is None else value

    def object(self, name: str) -> Mapping[str, Any] | None:
        return self._of(name, dict, "an object")

    def listed(self, name: str) -> Sequence[Any]:
        return self._of(name, list, "a list") or ()

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Raises `InvalidRequest` for the first field that is not known, with one that is near."""
        known = set(known)
        for name in self.fields:
            if name not in known:
                name = name[:_SHOWN]  # noqa: PLW2901 (it may be as long as a body)
                near = get_close_matches(name, known, 1)
                hint = f"did you mean `{self._where}{near[0]}`?" if near else "leave it out"
                told = self._where + name
                raise InvalidRequest(f"there is no field `{told}`", hint=hint, field=told)

    def _of(self, name: str, kind: type[T], words: str) -> T | None:
        value = self.fields.get(name)
        if value is None or type(value) is kind:
            return value
        raise ill(self._where + name, value, words)


def whole_of(value: object) -> int | None:
    """A whole number, as JSON means it: 12.0 is one. None for what is none, such as true."""
    if type(value) is float and value.is_integer():
        return int(value)
    return value if type(value) is int else None


def ill(name: str, value: object, words: str) -> InvalidRequest:
    """The error for a field whose value is not what its `words` say."""
    told = ""
    for part in _JSON.iterencode(value):
        told += part
        if len(told) > _SHOWN:
            break  # it may be as long as a body
    return InvalidRequest(f"`{name}` is {told[:_SHOWN]}", hint=f"give {words}", field=name)
