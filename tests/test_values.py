"""Values as JSON: what is left out, what is told apart, and what cannot be said."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

import pytest

from bourn.values import DEEPEST, Unsayable, codec, plain


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Leaf:
    name: str
    bytes: bytes = b""  # called as its type is


@dataclass(frozen=True)
class Tree:
    size: int | None = None
    leaves: tuple[Leaf, ...] = ()
    below: tuple[Tree, ...] = ()
    weights: Mapping[int, float] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    colour: Colour | None = None
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Fruit:
    ripe: bool


def through_json(hint: Any, value: Any) -> Any:
    codec_ = codec(hint)
    return codec_.read(json.loads(json.dumps(codec_.write(value))))


def test_defaults_are_left_out() -> None:
    assert codec(Tree).write(Tree()) == {}
    assert codec(Tree).write(Tree(size=0, leaves=(Leaf("a"),))) == {
        "size": 0,
        "leaves": [{"name": "a"}],
    }


def test_a_whole_tree_comes_back() -> None:
    tree = Tree(
        3,
        (Leaf("a", b"\x00\xff"),),
        (Tree(below=(Tree(),)), Tree(1)),
        {7: 0.5, -1: -math.inf},
        {"deep": [{"a": None}, True, "x"]},
        Colour.RED,
        frozenset({"b", "a"}),
    )
    assert through_json(Tree, tree) == tree


def test_members_of_a_union_are_told_apart() -> None:
    hint = str | tuple[Leaf | Fruit, ...] | Mapping[str, Any] | None
    for value in ("text", (Leaf("a"), Fruit(ripe=True)), {"ripe": 1}, None):
        assert through_json(hint, value) == value


@pytest.mark.parametrize("value", [1, [object()], (Leaf("a"), 3)])
def test_what_is_no_member_is_refused(value: object) -> None:
    with pytest.raises(Unsayable):
        codec(str | tuple[Leaf | Fruit, ...]).write(value)


def test_what_came_as_no_member_is_refused() -> None:
    with pytest.raises(ValueError, match="none of what it may be"):
        codec(str | None).read(3)


def test_no_number_is_changed() -> None:
    values = [1, 1.0, -0.0, 2**80, math.inf, 5e-324]
    back = through_json(Any, values)
    assert list(map(repr, back)) == list(map(repr, values))
    assert math.isnan(through_json(float, math.nan))


def test_anything_may_stand_beside_something() -> None:
    hint = bytes | Mapping[str, int] | Any
    for value in ({"a": 1}, [1, "b"], 3.5):
        assert through_json(hint, value) == value


def test_mappings_and_tuples_become_plain() -> None:
    assert plain(MappingProxyType({"a": (1, 2)})) == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": {1, 2}}, "type set"),
        ([b"x"], "type bytes"),
        ({1: 2}, "a key that is no str: 1"),
        ([{"a": Colour.RED}], "type Colour"),
    ],
)
def test_what_is_not_plain_is_refused(value: object, words: str) -> None:
    with pytest.raises(Unsayable, match=words):
        plain(value)


def test_what_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(Unsayable, match=str(DEEPEST)):
        plain(loop)


def test_the_field_is_named() -> None:
    with pytest.raises(Unsayable, match="`below` holds `more` holds a value of type object"):
        codec(Tree).write(Tree(below=(Tree(more={"x": object()}),)))
    with pytest.raises(Unsayable, match="`weights` holds a key that is no int: 'a'"):
        codec(Tree).write(Tree(weights={"a": 1.0}))  # type: ignore[dict-item]


def test_an_annotation_without_a_codec_is_refused() -> None:
    with pytest.raises(TypeError, match="no codec"):
        codec(object)
    with pytest.raises(TypeError, match="no codec"):
        codec(tuple[int, str])
