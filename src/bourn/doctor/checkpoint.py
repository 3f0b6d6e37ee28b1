"""A checkpoint's folder: its files, its weights' shapes, and all checks of one, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from bourn.catalog import checkpoint
from bourn.doctor import chat, defaults, ending
from bourn.doctor.finding import (
    NEEDS_EXTRA,
    CannotTell,
    Checks,
    Finding,
    broken,
    note,
    ok,
    run,
    warning,
)
from bourn.doctor.folder import Folder
from bourn.errors import LoadFailed


def examine(folder: Folder) -> Iterator[Finding]:
    """What the files tell; no weight is loaded."""
    return run(CHECKS, folder)


# -- files -----------------------------------------------------------------------------------------

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt")


def files(folder: Folder) -> Finding:
    try:
        checkpoint.read(folder.path)
        folder.generation, folder.tokenizer_config  # noqa: B018  # to have them read
        tensors = len(folder.shapes)
    except (LoadFailed, CannotTell) as fault:
        said = str(fault).removeprefix(f"{folder.path} ")
        hint = getattr(fault, "hint", "") or "download it again"
        return broken(f"it {said}" if said != str(fault) else said, _CANNOT_LOAD, hint)
    if pickles := sorted(file.name for each in _PICKLES for file in folder.path.glob(each)):
        return note(
            f"beside safetensors there are pickles: {_some(pickles)}",
            "a pickle runs its writer's code when it is opened; bourn leaves these alone",
            "delete them, or see that nothing opens them",
        )
    return ok(f"{tensors:,} tensors in safetensors, and all of them there")


_CANNOT_LOAD = "the model cannot be loaded"


def code(folder: Folder) -> Finding:
    asked = {
        reference
        for told in (folder.config, folder.tokenizer_config)
        for reference in _references(told.get("auto_map"))
    }
    if not asked:
        return ok("it needs none of its own")
    return warning(
        f"it asks for code of its own: {_some(sorted(asked))}",
        "whoever wrote that code can do anything on this machine",
        "read it first; it is never run unless remote code is asked for",
    )


def _references(auto_map: object) -> Iterable[str]:
    """`module.Class`, singly or in lists, in whatever shape."""
    if isinstance(auto_map, str):
        return (auto_map,)
    values = auto_map.values() if isinstance(auto_map, dict) else auto_map
    return chain.from_iterable(map(_references, values)) if isinstance(values, Iterable) else ()


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# -- weights ---------------------------------------------------------------------------------------

_EMBEDDINGS = (
    "embed_tokens.weight",
    "wte.weight",
    "word_embeddings.weight",
    "tok_embeddings.weight",
    "embed_in.weight",
    "shared.weight",
    "embeddings.weight",
    "embedding.weight",
)


def vocabulary(folder: Folder) -> Finding:
    rows, stated = _rows(folder), folder.said("vocab_size")
    known: Mapping[str, int] = folder.vocabulary or folder.tokenizer.get_vocab()
    tokens = max(known.values(), default=-1) + 1
    if beyond := [text for text, id_ in known.items() if id_ >= rows]:
        return broken(
            f"{tokens:,} tokens, but {rows:,} rows of embeddings: {_some(beyond)} have none",
            "a text with such a token fails (index out of range), or gives nonsense",
            "take those tokens out, or model.resize_token_embeddings(len(tokenizer)) and train",
        )
    if isinstance(stated, int) and stated != rows:
        return broken(
            f"config.json says {stated:,} tokens, but there are {rows:,} rows of embeddings",
            "the weights do not fit the model that is made for them",
            f"set vocab_size to {rows} in config.json",
        )
    return ok(f"{tokens:,} tokens, {rows:,} rows of embeddings")


def _rows(folder: Folder) -> int:
    for ending_ in _EMBEDDINGS:
        for name, shape in folder.shapes.items():
            if name.endswith(ending_) and len(shape) == 2 and "position" not in name:
                return shape[0]
    raise CannotTell("none of the weights is known to be the embeddings")


def batching(folder: Folder) -> Finding:
    try:
        from transformers import AutoConfig

        from bourn.engines.hf.forward.support import config_refusal
    except ImportError:
        raise CannotTell(NEEDS_EXTRA) from None
    try:
        config = AutoConfig.from_pretrained(
            str(folder.path), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # noqa: BLE001  # damaged, or of a kind that it does not know
        raise CannotTell(str(error).splitlines()[0]) from None
    if refusal := config_refusal(config):
        return note(
            f"bourn cannot batch it: {refusal}",
            "requests are answered one after the other, by `generate`",
            "nothing is wrong with the answers; for many at once, serve it with vLLM",
        )
    return ok("many requests at once, in slots")


def _of_chat(check: Callable[[chat.Chat], Finding]) -> Callable[[Folder], Finding]:
    return lambda folder: check(folder.chat)


_CHAT: dict[str, Any] = {name: _of_chat(check) for name, check in chat.CHECKS.items()}

CHECKS: Checks[Folder] = {
    "files": files,
    "code": code,
    **_CHAT,
    **ending.CHECKS,
    **defaults.CHECKS,
    "vocabulary": vocabulary,
    "batching": batching,
}
