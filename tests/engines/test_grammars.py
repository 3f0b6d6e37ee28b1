"""Which schemas llama.cpp is given. What it does with the others was seen, not read."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field

from bourn.engines.grammars import check_format, check_tools
from bourn.errors import InvalidRequest


class Cat(BaseModel):
    """A cat."""

    name: str = Field(min_length=1, max_length=20, examples=["Tom"])
    lives: int = Field(ge=0, le=9)
    code: str = Field(pattern="^[a-z]{2}-[0-9]+$")
    friends: list[Cat] = Field(max_length=3)
    owner: str | None = None


def shape(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def tool(schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": schema}}


def text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


LOOP = {"$ref": "#/$defs/A"}
GOOD: list[Any] = [
    Cat.model_json_schema(),
    {},
    {"title": "anything", "default": 5},
    {"type": ["string", "null"], "maxLength": 3},
    {"type": "boolean", "minimum": 3},
    {"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "array", "prefixItems": [{"const": 1}], "minItems": 1, "maxItems": 1},
    {"$defs": {"A": {"enum": ["a"]}}, "allOf": [LOOP]},
    {"enum": [str(n) for n in range(500)]},
    text("^(?:a|b)+[^c-e]{2,5}\\.x{,3}$"),
]
CHOKES: list[Any] = [
    text("^a{2,1}$"),
    text("^(a{0,200}){0,200}$"),
    text("^((a{1,1000}){1,1000}){1,1000}$"),
    text("^(a*){0,500}$"),
    text("^" + "a?" * 200 + "$"),
    text("^" + "(" * 100 + "a" + ")" * 100 + "$"),
    text("^a{99999999999999999999}$"),
    {"type": "string", "minLength": 3, "maxLength": 1},
    {"type": "array", "items": {}, "minItems": 3, "maxItems": 1},
    {"type": "integer", "minimum": 5, "maximum": 3},
    {"type": "integer", "minimum": 9 * 10**17},
    {"anyOf": [{"enum": list(range(300))}, {"enum": list(range(300))}]},
    {"$defs": {"A": LOOP}, **LOOP},
    {"$defs": {"A": LOOP}, "allOf": [LOOP]},
    {"$defs": {"A": {"properties": {"x": {"allOf": [LOOP]}}}}, "allOf": [LOOP]},
    {"properties": {"a": {}}, "required": [[]]},
    nested(200),
    nested(100_000),
]
LOOSE: list[Any] = [
    text("abc"),
    text("^(["),
    text(r"^\p{L}$"),
    text(r"^\d+$"),
    text("^(?=a)b$"),
    text(r"^(a)\1$"),
    text("^a+?$"),
    text("^[z-a]$"),
    {"not": {"type": "string"}},
    {"if": {"type": "string"}, "then": {"minLength": 3}},
    {"type": "array", "items": {}, "uniqueItems": True},
    {"type": "array", "contains": {"type": "null"}},
    {"type": "array", "maxItems": 3},
    {"type": "number", "minimum": 3},
    {"type": "integer", "multipleOf": 5},
    {"type": "object", "patternProperties": {"^a": {}}},
    {"type": "object", "propertyNames": {"pattern": "^a$"}},
    {"type": "object", "minProperties": 2},
    {"type": "object", "properties": {"a": {}}, "required": ["b"]},
    {"type": "object", "properties": {"a": True}},
    {"type": "array", "items": {}, "prefixItems": [{}]},
    {"type": "string", "const": "a", "pattern": "^b$"},
    {"anyOf": [{"type": "string"}], "maxLength": 3},
    {"allOf": [{"type": "integer"}]},
    {"type": "shape"},
    {"$ref": "https://x/y"},
]


@pytest.mark.parametrize("schema", GOOD, ids=lambda schema: str(schema)[:40])
def test_what_it_keeps_to_is_taken(schema: Any) -> None:
    check_format(shape(schema))
    check_tools([tool(schema)])
    check_format({"type": "json_object"})


@pytest.mark.parametrize("number", range(len(CHOKES)))
def test_what_it_would_choke_on_is_refused_everywhere(number: int) -> None:
    with pytest.raises(InvalidRequest) as raised:
        check_format(shape(CHOKES[number]))
    assert raised.value.field == "response_format"
    with pytest.raises(InvalidRequest) as raised:
        check_tools([tool(CHOKES[number])])
    assert (raised.value.field, bool(raised.value.hint)) == ("tools", True)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("schema", LOOSE, ids=lambda schema: str(schema)[:40])
def test_what_it_would_pass_over_is_refused_of_an_answer(schema: Any) -> None:
    with pytest.raises(InvalidRequest, match="the schema at #") as raised:
        check_format(shape(schema))
    assert raised.value.hint
    check_tools([tool(schema)])


def test_a_place_is_named() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": text("x")}}}
    with pytest.raises(InvalidRequest, match="#/properties/a/items has the `pattern` x"):
        check_format(shape(schema))


def test_tools_without_parameters_are_taken() -> None:
    check_tools([{"type": "function"}, tool(None), tool({"type": "object", "properties": {}})])
