from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from bourn.engines.base import ModelInfo
from bourn.engines.scripted import ALL_FIELDS
from bourn.sharing import key_for
from bourn.terms import CacheWish, Terms
from bourn.types import DEFAULT_SAMPLING, Message, Request, Sampling

INFO = ModelInfo("a", "scripted", honours=ALL_FIELDS)
GREEDY = Request(
    messages=(Message("user", "hello"),),
    sampling=Sampling(temperature=0).over(DEFAULT_SAMPLING),
)
ME = Terms(owner="me")


def key(
    sent: Request = GREEDY,
    *,
    asked: Request | None = None,
    terms: Terms = ME,
    info: ModelInfo = INFO,
    identity: str = "model",
    **more: Any,
) -> str | None:
    return key_for(identity, **more)(asked or sent, sent, info, terms)


def drawn(seed: int) -> Request:
    """As a hub sends it: a seed that nobody asked for was drawn."""
    return replace(GREEDY, sampling=replace(GREEDY.sampling, temperature=0.8, seed=seed))


UNSEEDED = replace(GREEDY, sampling=Sampling(temperature=0.8))


def test_the_same_request_has_the_same_key() -> None:
    assert key() == key(replace(GREEDY)) is not None


CHANGED: dict[str, Any] = {
    "messages": (Message("user", "hello."),),
    "max_new_tokens": 16,
    "min_new_tokens": 1,
    "stop": ("x",),
    "stop_token_ids": (3,),
    "logit_bias": {3: 1.0},
    "n": 2,
    "logprobs": 0,
    "ignore_eos": True,
    "tools": ({"type": "function", "function": {"name": "f"}},),
    "tool_choice": "none",
    "parallel_tool_calls": False,
    "response_format": {"type": "json_object"},
    "template_kwargs": {"enable_thinking": False},
    "reuse_prompt": False,
    "sampling": replace(GREEDY.sampling, top_p=0.5),
}


@pytest.mark.parametrize("name", CHANGED)
def test_each_field_is_in_the_key(name: str) -> None:
    assert key(replace(GREEDY, **{name: CHANGED[name]})) not in (key(), None)


def test_no_field_is_forgotten_here() -> None:
    assert {field.name for field in fields(Request)} == CHANGED.keys() | {
        "prompt",
        "engine_options",
    }


def test_a_prompt_is_not_its_ids_nor_a_chat() -> None:
    texts = [Request(prompt="1", sampling=GREEDY.sampling), GREEDY]
    ids = Request(prompt=(1,), sampling=GREEDY.sampling)
    assert len({key(request) for request in (*texts, ids)}) == 3


def test_a_message_is_told_apart_by_all_it_says() -> None:
    one = replace(GREEDY, messages=(Message("tool", "42", tool_call_id="a"),))
    other = replace(GREEDY, messages=(Message("tool", "42", tool_call_id="b"),))
    assert key(one) != key(other)


def test_models_and_owners_are_apart() -> None:
    assert key(identity="another") != key()
    assert key(terms=Terms(owner="you")) != key()
    opened = key(terms=Terms(owner="you"), everybody=True)
    assert opened == key(everybody=True) is not None


def test_a_greedy_answer_is_the_same_whatever_seed_was_drawn() -> None:
    one, two = (replace(GREEDY, sampling=replace(GREEDY.sampling, seed=n)) for n in (1, 2))
    assert key(one, asked=GREEDY) == key(two, asked=GREEDY)


def test_what_was_drawn_at_random_is_nobody_elses() -> None:
    assert key(drawn(1), asked=UNSEEDED) is None


def test_an_omitted_temperature_is_not_zero() -> None:
    unsaid = replace(GREEDY, sampling=DEFAULT_SAMPLING)
    assert key(unsaid, asked=replace(GREEDY, sampling=Sampling())) is None


def test_a_seed_that_is_kept_may_be_shared_and_one_that_is_not_may_not() -> None:
    assert key(drawn(7)) == key(drawn(7)) is not None
    assert key(drawn(7)) != key(drawn(8))
    assert key(drawn(7), info=replace(INFO, honours=frozenset({"temperature"}))) is None


def test_who_wants_may_share_what_was_drawn() -> None:
    terms = Terms(cache=CacheWish(sampled=True))
    one, two = (key(drawn(n), asked=UNSEEDED, terms=terms) for n in (1, 2))
    assert one == two is not None


def test_who_is_content_with_a_cut_answer_shares_it_with_nobody_else() -> None:
    terms = Terms(cache=CacheWish(cut=True))
    assert key(GREEDY, terms=terms) == key(GREEDY, terms=terms) not in {None, key(GREEDY)}


def test_what_holds_python_objects_is_not_shared() -> None:
    assert key(replace(GREEDY, engine_options={"stopping_criteria": [print]})) is None
