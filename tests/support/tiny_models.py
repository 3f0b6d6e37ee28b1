"""Small made models of many architectures, whose answers depend on every token and its place.

Weights are drawn from a seed and large, so that logits differ clearly wherever attention looks at a
wrong position; windows are shorter than the prompts of the tests, so that they matter.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedModel

VOCABULARY = 97
WINDOW = 6
"""Of sliding attention, where there is some."""

COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SLIDING = {"sliding_window": WINDOW}
MIXED = {**SLIDING, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
ROUTED = {**EXPERTS, "n_routed_experts": 4, "n_group": 1, "topk_group": 1}
LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 12,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 6,
    "head_dim": 4,
    "num_key_value_heads": 4,
}
SERVED: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": SLIDING,
    "gemma2": {**MIXED, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 20.0},
    "gpt_oss": {**MIXED, **EXPERTS},
    "deepseek_v3": {**ROUTED, **LATENT, "first_k_dense_replace": 1},
    "gpt2": {},
    "qwen3": {},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "cohere2": {**MIXED, "logit_scale": 1.0},
    "mixtral": EXPERTS,
    # the rest in the order of the alphabet
    "afmoe": MIXED,
    "apertus": {},
    "arcee": {},
    "bert": {"is_decoder": True},
    "biogpt": {},
    "bitnet": {},
    "cohere": {"logit_scale": 1.0},
    "ctrl": {"n_positions": 256, "dff": 48},
    "cwm": MIXED,
    "deepseek_v2": {**ROUTED, **LATENT, "first_k_dense_replace": 1},
    "ernie4_5": {},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 16},
    "exaone4": MIXED,
    "flex_olmo": EXPERTS,
    "gemma": {},
    "gemma3_text": MIXED,
    "glm": {},
    "glm4": {},
    "glm4_moe": ROUTED,
    "glm4_moe_lite": {**ROUTED, **LATENT},
    "gpt_bigcode": {},
    "gpt_neox": {},
    "gptj": {"rotary_dim": 4},
    "granite": {},
    "granitemoe": EXPERTS,
    "helium": {},
    "hunyuan_v1_dense": {},
    "minicpm3": LATENT,
    "minimax_m2": EXPERTS,
    "ministral": SLIDING,
    "modernbert-decoder": MIXED,
    "nanochat": {},
    "nemotron": {},
    "olmo": {},
    "olmo2": {},
    "olmo3": MIXED,
    "olmoe": EXPERTS,
    "persimmon": {},
    "phi": {},
    "phi3": SLIDING,
    "phimoe": {**SLIDING, **EXPERTS},
    "qwen2": {},
    "qwen2_moe": EXPERTS,
    "qwen3_moe": EXPERTS,
    "seed_oss": {},
    "smollm3": {},
    "stablelm": {},
    "starcoder2": SLIDING,
    "vaultgemma": MIXED,
    "youtu": LATENT,
}

REFUSED: dict[str, dict[str, Any]] = {
    "bloom": {},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 3},
    "falcon": {},
    "mamba": {},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 2},
    "rwkv": {"attention_hidden_size": 32},
    "recurrent_gemma": {"lru_width": 32},
    "jamba": {**EXPERTS, "mamba_d_state": 8, "mamba_dt_rank": 4},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv"]},
    "llama4_text": {**EXPERTS, "attention_chunk_size": 6, "intermediate_size_mlp": 48},
    "qwen3_next": {**EXPERTS, "linear_num_value_heads": 4, "linear_num_key_heads": 2},
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
    "roberta": {"is_decoder": True},
    "diffllama": {},
    "gpt_neo": {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
    "xglm": {"d_model": 32, "num_layers": 3, "attention_heads": 4, "ffn_dim": 48},
    "openai-gpt": {},
}

UNWANTED = {"falcon": ("head_dim",), "gpt_neo": ("num_hidden_layers",)}
"""Of what is common, what a config will not take."""


def tiny(architecture: str, *, seed: int = 1, **overrides: Any) -> PreTrainedModel:
    """A model of that `model_type`, in float32 and evaluation mode, the same each time.

    overrides: fields of its config.
    """
    common = {key: COMMON[key] for key in COMMON.keys() - set(UNWANTED.get(architecture, ()))}
    special = (SERVED | REFUSED).get(architecture, {})
    config = AutoConfig.for_model(architecture, **{**common, **special, **overrides})
    auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that are not installed, and the like
        model: PreTrainedModel = auto.from_config(config)
    _draw(model, torch.Generator().manual_seed(seed))
    return model.eval()


@torch.no_grad()
def _draw(model: PreTrainedModel, source: torch.Generator) -> None:
    for weight in model.parameters():
        drawn = torch.randn(weight.shape, generator=source)
        if weight.ndim > 1:
            weight.copy_(drawn * 1.5 * weight.shape[-1] ** -0.5)
        else:
            weight.add_(drawn * 0.1)
