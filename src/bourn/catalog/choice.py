"""Which files of a repository are a model, and which of several is meant. By names, no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from bourn.errors import ModelNotFound

_PREFERRED = """
    Q4_K_M Q4_K_S Q4_K_L Q4_K_XL Q4_0 Q4_1 IQ4_NL IQ4_XS Q5_K_M Q5_K_S Q5_0 Q5_1 Q8_0
"""
PREFERRED = tuple(_PREFERRED.split())
"""Quantisations by preference where nobody says which: small and good before large and better."""

INDEX = "model.safetensors.index.json"
"""What tells which tensor of a split checkpoint is in which file."""

_SHOWN = 20

_PART = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf", re.IGNORECASE)
_QUANTISATION = re.compile(
    r"(?:^|[-._/])((?:IQ|TQ|Q)\d(?:_[A-Z0-9]+)*|BF16|FP?16|FP?32|(?:MX|NV)FP4(?:_MOE)?)(?=[-._/]|$)",
    re.IGNORECASE,
)
_SHARD = re.compile(r"(?!consolidated)[^/]+-\d{5}-of-\d{5}\.safetensors")
_BESIDE = re.compile(
    r"(?!pytorch_model)[^/]+\.(?:json|jinja|model|tiktoken)|merges\.txt|vocab\.txt"
    r"|additional_chat_templates/[^/]+\.jinja"
)
_CODE = re.compile(r"[^/]+\.py")
_COMPANION = re.compile(r"(?:^|[-._/])(?:mmproj|imatrix)", re.IGNORECASE)


def quantisation(name: str) -> str | None:
    """The quantisation that a file's name tells, in capitals."""
    told = _QUANTISATION.findall(name.removesuffix(".gguf"))
    return told[-1].upper() if told else None


def parts(name: str) -> tuple[str, ...]:
    """All files of the model that this one is a part of, in order; just itself if it is whole."""
    split = _PART.fullmatch(name)
    if not split:
        return (name,)
    count = int(split["parts"])
    return tuple(f"{split['stem']}-{part:05}-of-{count:05}.gguf" for part in range(1, count + 1))


def models(names: Iterable[str]) -> list[tuple[str, ...]]:
    """The models among the files: the files of each, the first part first; companions left out."""
    ggufs = [name for name in names if name.lower().endswith(".gguf")]
    return sorted({parts(name) for name in ggufs if not _COMPANION.search(name)})


def choose(
    names: Sequence[str], pick: str | None, where: str, *, joint: str = ":"
) -> tuple[str, ...]:
    """The files of the model that is meant by `pick`: a file's name, a quantisation, or nothing.

    where, joint: how the place is called, and joined to a file's name, in errors.

    Raises:
        ModelNotFound: none is meant, or several may be, or a part is missing; lists what is there.
    """
    there = models(names)
    meant = [model for model in there if _is_meant(model[0], pick)] if pick else _preferred(there)
    if len(meant) != 1:
        raise _not_one([model[0] for model in meant or there], pick, where, joint)
    (chosen,) = meant
    if missing := sorted(set(chosen) - set(names)):
        raise ModelNotFound(
            f"parts of {chosen[0]} are missing in {where}: {', '.join(missing)}",
            hint="all parts of a split model must lie in the same folder",
        )
    return chosen


# -- checkpoints -----------------------------------------------------------------------------------


def weights(names: Iterable[str]) -> list[str]:
    """The files of a checkpoint's weights, safetensors only; none where it has others or none."""
    there = sorted(names)
    if INDEX in there:
        return [name for name in there if _SHARD.fullmatch(name)]
    return [name for name in there if name == "model.safetensors"]


def companions(names: Iterable[str], *, code: bool = False) -> list[str]:
    """What a checkpoint has beside its weights: configuration, tokenizer, templates.

    code: its Python files too.
    """
    wanted = (_BESIDE, _CODE) if code else (_BESIDE,)
    return [name for name in sorted(names) if any(each.fullmatch(name) for each in wanted)]


# -- which GGUF file is meant ----------------------------------------------------------------------


def _is_meant(name: str, pick: str) -> bool:
    if pick.lower().endswith(".gguf"):
        return pick in parts(name) or PurePosixPath(pick).name == PurePosixPath(name).name
    return quantisation(name) == pick.upper()


def _preferred(there: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    if len(there) > 1:
        for wanted in PREFERRED:
            if meant := [model for model in there if quantisation(model[0]) == wanted]:
                return meant
    return there


def _not_one(names: list[str], pick: str | None, where: str, joint: str) -> ModelNotFound:
    if not names:
        return ModelNotFound(
            f"there is no GGUF file in {where}", hint="most models have a repository of GGUF files"
        )
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    which = f"no one file is `{pick}`" if pick else "there are several GGUF files"
    return ModelNotFound(
        f"{which} in {where}: {shown}", hint=f"say which, as in {where}{joint}{names[0]}"
    )
