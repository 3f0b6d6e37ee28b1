"""Tiny checkpoints on disk, as `save_pretrained` writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support import tiny_tokenizers

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SIZES: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def save(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_llama(folder: Path, *, dtype: torch.dtype | None = None, **config: object) -> Path:
    """A Llama of two layers, with weights by chance, always the same, and ChatML's tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = tiny_tokenizers.chatml()
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, vocab_size=len(tokenizer), **config))
    return save(folder, model.to(dtype or torch.float32), tokenizer)


def change(file: Path, **entries: object) -> None:
    """Other entries in a file of JSON; None takes one out."""
    told = json.loads(file.read_bytes()) | entries
    file.write_text(json.dumps({name: value for name, value in told.items() if value is not None}))
