"""A model's forward, compiled for passes in which each row adds one token.

It knows the model and how many tokens a pass has, nothing of rows. Attention stays what it is: one
operation that the compiler does not see into, as are packed linear layers; all between is fused.
A compiled pass takes one number of tokens. There are a few, and what has fewer tokens is filled up.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from itertools import count
from typing import Any

import torch
from platformdirs import user_cache_path
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache

from bourn.engines.hf.forward.attending import Terms
from bourn.engines.hf.forward.attention import attention, mark, marked, mask, running
from bourn.engines.hf.forward.lending import COMPILED
from bourn.errors import LoadFailed

BACKEND = "inductor"
SIZES = (1, 8)
"""Numbers of tokens that are compiled for, as far as there are slots; their number is one too."""


class Compiled:
    """The forward of a model whose attention is lent under COMPILED.

    cache_name: what the model calls the argument that its cache is.

    Raises:
        LoadFailed: there is nothing to compile with.
    """

    def __init__(self, model: Any, *, slots: int, cache_name: str, device: torch.device) -> None:
        _check(device)
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(user_cache_path("bourn") / "compiled"))
        self.sizes = (*(size for size in SIZES if size < slots), slots)
        self._device = device
        self._number = next(_numbers)
        self._given = {cache_name: Through(), "use_cache": True}
        self._model = model
        self._compiled = torch.compile(
            self._forward,
            backend=BACKEND,
            dynamic=False,
            options={"guard_filter_fn": _arguments_only},
        )

    def read(self, ids: Sequence[int], positions: Sequence[int]) -> Tensor:
        """[tokens, vocabulary]. The first call for a size takes long.

        It must be made where a `Passing` is `fresh`.
        """
        size = next(size for size in self.sizes if size >= len(ids))
        filling = [0] * (size - len(ids))
        row, places = (
            torch.tensor([[*given, *filling]], device=self._device) for given in (ids, positions)
        )
        logits: Tensor = self._compiled(row, places, self._number)
        return logits[: len(ids)]

    def _forward(self, ids: Tensor, positions: Tensor, number: int) -> Tensor:
        del number  # tells one model's code from another's, for the compiler
        logits: Tensor = self._model(input_ids=ids, position_ids=positions, **self._given).logits[0]
        return logits


class Through(Cache):  # type: ignore[misc]  # transformers is not typed
    """Keeps nothing: what it is given goes on to the attention, which does."""

    def __init__(self) -> None:
        super().__init__(layers=[])

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        del layer_idx
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        del layer_idx
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        del layer_idx
        return query_length, 0


def _check(device: torch.device) -> None:
    compilers = (os.environ.get("CXX"), "g++", "clang++", "c++", "cl")
    if device.type == "cpu" and not any(name and shutil.which(name) for name in compilers):
        raise LoadFailed(
            "there is no C++ compiler here, and to compile a model for a CPU takes one",
            hint="install g++ or clang++, or leave --compile out",
        )


def _arguments_only(guards: Sequence[Any]) -> list[bool]:
    """Whether to look at a thing before each pass: the model is ours, and does not change."""
    return [guard.name in {"ids", "positions", "number"} for guard in guards]


_numbers = count()
_library: Any = torch.library.Library("bourn", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define(
    "attend(Tensor query, Tensor key, Tensor value, int layer, int window, float? scaling,"
    " float? softcap, Tensor? sinks) -> Tensor"
)


def _attend(  # the schema above
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layer: int,
    window: int,
    *terms: Any,
) -> Tensor:
    now = running()
    if now is None:
        raise RuntimeError("a compiled pass runs where none was begun")
    return now.keep_and_attend(layer, (query, key, value), window or None, Terms(*terms))


def _like_attend(query: Tensor, key: Tensor, value: Tensor, *_: object) -> Tensor:
    del key
    return query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])


_library.impl("attend", _attend, "CompositeExplicitAutograd")
torch.library.register_fake("bourn::attend", _like_attend, lib=_library)


def _compiled_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    **given: Any,
) -> tuple[Tensor, Tensor | None]:
    """As `attention`. What it checks was checked there, when the same model was tried."""
    if not torch.compiler.is_compiling() and not _fresh():
        return attention(module, query, key, value, attention_mask, **given)
    terms = (given.get("scaling"), given.get("softcap"), given.get("s_aux"))
    window = marked(attention_mask) or 0
    layer: Any = module.layer_idx
    out: Tensor = torch.ops.bourn.attend(query, key, value, layer, window, *terms)
    return out, None


def _compiled_mask(local_size: int | None = None, **given: Any) -> Tensor | None:
    if torch.compiler.is_compiling():
        return mark(local_size)
    return mask(local_size=local_size, **given)


def _fresh() -> bool:
    now = running()
    return now is not None and now.fresh


AttentionInterface.register(COMPILED, _compiled_attention)
AttentionMaskInterface.register(COMPILED, _compiled_mask)
