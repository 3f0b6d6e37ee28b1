from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
import torch

from bourn.engines.hf.forward import compiling
from bourn.engines.hf.forward.layout import Part
from bourn.engines.hf.forward.packing import pack
from bourn.engines.hf.forward.runner import Runner
from bourn.errors import LoadFailed
from tests.support.tiny_models import VOCABULARY, tiny
from tests.support.wandering import LONGEST, Wandering, furthest

SLOTS = 3
PROMPT = [5, 9, 4, 33, 60]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that compiling is, but for the machine code at its end, which takes long to make."""
    monkeypatch.setattr(compiling, "BACKEND", "eager")


@contextmanager
def compiled(model: Any) -> Iterator[Runner]:
    runner = Runner(model, slots=SLOTS, window=LONGEST + 10, compiled=True)
    try:
        yield runner
    finally:
        runner.close()
        torch.compiler.reset()


def check(model: Any, seed: int) -> None:
    with compiled(model) as runner:
        walk = Wandering(runner, Random(seed), VOCABULARY, SLOTS)
        for _ in range(40):
            walk.step()
        assert sum(len(said.logits) for said in walk.rows) > 30
        assert furthest(model, walk.rows) <= 1e-4


@pytest.mark.real
@pytest.mark.usefixtures("traced")
def test_compiled_rows_together_are_as_alone() -> None:
    check(tiny("mistral"), seed=3)


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler here")
def test_compiled_to_machine_code_as_well() -> None:
    check(tiny("gemma2"), seed=3)


def answer(runner: Runner) -> torch.Tensor:
    """Of a pass that is compiled, after one that is not."""
    runner.read([Part(0, 0, PROMPT[:-1])], [])
    return runner.read([Part(0, len(PROMPT) - 1, PROMPT[-1:])], [0])[0]


@torch.no_grad()
def alone(model: Any) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=torch.tensor([PROMPT])).logits[0, -1]
    return logits


@pytest.mark.usefixtures("traced")
def test_two_compiled_models_are_not_mistaken_for_one_another() -> None:
    first, second = tiny("llama", seed=1), tiny("llama", seed=2)
    with compiled(first) as one, compiled(second) as other:
        for model, runner in ((first, one), (second, other), (first, one)):
            assert (answer(runner) - alone(model)).abs().max() <= 1e-4


@pytest.mark.real
@pytest.mark.usefixtures("traced")
def test_packed_layers_are_compiled_around() -> None:
    model = tiny("llama").bfloat16()
    packed = pack(model)
    with compiled(model) as runner:
        off = (answer(runner) - alone(model)).float()
        assert off.square().mean().sqrt() < 0.05
    assert packed in {0, 22}


@pytest.mark.usefixtures("traced")
def test_nothing_is_compiled_anew_while_serving() -> None:
    model = tiny("llama")
    with compiled(model) as runner:
        before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        for rows in (1, 2, 3):
            for start in range(4):
                parts = [Part(slot, start, (7,)) for slot in range(rows)]
                assert runner.read(parts, [rows - 1]).shape == (1, VOCABULARY)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before > 0


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    model = tiny("llama")
    with pytest.raises(LoadFailed, match="no C\\+\\+ compiler") as caught:
        Runner(model, slots=1, window=16, compiled=True)
    assert "--compile" in caught.value.hint
    assert model.config._attn_implementation == "sdpa"


def test_what_keeps_keys_compressed_is_not_compiled() -> None:
    with pytest.raises(LoadFailed, match="keeps keys compressed"):
        Runner(tiny("deepseek_v3"), slots=1, window=16, compiled=True)


def test_what_the_compiler_fails_at_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise MemoryError("too much of it")

    monkeypatch.setattr(compiling, "BACKEND", failing)
    model = tiny("llama")
    with pytest.raises(LoadFailed, match="too much of it"):
        Runner(model, slots=1, window=16, compiled=True)
    assert model.config._attn_implementation == "sdpa"
