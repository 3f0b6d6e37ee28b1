"""How llama.cpp reads one JSON schema: by one word of it, and what it then heeds.

It reads it by the first of these that is there, and then nothing else of it: `$ref`, `oneOf`,
`anyOf`, several types, `const`, `enum`, properties, `allOf`, items, `pattern`, a `format` that it
knows, lengths, the bounds of an integer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

KINDS = {
    **dict.fromkeys(("minLength", "maxLength", "pattern"), "string"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), "number"),
    "multipleOf": "number",
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems", "uniqueItems"), "array"),
    **dict.fromkeys(("contains", "unevaluatedItems"), "array"),
    **dict.fromkeys(("properties", "required", "additionalProperties"), "object"),
    **dict.fromkeys(("patternProperties", "propertyNames"), "object"),
    **dict.fromkeys(("minProperties", "maxProperties", "unevaluatedProperties"), "object"),
    **dict.fromkeys(("dependencies", "dependentRequired", "dependentSchemas"), "object"),
    **dict.fromkeys(("$ref", "$dynamicRef", "$recursiveRef", "oneOf", "anyOf", "allOf"), ""),
    **dict.fromkeys(("const", "enum", "not", "if", "then", "else"), ""),
}
"""Words that say what a value must be, and of which kind of value they say it; "" is of each."""

HEEDED = {
    "object": {
        *("properties", "required", "additionalProperties"),
        "unevaluatedProperties",  # there are none
    },
    "tuple": {"items", "prefixItems", "minItems", "maxItems"},
    "array": {"items", "minItems", "maxItems"},
    "length": {"minLength", "maxLength"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
}
"""By the way in which it is read; each of the others heeds the word that it is named after."""

_OF_KIND = {
    **dict.fromkeys(("pattern", "format", "length"), "string"),
    **dict.fromkeys(("tuple", "array"), "array"),
    "object": "object",
    "integer": "number",
}
_NEUTRAL: dict[str, Any] = {
    "uniqueItems": False,
    "minItems": 0,
    "minLength": 0,
    "minProperties": 0,
    "required": [],
    "additionalProperties": True,
}
_FORMAT = re.compile(r"date|time|date-time|uuid[1-5]?")


def passed_over(schema: Schema) -> str | None:
    """A word that says what the value must be, and that it would not heed; None if all is well."""
    way = way_of(schema)
    if way == "types":  # read once for each
        return None
    kind = _OF_KIND.get(way) or _kind(schema)
    for name in schema.keys() & KINDS.keys() - HEEDED.get(way, {way}):
        about = KINDS[name]
        elsewhere = about and kind and about != kind
        if not elsewhere and (name not in _NEUTRAL or schema[name] != _NEUTRAL[name]):
            return name
    return None


def way_of(schema: Schema) -> str:
    """How it is read: by a word that goes before all others, or by what its type has."""
    for name in ("$ref", "oneOf", "anyOf"):
        if name in schema:
            return name
    if isinstance(schema.get("type"), list):
        return "types"
    for name in ("const", "enum"):
        if name in schema:
            return name
    return _way_of_type(schema, schema.get("type"))


def _way_of_type(schema: Schema, kind: object) -> str:
    ways = {
        "object": kind in (None, "object") and _is_object(schema),
        "allOf": kind in (None, "object", "string") and "allOf" in schema,
        "tuple": kind in (None, "array") and _items(schema, list),
        "array": kind in (None, "array") and _items(schema, object),
        "pattern": kind in (None, "string") and "pattern" in schema,
        "format": kind in (None, "string") and _knows(schema.get("format")),
        "length": kind == "string" and not {"minLength", "maxLength"}.isdisjoint(schema),
        "integer": kind == "integer",
    }
    return next((way for way, fits in ways.items() if fits), "")


def _is_object(schema: Schema) -> bool:
    return "properties" in schema or schema.get("additionalProperties", True) is not True


def _items(schema: Schema, kind: type) -> bool:
    name = "items" if "items" in schema else "prefixItems"
    return name in schema and isinstance(schema[name], kind)


def _knows(wanted: object) -> bool:
    return isinstance(wanted, str) and _FORMAT.fullmatch(wanted) is not None


def _kind(schema: Schema) -> str:
    """The kind of value that a schema of one type is about; "" where it may be any."""
    kind = schema.get("type")
    return "number" if kind == "integer" else kind if isinstance(kind, str) else ""
