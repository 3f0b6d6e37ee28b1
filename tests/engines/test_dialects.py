from __future__ import annotations

from typing import Any

import pytest

from bourn.engines.dialects import (
    BY_KIND,
    GENERIC,
    LLAMACPP,
    MISTRAL,
    OLLAMA,
    OPENAI,
    dialect_of,
    dialect_of_host,
    info_of,
    models_in,
    names_of,
)
from bourn.types import DEFAULT_SAMPLING, Sampling
from bourn.wire.dialect import Dialect


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ({"object": "list", "data": [{"id": "a"}, {"id": "b"}]}, ["a", "b"]),
        ([{"id": "a"}], ["a"]),
        ({"data": [{"name": "no id"}, "a", {"id": ""}]}, []),
        ({"data": None}, []),
        ({"models": [{"id": "a"}]}, []),
        ("a", []),
        (None, []),
    ],
)
def test_lists_of_models_in_their_shapes(answer: Any, names: list[str]) -> None:
    assert [model["id"] for model in models_in(answer)] == names


def test_a_model_goes_by_its_aliases_too() -> None:
    assert names_of({"id": "a", "aliases": ["b", "c"]}) == ["a", "b", "c"]
    assert names_of({"id": "a", "aliases": None}) == ["a"]


def test_the_owner_tells_the_kind() -> None:
    assert (
        dialect_of([{"id": "mine", "owned_by": "me"}, {"id": "a", "owned_by": "library"}]) is OLLAMA
    )
    assert dialect_of([{"id": "a"}]) is GENERIC
    assert dialect_of([]) is GENERIC


def test_hosted_apis_are_known_by_name() -> None:
    assert dialect_of_host("api.openai.com") is OPENAI
    assert dialect_of_host("api.mistral.ai") is MISTRAL
    assert dialect_of_host("localhost") is None


@pytest.mark.parametrize("dialect", BY_KIND.values(), ids=BY_KIND)
def test_whoever_gets_our_defaults_in_full_takes_them_all(dialect: Dialect) -> None:
    assert BY_KIND[dialect.name] is dialect
    if dialect.resolves:
        assert DEFAULT_SAMPLING.given().keys() | {"seed"} <= dialect.honours


def test_nothing_is_known_of_a_model_that_nobody_describes() -> None:
    info = info_of("m", LLAMACPP, {}, {})
    assert (info.name, info.engine, info.window, info.slots) == ("m", "llamacpp", None, None)
    assert info.defaults == Sampling()
    assert info.honours == LLAMACPP.honours


@pytest.mark.parametrize("window", [0, -1, "4096", None, True])
def test_a_window_that_is_none(window: Any) -> None:
    assert info_of("m", GENERIC, {"context_length": window}, {}).window is None
