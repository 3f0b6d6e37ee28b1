from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from bourn.engines.hf.forward import runner as running
from bourn.engines.hf.forward.layout import Part
from bourn.engines.hf.forward.runner import Runner
from bourn.engines.hf.step import Copy, Step, Stretch
from bourn.errors import EngineError
from tests.support.paper_model import row
from tests.support.tiny_models import VOCABULARY, tiny

SHORT, MIDDLE, LONG = [5, 9, 4], [33, 60, 12, 7, 81], [5, 9, 4, 8, 8, 21, 40, 3, 77, 15, 16]
EXACT = 1e-4


@contextmanager
def runner(model: Any, *, slots: int = 4, window: int = 32) -> Iterator[Runner]:
    made = Runner(model, slots=slots, window=window)
    try:
        yield made
    finally:
        made.close()


def alone(model: Any, row: list[int]) -> Tensor:
    """The logits after the last of its tokens."""
    with torch.no_grad():
        logits: Tensor = model(input_ids=torch.tensor([row])).logits[0, -1]
    return logits


def off(ours: Tensor, right: Tensor) -> float:
    return float((ours.float() - right.float()).abs().max())


def stretch(ids: list[int], slot: int, start: int, count: int) -> Stretch:
    return Stretch(row(ids)[0], slot, start, count, draws=start + count == len(ids))


def test_logits_come_in_the_order_of_the_stretches_that_draw() -> None:
    model = tiny("qwen3")
    with runner(model) as made:
        logits = made.run(
            Step(
                (),
                (
                    stretch(LONG, 3, 0, 11),
                    stretch(LONG, 1, 0, 7),
                    stretch([7], 2, 0, 1),
                    stretch(SHORT, 0, 0, 3),
                ),
            )
        )
        assert logits.shape == (3, VOCABULARY)
        for ours, ids in zip(logits, (LONG, [7], SHORT), strict=True):
            assert off(ours, alone(model, ids)) <= EXACT


def test_a_step_in_which_nobody_draws_gives_no_logits() -> None:
    with runner(tiny("llama")) as made:
        assert made.run(Step((), (stretch(LONG, 0, 0, 4),))).shape == (0, VOCABULARY)


def test_a_step_may_only_copy() -> None:
    model = tiny("llama")
    with runner(model) as made:
        made.run(Step((), (stretch(LONG, 0, 0, 11),)))
        assert made.run(Step((Copy(0, 2, 10),), ())).shape == (0, VOCABULARY)
        (ours,) = made.run(Step((), (stretch(LONG, 2, 10, 1),)))
        assert off(ours, alone(model, LONG)) <= EXACT


