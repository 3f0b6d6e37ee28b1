"""What a checkpoint's folder says of itself: its JSON files, the weights untouched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bourn.catalog.choice import INDEX
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


def is_whole(folder: Path, *, code: bool = False) -> bool:
    """Whether all that bourn loads of it is there. code: Python files that it names, too."""
    if not is_checkpoint(folder):
        return False
    try:
        config = configuration(folder)
        check_weights(folder)
    except LoadFailed:
        return False
    return not code or all((folder / file).exists() for file in _code(config))


def _code(config: Mapping[str, object]) -> list[str]:
    """The Python files of its own that a configuration names; `org/name--` is elsewhere."""
    named = [name for name in _mapping(config.get("auto_map")).values() if isinstance(name, str)]
    return [f"{name.rpartition('.')[0]}.py" for name in named if "--" not in name]


def read(folder: Path) -> CheckpointFacts:
    """The facts in a checkpoint's folder.

    Raises:
        LoadFailed: its configuration is damaged, or weights are missing, or pickled only.
    """
    config = configuration(folder)
    check_weights(folder)
    text = _mapping(config.get("text_config")) or config
    window = text.get("max_position_embeddings") or text.get("n_positions")
    stored = (
        quantised(config)
        or text.get("dtype")
        or text.get("torch_dtype")
        or config.get("torch_dtype")
    )
    return CheckpointFacts(
        window=window if isinstance(window, int) else None,
        quantisation=stored if isinstance(stored, str) else None,
        chat_template=_has_template(folder),
    )


def configuration(folder: Path) -> Mapping[str, object]:
    """Its `config.json`.

    Raises:
        LoadFailed: it is damaged, or not there.
    """
    return _json(folder / "config.json")


def quantised(config: Mapping[str, object]) -> str | None:
    """How the weights of this configuration are quantised, "awq"; None where they are not."""
    method = _mapping(config.get("quantization_config")).get("quant_method")
    return str(method) if method else None


def size(folder: Path) -> int:
    """Bytes of all its files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def check_weights(folder: Path) -> None:
    """See that its weights are there, by the names of the files.

    Raises:
        LoadFailed: some are missing; or they are pickled only, which runs code when it is read.
    """
    if (folder / INDEX).is_file():
        shards = set(map(str, _mapping(_json(folder / INDEX).get("weight_map")).values()))
        if missing := sorted(shard for shard in shards if not (folder / shard).exists()):
            raise LoadFailed(
                f"{folder} lacks {', '.join(missing[:3])}{', …' if missing[3:] else ''}",
                hint="download it again, to its end",
            )
    elif not any(file.exists() for file in folder.glob("*.safetensors")):
        raise _without_weights(folder)


def _without_weights(folder: Path) -> LoadFailed:
    if not any(next(folder.glob(pattern), None) for pattern in ("*.bin", "*.pt", "*.pth")):
        return LoadFailed(f"{folder} has no weights", hint="download it again, to its end")
    where = repr(str(folder))
    return LoadFailed(
        f"{folder} has its weights in pickled files only, and reading those can run code",
        hint='where you trust it, convert it once: python -c "from transformers import '
        f'AutoModelForCausalLM as M; M.from_pretrained({where}).save_pretrained({where})"',
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
