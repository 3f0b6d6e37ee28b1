"""What llama.cpp makes of a JSON schema: a grammar that the answer keeps to, or something else.

It leaves out what it does not know, without a word; and there are schemas over which it computes
for minutes, fills the memory, or dies. Here they are told from the others, before it sees them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from bourn.engines import patterns
from bourn.engines.keywords import HEEDED, Schema, passed_over, way_of
from bourn.errors import InvalidRequest

MOST_CHOICES = 500
"""Entries of all `enum`, and alternatives, together: it tries them all for each token."""
LONGEST_LIST = 1000
LEAST_TEXT = 2000
"""Characters that a text may have to have."""
LONGEST_TEXT = 100_000
MOST_OPTIONAL = 200
"""Properties of one object that may be missing: it writes a rule for each two of them."""
MOST_SCHEMAS = 2000
MOST_VALUES = 20_000
DEEPEST = 128
"""Objects and lists of JSON in one another; two of them to an object in an object."""
LARGEST_BOUND = 2**63 - 2
LARGEST_ALONE = 10**15
"""A bound of an integer without another: for larger ones its rules are out of order."""

_TYPES = {"string", "number", "integer", "boolean", "null", "object", "array"}


def check_format(wanted: Schema) -> None:
    """Refuse a `response_format` to which llama.cpp would not keep, or over which it would choke.

    Raises:
        InvalidRequest: with the place in the schema, and what to write instead.
    """
    if wanted.get("type") == "json_schema":
        _Walk(wanted["json_schema"]["schema"], "response_format", strict=True).through()


def check_tools(tools: Sequence[Schema]) -> None:
    """Refuse parameters over which it would choke. Those it keeps to loosely are taken.

    Raises:
        InvalidRequest: with the place in the schema.
    """
    for tool in tools:
        function = tool.get("function")
        schema = function.get("parameters") if isinstance(function, Mapping) else None
        if isinstance(schema, Mapping):
            _Walk(schema, "tools", strict=False).through()


@dataclass(frozen=True, slots=True)
class _Place:
    """One schema in the whole. within: the `$ref` that led here without a step into a value."""

    schema: Any
    path: str = "#"
    within: str = ""
    inlined: int = 0

    def inner(self, schema: Any, *names: str | int) -> _Place:
        return _Place(schema, self._path(names))

    def beside(self, schema: Any, *names: str | int) -> _Place:
        return replace(self, schema=schema, path=self._path(names))

    def _path(self, names: Sequence[str | int]) -> str:
        return "/".join((self.path, *map(str, names)))


@dataclass(slots=True)
class _Walk:
    """Through a schema, each `$ref` once. strict: refuse, too, what would be left out."""

    root: Schema
    about: str
    strict: bool
    _next: list[_Place] = field(default_factory=list)
    _leads: dict[str, set[str]] = field(default_factory=dict)
    _schemas: int = 0
    _choices: int = 0

    def through(self) -> None:
        self._check_size()
        self._next = [_Place(self.root)]
        while self._next:
            self._schemas += 1
            if self._schemas > MOST_SCHEMAS:
                raise self._refusal("#", f"has more than {MOST_SCHEMAS} schemas in it")
            self._visit(self._next.pop())
        try:
            TopologicalSorter(self._leads).prepare()
        except CycleError as error:
            raise self._refusal(error.args[1][0], "refers to nothing but itself") from None

    def _refusal(self, path: str, words: str, hint: str = "") -> InvalidRequest:
        told = path if len(path) <= 80 else f"{path[:40]}…{path[-39:]}"
        return InvalidRequest(
            f"`{self.about}`: the schema at {told} {words[:200]}",
            hint=hint or "give a simpler schema",
            field=self.about,
        )

    def _check_size(self) -> None:
        """Of all that is in it, before anything goes through it that could be too deep."""
        level: list[Any] = [self.root]
        values = 0
        for _ in range(DEEPEST):
            values += len(level)
            if values > MOST_VALUES:
                raise self._refusal("#", f"has more than {MOST_VALUES} values in it")
            level = [inner for value in level for inner in _inside(value)]
        if level:
            raise self._refusal("#", f"is more than {DEEPEST} levels deep")

    def _visit(self, at: _Place) -> None:
        if not isinstance(at.schema, Mapping):
            if self.strict:
                raise self._refusal(at.path, "is no object", "write {} for anything")
            return
        way = way_of(at.schema)
        self._check_bounds(at)
        if self.strict:
            self._check_types(at)
            self._check_heeded(at)
        if way in _STEPS:
            _STEPS[way](self, at)

    # -- what would be left out ----------------------------------------------------------------

    def _check_types(self, at: _Place) -> None:
        types = at.schema.get("type", "object")
        listed = types if isinstance(types, list) else [types]
        if not listed or any(not isinstance(name, str) or name not in _TYPES for name in listed):
            raise self._refusal(at.path, "has no known `type`", f"give {', '.join(sorted(_TYPES))}")
        if not isinstance(at.schema.get("format", ""), str):
            raise self._refusal(at.path, "has a `format` that is no text")

    def _check_heeded(self, at: _Place) -> None:
        if (name := passed_over(at.schema)) is not None:
            raise self._left_out(at, name)

    def _left_out(self, at: _Place, name: str) -> InvalidRequest:
        words = f"has `{name}`, which this engine would pass over there"
        return self._refusal(at.path, words, f"leave `{name}` out")

    # -- over what it would choke --------------------------------------------------------------

    def _check_bounds(self, at: _Place) -> None:
        for least, lowest, most, limit in (
            ("minLength", LEAST_TEXT, "maxLength", LONGEST_TEXT),
            ("minItems", LONGEST_LIST, "maxItems", LONGEST_LIST),
        ):
            low = self._bound(at, least, 0, lowest)
            high = self._bound(at, most, limit, limit)
            self._check_order(at, least, most, low, high)
        if at.schema.get("type") == "integer":
            self._check_integer(at)
        if isinstance(pattern := at.schema.get("pattern"), str):
            self._check_pattern(at, pattern)

    def _bound(self, at: _Place, name: str, otherwise: int, limit: int) -> int:
        bound: object = at.schema.get(name, otherwise)
        if type(bound) is not int or not 0 <= bound <= limit:
            hint = f"give a whole number from 0 to {limit}"
            raise self._refusal(at.path, f"has a bad `{name}`", hint)
        return bound

    def _check_order(self, at: _Place, least: str, most: str, low: float, high: float) -> None:
        if low > high:
            raise self._refusal(at.path, f"has `{least}` above `{most}`", "swap them")

    def _check_integer(self, at: _Place) -> None:
        bounds = {name: at.schema[name] for name in HEEDED["integer"] if name in at.schema}
        low = bounds.get("minimum", bounds.get("exclusiveMinimum"))
        high = bounds.get("maximum", bounds.get("exclusiveMaximum"))
        limit = LARGEST_ALONE if low is None or high is None else LARGEST_BOUND
        for name, bound in bounds.items():
            whole = type(bound) is int or (type(bound) is float and bound.is_integer())
            if not whole or abs(bound) >= limit:
                hint = f"give a whole number below {limit}"
                raise self._refusal(at.path, f"has a bad `{name}`", hint)
        for name, other in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if self.strict and name in bounds and other in bounds:
                raise self._left_out(at, name)
        if low is not None and high is not None:
            low, high = low + ("minimum" not in bounds), high - ("maximum" not in bounds)
            self._check_order(at, "minimum", "maximum", low, high)

    def _check_pattern(self, at: _Place, pattern: str) -> None:
        told = patterns.read(pattern)
        words = f"has the `pattern` {pattern[:60]}, which it cannot keep to"
        if told.heavy:
            raise self._refusal(at.path, f"has a heavy `pattern`: {told.heavy}")
        if told.unknown and self.strict:
            raise self._refusal(at.path, words, told.unknown)

    def _count(self, at: _Place, more: int) -> None:
        self._choices += more
        if self._choices > MOST_CHOICES:
            raise self._refusal(
                at.path,
                f"is beyond {MOST_CHOICES} choices, of all `enum` and alternatives together",
                f"leave at most {MOST_CHOICES}",
            )

    # -- one step further ----------------------------------------------------------------------

    def _reference(self, at: _Place) -> None:
        ref = at.schema["$ref"]
        target = self._target(at.path, ref)
        if target is None:
            return
        if at.within:
            self._leads.setdefault(at.within, set()).add(ref)
        if ref not in self._leads:
            self._leads[ref] = set()
            self._next.append(_Place(target, ref, within=ref))

    def _target(self, path: str, ref: Any) -> Any:
        """What a `$ref` leads to; None where there is nothing and that is no matter."""
        found: Any = self.root
        steps = ref.split("/") if isinstance(ref, str) else []
        for step in steps[1:]:
            found = _step(found, step)
        if len(steps) > 1 and not steps[0].strip("#") and isinstance(found, Mapping):
            return found
        if self.strict:
            words = f"has the `$ref` {str(ref)[:60]}, which leads to nothing in this schema"
            raise self._refusal(path, words, 'give "#/$defs/NAME", and NAME among the `$defs`')
        return None

    def _alternatives(self, at: _Place) -> None:
        name = way_of(at.schema)
        listed = at.schema[name] if isinstance(at.schema[name], list) else []
        if not listed and self.strict:
            raise self._refusal(at.path, f"has an empty `{name}`", "give what may stand there")
        self._count(at, len(listed))
        self._next += [at.beside(other, name, n) for n, other in enumerate(listed)]

    def _types(self, at: _Place) -> None:
        for name in dict.fromkeys(map(str, at.schema["type"])):
            self._next.append(replace(at, schema={**at.schema, "type": name}))

    def _enum(self, at: _Place) -> None:
        listed = at.schema["enum"]
        if isinstance(listed, list) and listed:
            self._count(at, len(listed))
        elif self.strict:
            raise self._refusal(at.path, "has an empty `enum`", "give a list of values")

    def _object(self, at: _Place) -> None:
        properties = at.schema.get("properties", {})
        if not isinstance(properties, Mapping):
            raise self._refusal(at.path, "has `properties` that are no object")
        required = at.schema.get("required") or []
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise self._refusal(at.path, "has a `required` that is no list", "give a list of names")
        missing = [name for name in required if name not in properties]
        if missing and self.strict:
            words = f"requires {str(missing[0])[:60]!r}, which is none of its `properties`"
            raise self._refusal(at.path, words, "give it a schema among the `properties`")
        if len(properties) - len(required) + len(missing) > MOST_OPTIONAL:
            words = f"has more than {MOST_OPTIONAL} properties that may be missing"
            raise self._refusal(at.path, words, "require more of them")
        for name, schema in properties.items():
            self._next.append(replace(at.inner(schema, "properties", name), inlined=at.inlined))
        if isinstance(more := at.schema.get("additionalProperties"), Mapping):
            self._next.append(at.inner(more, "additionalProperties"))

    def _tuple(self, at: _Place) -> None:
        name = "items" if "items" in at.schema else "prefixItems"
        listed = at.schema[name]
        least = at.schema.get("minItems", 0)
        if self.strict and not least <= len(listed) <= at.schema.get("maxItems", len(listed)):
            words = f"has {len(listed)} `{name}`, and other bounds"
            raise self._refusal(at.path, words, f"it always has all {len(listed)} of them")
        if self.strict and {"items", "prefixItems"} <= at.schema.keys():
            raise self._left_out(at, "prefixItems")
        self._next += [at.inner(item, name, n) for n, item in enumerate(listed)]

    def _array(self, at: _Place) -> None:
        self._next.append(at.inner(at.schema["items"], "items"))

    def _all(self, at: _Place) -> None:
        """Each part is read where it stands, again and again: a cycle would have no end."""
        parts = at.schema["allOf"]
        if not isinstance(parts, list) or at.inlined > DEEPEST:
            raise self._refusal(
                at.path, "has an `allOf` without end", "refer to it by `$ref` alone"
            )
        found = [self._part(at, part) for part in parts]
        if self.strict:
            self._check_parts(at, found)
        for n, part in enumerate(found):
            deeper = replace(at.beside(part, "allOf", n), inlined=at.inlined + 1)
            self._next.append(deeper)

    def _part(self, at: _Place, part: Any) -> Any:
        """What a part of `allOf` is, after all the `$ref` that lead to it."""
        for _ in range(DEEPEST):
            if not isinstance(part, Mapping) or "$ref" not in part:
                return part
            part = self._target(at.path, part["$ref"])
        raise self._refusal(at.path, "has an `allOf` without end", "refer to it by `$ref` alone")

    def _check_parts(self, at: _Place, parts: Sequence[Any]) -> None:
        """It puts objects together, and what all `enum` have; of other parts it makes nothing."""
        ways = {way_of(part) if isinstance(part, Mapping) else "" for part in parts}
        names = Counter(
            name
            for part in parts
            if isinstance(part, Mapping) and isinstance(part.get("properties"), Mapping)
            for name in part["properties"]
        )
        open_ended = any(
            isinstance(part.get("additionalProperties"), Mapping)
            for part in parts
            if isinstance(part, Mapping)
        )
        alone = ways == {"enum"} and len(parts) == 1
        together = ways == {"object"} and max(names.values(), default=1) == 1 and not open_ended
        if not (alone or together):
            hint = "put together objects of different properties, or write one schema"
            raise self._refusal(at.path, "has an `allOf` that it cannot put together", hint)


_STEPS = {
    "$ref": _Walk._reference,
    "oneOf": _Walk._alternatives,
    "anyOf": _Walk._alternatives,
    "types": _Walk._types,
    "enum": _Walk._enum,
    "object": _Walk._object,
    "allOf": _Walk._all,
    "tuple": _Walk._tuple,
    "array": _Walk._array,
}


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value


def _step(found: Any, step: str) -> Any:
    if isinstance(found, Mapping):
        return found.get(step)
    if isinstance(found, list) and step.isdecimal() and int(step[:9]) < len(found):
        return found[int(step[:9])]
    return None
