"""Errors as JSON objects and back, by their code: an error is raised elsewhere as what it was.

What is read makes errors of `bourn.errors` and nothing else. For what people and clients are shown
of an error see `bourn.errors.describe`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bourn import errors
from bourn.errors import BournError, EngineError

_KINDS = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, BournError)
}


def error_object(error: BaseException, *, hint: str = "") -> dict[str, Any]:
    """What an error says, what to do, and the numbers it carries.

    hint: what to do about one that is not of bourn's tree; it comes back as an `EngineError`.
    """
    if not isinstance(error, BournError):
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        error = EngineError(said, hint=hint)
    code = next(c for base in type(error).__mro__ for c, kind in _KINDS.items() if kind is base)
    return {"code": code, **{n: v for n, v in vars(error).items() if _is_sayable(v)}}


def error_of(told: Mapping[str, Any]) -> BournError:
    """The error again, of the class that it was."""
    kind = _KINDS.get(told["code"], EngineError)
    error = kind.__new__(kind)
    BournError.__init__(error, told["message"], hint=told["hint"])
    for name in told.keys() - {"code", "message", "hint"}:
        setattr(error, name, tuple(told[name]) if isinstance(told[name], list) else told[name])
    return error


def _is_sayable(value: object) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(line, str) for line in value)
    return value is None or isinstance(value, str | int | float)
