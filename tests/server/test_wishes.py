from __future__ import annotations

from typing import Any

import pytest

from bourn.errors import InvalidRequest
from bourn.server.wishes import Wishes, wishes_of
from bourn.terms import CacheWish, Terms, Timeouts


def test_nobody_wishes_for_anything() -> None:
    assert wishes_of({}) == Wishes()
    assert wishes_of({}).terms("", Timeouts()) == Terms()
    assert (
        wishes_of(dict.fromkeys(("background", "grace", "cache", "max_age", "queue"))) == Wishes()
    )


def test_all_at_once() -> None:
    told = {"background": True, "grace": 5, "cache": "no-store", "max_age": 60, "sampled": True}
    wishes = wishes_of(told | {"cut": True, "queue": True})
    cache = CacheWish(write=False, max_age=60, sampled=True, cut=True)
    assert wishes == Wishes(background=True, grace=5, cache=cache, queue=True)
    times = Timeouts(total=9)
    assert wishes.terms("ann", times) == Terms("ann", 5, True, cache, times)


@pytest.mark.parametrize(
    ("cache", "header", "wished"),
    [
        ("no-cache", "", CacheWish(read=False)),
        ("only-if-cached", "", CacheWish(only=True)),
        (["no-cache", "no-store"], "", CacheWish(read=False, write=False)),
        ([], "", CacheWish()),
        (None, "no-store", CacheWish(write=False)),
        (None, "No-Cache , only-if-cached", CacheWish(read=False, only=True)),
        (None, "max-age=60", CacheWish(max_age=60)),
        (None, 'max-age="60"', CacheWish(max_age=60)),
        (None, "max-age=soon, max-stale, no-transform, ,=", CacheWish()),
        ("no-store", "no-cache", CacheWish(read=False, write=False)),
    ],
)
def test_wishes_for_the_cache_in_the_body_and_the_header(
    cache: Any, header: str, wished: CacheWish
) -> None:
    assert wishes_of({"cache": cache}, header).cache == wished


def test_the_younger_of_two_ages() -> None:
    assert wishes_of({"max_age": 5}, "max-age=60").cache.max_age == 5
    assert wishes_of({"max_age": 60}, "max-age=0").cache.max_age == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("background", "yes"),
        ("grace", -1),
        ("grace", 601),
        ("grace", float("nan")),
        ("grace", True),
        ("cache", "never"),
        ("cache", "no-store, no-cache"),
        ("cache", [5]),
        ("cache", [["no-store"]]),
        ("cache", {}),
        ("max_age", -1),
        ("max_age", "60"),
        ("sampled", 1),
        ("queue", 0),
        ("keep", True),
    ],
)
def test_what_is_no_wish_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        wishes_of({name: value})
    assert raised.value.field == f"bourn.{name}"
    assert raised.value.hint
