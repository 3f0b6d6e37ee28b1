"""What a checkpoint's folder says of itself: its JSON files, the weights untouched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bourn.errors import LoadFailed


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """What the folder tells. window: tokens. quantisation: how weights are stored, "bfloat16"."""

    window: int | None = None
    quantisation: str | None = None
    chat_template: bool = False


def is_checkpoint(folder: Path) -> bool:
    """Whether transformers could load this folder: a configuration, and weights beside it."""
    weights = (*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin"))
    return (folder / "config.json").is_file() and any(file.exists() for file in weights)


def read(folder: Path) -> CheckpointFacts:
    """The facts in a checkpoint's folder.

    Raises:
        LoadFailed: its configuration is damaged, or weights are missing.
    """
    config = _json(folder / "config.json")
    _check_weights(folder)
    text = _mapping(config.get("text_config")) or config
    window = text.get("max_position_embeddings") or text.get("n_positions")
    method = _mapping(config.get("quantization_config")).get("quant_method")
    stored = method or text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype")
    return CheckpointFacts(
        window=window if isinstance(window, int) else None,
        quantisation=stored if isinstance(stored, str) else None,
        chat_template=_has_template(folder),
    )


def size(folder: Path) -> int:
    """Bytes of all its files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _check_weights(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return
    shards = set(map(str, _mapping(_json(index).get("weight_map")).values()))
    if missing := sorted(shard for shard in shards if not (folder / shard).exists()):
        raise LoadFailed(
            f"{folder} lacks {', '.join(missing[:3])}{', …' if missing[3:] else ''}",
            hint="download it again, to its end",
        )


def _has_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    tokenizer = folder / "tokenizer_config.json"
    return tokenizer.is_file() and bool(_json(tokenizer).get("chat_template"))


def _json(path: Path) -> Mapping[str, object]:
    try:
        told = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise LoadFailed(f"{path} is damaged: {error}", hint="download it again") from None
    return _mapping(told)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
