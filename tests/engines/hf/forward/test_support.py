"""Which models slots serve and which they refuse, and why. `test_exactness` proves the first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bourn.engines.hf.forward.lending import NAME
from bourn.engines.hf.forward.support import config_refusal, slots_refusal
from tests.support.tiny_models import REFUSED, SERVED, tiny

STATE = "its layers keep more than a key and a value for each token"
INTERFACE = "it does not call its attention through transformers' attention interface"
ALIBI = "its attention tells positions by biases (ALiBi)"

REASONS = {
    "bloom": ALIBI,
    "diffllama": "it calls attention 6 times for 3 layers",
    "falcon": INTERFACE,
    "gpt_neo": INTERFACE,
    "jamba": f"{STATE} (linear_attention)",
    "lfm2": f"{STATE} (conv)",
    "llama4_text": f"{STATE} (chunked_attention)",
    "mamba": f"{STATE} (linear_attention)",
    "mamba2": f"{STATE} (linear_attention)",
    "mpt": ALIBI,
    "openai-gpt": "it takes no cache",
    "qwen3_next": f"{STATE} (linear_attention)",
    "recurrent_gemma": f"{STATE} (linear_attention)",
    "roberta": "its logits through slots differ from its own",
    "rwkv": "its layers keep a state, not a key and a value for each token",
    "t5": "it is an encoder-decoder model",
    "xglm": INTERFACE,
}
ONLY_TRIED = {"diffllama", "roberta"}
"""Whose configs do not show it."""


def test_all_that_is_refused_has_its_reason_here() -> None:
    assert set(REASONS) == set(REFUSED)


@pytest.mark.parametrize("architecture", REASONS)
def test_what_is_refused_and_why(architecture: str) -> None:
    model = tiny(architecture)
    before = model.config._attn_implementation
    assert slots_refusal(model) == REASONS[architecture]
    static = None if architecture in ONLY_TRIED else REASONS[architecture]
    assert config_refusal(model.config) == static
    assert model.config._attn_implementation == before


@pytest.mark.parametrize("architecture", [*SERVED][:10])
def test_what_is_served(architecture: str) -> None:
    model = tiny(architecture)
    before = model.config._attn_implementation
    assert config_refusal(model.config) is None
    assert slots_refusal(model) is None
    assert model.config._attn_implementation == before != NAME


@pytest.mark.real
@pytest.mark.parametrize("architecture", [*SERVED][10:])
def test_what_else_is_served(architecture: str) -> None:
    assert slots_refusal(tiny(architecture)) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("architecture", ["llama", "gpt_oss", "mixtral", "deepseek_v3"])
def test_less_exact_numbers_are_no_reason(architecture: str, dtype: torch.dtype) -> None:
    assert slots_refusal(tiny(architecture).to(dtype)) is None


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_either_attention_can_be_lent(implementation: str) -> None:
    assert slots_refusal(tiny("qwen3", attn_implementation=implementation)) is None


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_positions_that_couple_rows(kind: str) -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    rope = {"rope_type": kind, "rope_theta": 10_000.0, "factor": 2.0, **factors}
    config = tiny("llama").config
    config.rope_parameters = rope
    why = f"its rotary positions ({kind}) change for all rows once one of them is long"
    assert config_refusal(config) == why
    config.rope_parameters = {"full_attention": {"rope_type": "default"}, "sliding_attention": rope}
    assert config_refusal(config) == why


@pytest.mark.parametrize("kind", ["linear", "yarn", "llama3"])
def test_positions_that_are_stretched_once_and_for_all(kind: str) -> None:
    rope = {
        "rope_type": kind,
        "rope_theta": 10_000.0,
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    if kind != "llama3":
        rope = {key: rope[key] for key in rope if "freq" not in key}
    assert slots_refusal(tiny("llama", rope_parameters=rope)) is None


def test_falcon_with_alibi_is_refused_for_that() -> None:
    config = tiny("falcon").config
    config.alibi = True
    assert config_refusal(config) == ALIBI


def test_in_training_mode_it_is_refused() -> None:
    model = tiny("llama").train()
    assert "training mode" in str(slots_refusal(model))
    assert model.training


def test_flash_attention_cannot_be_lent() -> None:
    model = tiny("llama")
    model.config._attn_implementation_internal = "flash_attention_2"
    assert "flash_attention_2" in str(slots_refusal(model))
    assert model.config._attn_implementation == "flash_attention_2"


class Shifted(LlamaForCausalLM):  # type: ignore[misc]  # transformers is not typed
    """Reads positions of its own liking once it has a cache."""

    def forward(self, *args: Any, position_ids: Any = None, cache: Any = None, **given: Any) -> Any:
        if cache is not None:
            position_ids = position_ids * 2
        return super().forward(*args, position_ids=position_ids, cache=cache, **given)


class Raising(LlamaForCausalLM):  # type: ignore[misc]  # transformers is not typed
    def forward(self, *args: Any, position_ids: Any = None, cache: Any = None, **given: Any) -> Any:
        if cache is not None:
            raise ZeroDivisionError("as remote code does")
        return super().forward(*args, position_ids=position_ids, **given)


def config() -> LlamaConfig:
    made: LlamaConfig = tiny("llama").config
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_that_answers_otherwise_is_found_out(dtype: torch.dtype) -> None:
    model = Shifted(config()).eval()
    model.load_state_dict(tiny("llama").state_dict())
    assert slots_refusal(model.to(dtype)) == "its logits through slots differ from its own"
    assert model.config._attn_implementation == "sdpa"


def test_a_model_that_raises_is_refused_and_given_back() -> None:
    model = Raising(config()).eval()
    why = "it failed when it was tried (ZeroDivisionError: as remote code does)"
    assert slots_refusal(model) == why
    assert model.config._attn_implementation == "sdpa"


def test_what_is_no_model_at_all_is_refused_too() -> None:
    assert "AttributeError" in str(slots_refusal(object()))


def test_no_numbers_are_no_proof() -> None:
    model = tiny("llama")
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    assert slots_refusal(model) == "its logits are no numbers"


def test_tokens_that_are_never_drawn_are_no_reason() -> None:
    model = tiny("phi")
    with torch.no_grad():
        model.lm_head.bias[7:] = float("-inf")
    assert slots_refusal(model) is None
