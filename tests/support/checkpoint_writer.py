"""Writes folders that look like a Hugging Face checkpoint; the weights are a few bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def write_checkpoint(
    folder: Path, config: Mapping[str, object] | None = None, *, template: bool = True
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    usual = {"max_position_embeddings": 4096, "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(usual if config is None else config))
    (folder / "model.safetensors").write_bytes(bytes(8))
    told = {"chat_template": "{{ messages }}"} if template else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder
