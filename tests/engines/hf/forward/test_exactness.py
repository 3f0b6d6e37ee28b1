"""Each row of a batch gets the logits it would get alone: for all that slots claim to serve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from bourn.engines.hf.forward.runner import Runner
from tests.support.tiny_models import SERVED, VOCABULARY, tiny
from tests.support.wandering import LONGEST, Said, Wandering, furthest

SLOTS = 4
EXACT = 1e-4

FEW = [
    "llama",
    "mistral",
    "gemma2",
    "gpt_oss",
    "deepseek_v3",
    "gpt2",
    "qwen3",
    "opt",
    "cohere2",
    "mixtral",
]
"""One of each kind: plain, sliding, capped, with sinks, compressed, learned positions ..."""
OTHERS = sorted(set(SERVED) - set(FEW))


@contextmanager
def wandering(model: Any, seed: int) -> Iterator[Wandering]:
    runner = Runner(model, slots=SLOTS, window=LONGEST + 10)
    try:
        yield Wandering(runner, Random(seed), VOCABULARY, SLOTS)
    finally:
        runner.close()


def greedy(model: Any, said: Said) -> list[int]:
    prompt = list(said.sequence.wishes.prompt)
    ids = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=said.sequence.generated,
        do_sample=False,
        eos_token_id=[],
        pad_token_id=0,
    )
    return list(ids[0].tolist())


def check(model: Any, seed: int) -> None:
    with wandering(model, seed) as walk:
        for _ in range(40):
            walk.step()
        assert sum(len(said.logits) for said in walk.rows) > 40
        assert furthest(model, walk.rows) <= EXACT
    longest = max(walk.rows, key=lambda said: said.sequence.generated)
    assert greedy(model, longest) == longest.sequence.ids


@pytest.mark.parametrize("architecture", FEW)
def test_rows_together_are_as_alone(architecture: str) -> None:
    check(tiny(architecture), seed=len(architecture))


@pytest.mark.real
@pytest.mark.parametrize("architecture", OTHERS)
def test_rows_together_are_as_alone_for_all_that_is_served(architecture: str) -> None:
    check(tiny(architecture), seed=len(architecture))


@pytest.mark.timeout(300)  # the checkpoint may have to be made first
@pytest.mark.real
def test_rows_together_are_as_alone_in_a_real_model() -> None:
    from tests.support.real_checkpoint import real_checkpoint

    model = AutoModelForCausalLM.from_pretrained(real_checkpoint(), dtype=torch.float32)
    check(model.eval(), seed=1)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), apart=st.booleans(), architecture=st.sampled_from(FEW[:5]))
def test_however_they_wander(*, seed: int, apart: bool, architecture: str) -> None:
    """Apart: each row by itself, though they might be attended together."""
    model = tiny(architecture)
    with wandering(model, seed) as walk, pytest.MonkeyPatch.context() as patch:
        if apart:
            patch.setattr(walk.runner, "_call", -1)
        for _ in range(20):
            walk.step()
        assert furthest(model, walk.rows) <= EXACT
