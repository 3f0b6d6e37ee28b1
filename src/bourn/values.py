"""Values as JSON and back, by their annotations: a field that a type gains travels by itself.

What a dataclass holds by default is left out. Nothing is looked up by a name that came from
outside, so that reading makes values and runs nothing. It knows no particular type, and no wire.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from operator import attrgetter
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

DEEPEST = 64
"""Lists and objects within each other, in what a caller gives as plain JSON."""


class Unsayable(TypeError):
    """It cannot be said in JSON, or would come back as something else."""


class Codec(NamedTuple):
    """How values of one annotation are written and read.

    holds: whether it can write this. fits: whether it can read this, as far as a union must know.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    holds: Callable[[Any], bool]
    fits: Callable[[Any], bool]


@cache
def codec(hint: Any) -> Codec:
    """The one for an annotation.

    It may be a dataclass, an enum, bytes, a plain type of JSON, Any, and of these a union, a tuple
    of any length, a frozenset, or a mapping.

    Raises:
        TypeError: it is something else.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _union(tuple(map(codec, arguments)))
    if origin is tuple and arguments[1:] == (...,):
        return _many(tuple, codec(arguments[0]))
    if origin is frozenset:
        return _many(frozenset, codec(arguments[0]))
    if origin is Mapping:
        return _mapping(arguments[0], codec(arguments[1]))
    if is_dataclass(hint) and isinstance(hint, type):
        record = _Record(hint)
        return Codec(record.write, record.read, _is(hint), record.fits)
    return _plain_type(hint)


def plain(value: Any, depth: int = 0) -> Any:
    """Plain JSON that a caller gives: mappings as objects, tuples as lists.

    Raises:
        Unsayable: it holds something else, a key that is no str, or too much within each other.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    if depth == DEEPEST:
        raise Unsayable(f"more than {DEEPEST} lists and objects within each other")
    if isinstance(value, Mapping):
        return {_key(name, str): plain(held, depth + 1) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [plain(held, depth + 1) for held in value]
    raise Unsayable(f"a value of type {type(value).__name__}")


def _key(name: Any, kind: type) -> Any:
    if not isinstance(name, kind):
        raise Unsayable(f"a key that is no {kind.__name__}: {name!r:.40}")
    return name


# -- one kind each ---------------------------------------------------------------------------------


def _plain_type(hint: Any) -> Codec:
    if hint is Any:
        return Codec(plain, _same, _always, _always)
    if hint is bytes:
        return Codec(_latin, _bytes, _is(bytes), _is(str))
    if hint is float:
        return Codec(_same, _same, _is(float, int), _is(float, int))
    if hint in (str, int, bool, type(None)):
        return Codec(_same, _same, _is(hint), _is(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Codec(lambda value: value.value, hint, _is(hint), _is(str, int))
    raise TypeError(f"there is no codec for {hint!r}")


def _same(value: Any) -> Any:
    return value


def _always(_: Any) -> bool:
    return True


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


def _latin(value: bytes) -> str:
    """A character for each byte: shorter than numbers, and quick."""
    return value.decode("latin-1")


def _bytes(told: str) -> bytes:
    return told.encode("latin-1")


def _union(members: tuple[Codec, ...]) -> Codec:
    def write(value: Any) -> Any:
        for member in members:
            if member.holds(value):
                return member.write(value)
        raise Unsayable(f"a value of type {type(value).__name__}")

    def read(told: Any) -> Any:
        for member in members:
            if member.fits(told):
                return member.read(told)
        raise ValueError(f"{told!r:.40} is none of what it may be")

    return Codec(
        write,
        read,
        lambda value: any(member.holds(value) for member in members),
        lambda told: any(member.fits(told) for member in members),
    )


def _many(kind: type[tuple[Any, ...] | frozenset[Any]], each: Codec) -> Codec:
    ordered: Callable[[Any], Any] = sorted if kind is frozenset else _same
    return Codec(
        lambda value: [each.write(held) for held in ordered(value)],
        lambda told: kind([each.read(held) for held in told]),
        _is(kind, list),
        _is(list),
    )


def _mapping(key: type, each: Codec) -> Codec:
    """An object, whose keys JSON makes texts of: numbers are numbers again when read."""
    return Codec(
        lambda value: {str(_key(name, key)): each.write(held) for name, held in value.items()},
        lambda told: {key(name): each.read(held) for name, held in told.items()},
        _is(Mapping),
        _is(dict),
    )


# -- dataclasses -----------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A field: its name, how it is written, and what is left out. MISSING: it is always there."""

    name: str
    write: Callable[[Any], Any]
    default: Any


class _Record:
    """The codec of a dataclass. It looks at its fields when first used: one may hold its like."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind

    @cached_property
    def _codecs(self) -> Mapping[str, Codec]:
        # not its own names: a field may be called as a type is
        hints = get_type_hints(self._kind, vars(sys.modules[self._kind.__module__]), {})
        return {field.name: codec(hints[field.name]) for field in fields(self._kind)}

    @cached_property
    def _parts(self) -> tuple[_Part, ...]:
        codecs = self._codecs
        return tuple(_Part(f.name, codecs[f.name].write, _default(f)) for f in fields(self._kind))

    @cached_property
    def _values(self) -> Callable[[Any], tuple[Any, ...]]:
        names = [part.name for part in self._parts]
        first = attrgetter(*names)  # of one name alone it gives no tuple
        return first if len(names) > 1 else lambda value: (first(value),)

    @cached_property
    def _needed(self) -> frozenset[str]:
        return frozenset(part.name for part in self._parts if part.default is MISSING)

    def write(self, value: Any) -> dict[str, Any]:
        told = {}
        for (name, write, default), said in zip(self._parts, self._values(value), strict=True):
            if said is default or said == default:
                continue
            try:
                told[name] = write(said)
            except Unsayable as error:
                raise Unsayable(f"`{name}` holds {error}") from None
        return told

    def read(self, told: Mapping[str, Any]) -> Any:
        codecs = self._codecs
        return self._kind(**{name: codecs[name].read(said) for name, said in told.items()})

    def fits(self, told: Any) -> bool:
        return isinstance(told, dict) and self._needed <= told.keys()


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
