"""What the panel says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bourn.errors import InvalidRequest
from bourn.types import Message, Sampling
from bourn.web.wishes import Wishes

ALL = Wishes("m", "Be brief.", 0.5, 0.9, 100, 7, ("END", "\n\n"), True)


def test_they_make_a_request() -> None:
    request = ALL.request((Message("user", "Why?"),), 50)
    assert request.messages == (Message("user", "Why?"),)
    assert request.sampling == Sampling(temperature=0.5, top_p=0.9, seed=7)
    assert (request.max_new_tokens, request.stop) == (50, ("END", "\n\n"))
    assert Wishes().request((Message("user", "Why?"),), None).sampling == Sampling()


def test_they_are_kept_and_read_back() -> None:
    assert Wishes.from_json(json.loads(json.dumps(ALL.to_json()))) == ALL
    assert Wishes().to_json() == {}
    assert Wishes(temperature=0.0, seed=0).to_json() == {"temperature": 0.0, "seed": 0}
    assert Wishes.from_json({}) == Wishes()


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ({"colour": "red", "seed": 7}, Wishes(seed=7)),
        ({"seed": "seven", "model": 5, "system": "x"}, Wishes(system="x")),
        ({"stop": ["a", ""]}, Wishes()),
        ({"stop": "a"}, Wishes()),
        ({"temperature": -1, "model": "m"}, Wishes(model="m")),
        ({"max_new_tokens": 0}, Wishes()),
        ({"seed": True}, Wishes()),
        ({"keep_going": 1}, Wishes()),
    ],
)
def test_what_is_wrong_was_not_said(told: dict[str, Any], read: Wishes) -> None:
    assert Wishes.from_json(told) == read


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1.0}, {"top_p": 2.0}, {"max_new_tokens": 0}, {"seed": -1}, {"stop": ("",)}],
)
def test_what_cannot_be_asked_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Wishes(**wrong)