@pytest.mark.parametrize("call", [0, 20, 10**6], ids=["apart", "mixed", "together"])
@pytest.mark.parametrize("architecture", ["mistral", "gemma2", "gpt_oss"])
def test_however_rows_are_grouped(
    architecture: str, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In slots with gaps between, each decoding after a prompt of another length."""
    model = tiny(architecture)
    rows = {0: SHORT, 1: LONG, 4: MIDDLE, 5: LONG[:7], 7: [9]}
    with runner(model, slots=8) as made:
        monkeypatch.setattr(made, "_call", call)
        made.read([Part(slot, 0, ids) for slot, ids in rows.items()], [])
        for step in range(1, 4):
            longer = {slot: [*ids, *range(50, 50 + step)] for slot, ids in rows.items()}
            parts = [Part(slot, len(ids) - 1, ids[-1:]) for slot, ids in longer.items()]
            logits = made.read(parts, range(len(parts)))
            for ours, ids in zip(logits, longer.values(), strict=True):
                assert off(ours, alone(model, ids)) <= EXACT


def test_a_row_of_no_numbers_does_not_touch_its_neighbours() -> None:
    """Nor whoever gets its slot afterwards, beside rows that are longer."""
    model = tiny("llama")
    poison = 96
    with torch.no_grad():
        model.get_input_embeddings().weight[poison] = float("nan")
    with runner(model) as made:
        logits = made.read([Part(0, 0, [*MIDDLE, poison, 5, 6]), Part(1, 0, LONG)], [0, 1])
        assert logits[0].isnan().all()
        assert off(logits[1], alone(model, LONG)) <= EXACT
        logits = made.read([Part(0, 8, [7]), Part(1, 11, [7])], [0, 1])
        assert logits[0].isnan().all()
        assert off(logits[1], alone(model, [*LONG, 7])) <= EXACT
        made.read([Part(0, 0, SHORT)], [])
        logits = made.read([Part(0, 3, [7]), Part(1, 12, [8])], [0, 1])
        assert off(logits[0], alone(model, [*SHORT, 7])) <= EXACT
        assert off(logits[1], alone(model, [*LONG, 7, 8])) <= EXACT


def test_infinite_logits_are_passed_on() -> None:
    model = tiny("phi")  # has a bias of its head
    with torch.no_grad():
        model.lm_head.bias[3] = float("-inf")
    with runner(model) as made:
        logits = made.read([Part(0, 0, SHORT), Part(1, 0, LONG)], [0, 1])
        assert (logits[:, 3] == float("-inf")).all()
        assert logits.isfinite().sum() == logits.numel() - 2


def test_a_row_must_fit_the_window() -> None:
    with runner(tiny("llama"), window=8) as made:
        with pytest.raises(EngineError, match="11 positions do not fit"):
            made.read([Part(0, 0, LONG)], [0])
        assert made.read([Part(0, 0, LONG[:8])], [0]).isfinite().all()


def test_what_a_position_takes_is_told() -> None:
    with runner(tiny("llama")) as made:
        layers, heads, dim = 3, 2, 8
        assert made.bytes_per_token == layers * 2 * heads * dim * 4
    with runner(tiny("deepseek_v3")) as made:  # kept compressed
        assert made.bytes_per_token == 3 * (12 + 4) * 4


def test_logits_may_be_written_to() -> None:
    with runner(tiny("llama")) as made:
        logits = made.read([Part(0, 0, SHORT)], [0])
        logits[:, 0] = float("-inf")
        assert logits[0].argmax() != 0


def test_a_model_that_cannot_leave_logits_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    forward = model.forward

    def older(input_ids: Any, position_ids: Any = None, cache: Any = None, **given: Any) -> Any:
        return forward(input_ids=input_ids, position_ids=position_ids, cache=cache, **given)

    monkeypatch.setattr(model, "forward", older)
    with runner(model) as made:
        logits = made.read([Part(0, 0, SHORT), Part(1, 0, LONG), Part(2, 0, MIDDLE)], [2, 0])
        for ours, ids in zip(logits, (MIDDLE, SHORT), strict=True):
            assert off(ours, alone(model, ids)) <= EXACT


def test_weights_that_are_fetched_when_needed() -> None:
    from accelerate import cpu_offload  # type: ignore[import-untyped]  # has no stubs

    model = tiny("llama")
    right = alone(model, LONG)
    cpu_offload(model, execution_device=torch.device("cpu"))
    assert running.entrance(model) == torch.device("cpu")
    with runner(model) as made:
        (ours,) = made.read([Part(0, 0, LONG)], [0])
        assert off(ours, right) <= EXACT


def test_closed_it_holds_nothing() -> None:
    model = tiny("llama")
    made = Runner(model, slots=2, window=16)
    made.close()
    made.close()
    assert model.config._attn_implementation == "sdpa"
    with pytest.raises(EngineError):
        made.read([Part(0, 0, SHORT)], [0])


def test_a_model_that_is_none_for_slots_is_given_back_at_once() -> None:
    model = tiny("diffllama")
    with pytest.raises(EngineError, match="calls attention 6 times for 3 layers"):
        Runner(model, slots=2, window=16)
    assert model.config._attn_implementation != "bourn"


def test_memory_is_taken_as_it_is_written() -> None:
    """A window far larger than memory, where the system gives memory bit by bit."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        pytest.skip("this system gives all of it at once")
    model = tiny("llama")
    with runner(model, slots=8, window=1_000_000) as made:
        (ours,) = made.read([Part(7, 0, LONG)], [0])
        assert off(ours, alone(model, LONG)) <= EXACT
