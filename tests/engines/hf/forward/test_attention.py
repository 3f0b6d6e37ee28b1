"""Attention that is lent: exact while a pass runs, the model's own for anybody else."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from transformers import AttentionInterface
from transformers.masking_utils import (
    causal_mask_function,
    chunked_causal_mask_function,
    or_masks,
    sliding_window_causal_mask_function,
)

from bourn.engines.hf.forward.attention import OTHER, Passing, _window, passing
from bourn.engines.hf.forward.layout import Part, arrange
from bourn.engines.hf.forward.lending import NAME, Lent, before, names
from bourn.engines.hf.forward.runner import Runner
from bourn.engines.hf.forward.slots import Slots, Unservable
from tests.support.tiny_models import tiny

PROMPT = [5, 9, 4, 33, 60, 12, 7, 81, 9, 5]


@contextmanager
def lent(model: Any) -> Iterator[Runner]:
    runner = Runner(model, slots=2, window=32)
    try:
        yield runner
    finally:
        runner.close()


def generated(model: Any, prompt: list[int] = PROMPT, tokens: int = 8) -> list[int]:
    ids = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=tokens,
        do_sample=False,
        eos_token_id=[],
        pad_token_id=0,
    )
    return list(ids[0].tolist())


def logits(model: Any, *rows: list[int], **more: Any) -> torch.Tensor:
    with torch.no_grad():
        out: torch.Tensor = model(input_ids=torch.tensor(rows), **more).logits
    return out


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_whoever_calls_the_model_gets_what_it_gave_before(implementation: str) -> None:
    model = tiny("mistral", attn_implementation=implementation)
    padded = {"attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1, 1], [1] * 10])}
    right = logits(model, PROMPT, PROMPT[::-1], **padded), generated(model)
    with lent(model):
        assert model.config._attn_implementation == NAME
        mine = logits(model, PROMPT, PROMPT[::-1], **padded), generated(model)
    assert torch.equal(mine[0], right[0])
    assert mine[1] == right[1]
    assert model.config._attn_implementation == implementation


def test_another_thread_may_generate_during_a_pass() -> None:
    """The pass is held in the middle while the other thread has a whole answer."""
    model = tiny("qwen3")
    right = generated(model)
    alone = logits(model, PROMPT)[0, -1]
    inside, answered = threading.Event(), threading.Event()
    with lent(model) as runner, ThreadPoolExecutor(1) as threads:
        mine = threading.get_ident()

        def hold(*_: object) -> None:
            if threading.get_ident() == mine:
                inside.set()
                assert answered.wait(20)

        hook = model.model.layers[1].register_forward_pre_hook(hold)

        def answer() -> list[int]:
            assert inside.wait(20)
            try:
                return generated(model)
            finally:
                answered.set()

        other = threads.submit(answer)
        ours = runner.read([Part(0, 0, PROMPT)], [0])[0]
        assert other.result(20) == right
        hook.remove()
    assert (ours - alone).abs().max() <= 1e-4


def test_a_model_lent_twice_is_given_back_by_the_last() -> None:
    model = tiny("llama")
    right = logits(model, PROMPT)[0, -1]
    with lent(model) as first:
        with lent(model) as second:
            ours = [runner.read([Part(1, 0, PROMPT)], [0])[0] for runner in (first, second)]
        assert model.config._attn_implementation == NAME
        ours.append(first.read([Part(0, 0, PROMPT)], [0])[0])
    assert model.config._attn_implementation == "sdpa"
    assert max(float((one - right).abs().max()) for one in ours) <= 1e-4


def test_a_copy_of_a_lent_model_still_answers() -> None:
    model = tiny("llama")
    right = logits(model, PROMPT)
    with lent(model):
        twin = copy.deepcopy(model)
    assert before(twin.config) == "eager"
    assert (logits(twin, PROMPT) - right).abs().max() <= 1e-4


def test_nothing_is_written_down_of_it() -> None:
    model = tiny("llama")
    with lent(model):
        assert NAME not in model.config.to_json_string(use_diff=False)


def test_configs_inside_configs_are_given_back_as_they_were() -> None:
    class Outer:
        sub_configs = ("inner",)
        _attn_implementation = "sdpa"

    outer, inner = Outer(), tiny("llama").config
    inner._attn_implementation = "eager"
    outer.inner = inner  # type: ignore[attr-defined]
    module = torch.nn.Module()
    module.config = outer  # type: ignore[assignment]
    loan = Lent(module)
    assert (outer._attn_implementation, inner._attn_implementation) == (NAME, NAME)
    assert names(module) == {"sdpa", "eager"}
    loan.close()
    loan.close()
    assert (outer._attn_implementation, inner._attn_implementation) == ("sdpa", "eager")


def test_an_error_in_a_pass_leaves_nothing_behind() -> None:
    model = tiny("llama")
    right = generated(model)
    with lent(model) as runner:

        def fail(*_: object) -> None:
            raise MemoryError

        hook = model.model.layers[2].register_forward_pre_hook(fail)
        with pytest.raises(MemoryError):
            runner.read([Part(0, 0, PROMPT)], [0])
        hook.remove()
        assert generated(model) == right
        alone = logits(model, PROMPT)[0, -1]
        assert (runner.read([Part(0, 0, PROMPT)], [0])[0] - alone).abs().max() <= 1e-4


# -- what a mask means -----------------------------------------------------------------------------

CHUNKED = chunked_causal_mask_function(6, torch.zeros(1, dtype=torch.int))
PREFIX = or_masks(causal_mask_function, lambda batch, head, query, key: key < 3)


def test_a_window_is_that_of_the_mask() -> None:
    assert _window(causal_mask_function) is None
    assert _window(sliding_window_causal_mask_function(6), local_size=6) == 6
    assert _window(causal_mask_function, attention_mask=torch.ones(1, 9)) is None


def test_masks_of_other_kinds_are_known_as_such() -> None:
    assert _window(PREFIX) == OTHER
    assert _window(CHUNKED, local_size=6) == OTHER
    assert _window(sliding_window_causal_mask_function(5), local_size=6) == OTHER
    assert _window(sliding_window_causal_mask_function(0), local_size=0) == OTHER
    assert _window(causal_mask_function, attention_mask=torch.tensor([[0, 1]])) == OTHER


def attend(**given: Any) -> None:
    """One attention call in a pass of one token."""
    model = tiny("llama")
    layer = model.model.layers[0].self_attn
    slots = Slots(1, 8)
    slots.begin((), [part := Part(0, 0, (1,))])
    keys, values = slots.update(torch.ones(1, 2, 1, 8), torch.ones(1, 2, 1, 8), 0)
    now = Passing(slots, arrange([part], 0))
    defaults = {"key": keys, "value": values, "attention_mask": now.mark(None), "scaling": 1.0}
    given = {**defaults, **given}
    loan = Lent(model)
    try:
        with passing(now):
            out, _ = AttentionInterface()[NAME](layer, torch.ones(1, 4, 1, 8), **given)
    finally:
        loan.close()
    assert out.shape == (1, 1, 4, 8)


def test_what_means_nothing_here_is_let_pass() -> None:
    attend(dropout=0.0, position_ids=torch.zeros(1, 1), is_causal=True, position_bias=None)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"position_bias": torch.zeros(1)}, "position_bias"),
        ({"is_causal": False}, "looks ahead"),
        ({"attention_mask": None}, "attention mask"),
        ({"attention_mask": torch.zeros(1, 1, 1, 1)}, "attention mask"),
        ({"key": torch.ones(1, 8, 2, 8)}, "made of its cache"),
    ],
)
def test_what_would_change_the_answer_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(Unservable, match=why):
        attend(**given)


def test_a_mask_of_another_kind_is_refused_where_it_is_used() -> None:
    now = Passing(Slots(1, 8), ())
    with pytest.raises(Unservable, match="neither causal nor a sliding window"):
        attend(attention_mask=now.mark(OTHER))
