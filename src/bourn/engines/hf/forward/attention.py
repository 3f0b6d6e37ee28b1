"""Attention over slots: each row of a flat pass looks at its own positions, and only there.

Registered with transformers under bourn's name. Where no pass of ours runs in this thread (the user
calls the model directly) it does what the model did before. It knows reads and tensors, and nothing
of requests.

The mask that a model asks for is not made. A mark is returned in its place, which says how far back
the model wants to look, and comes back with the attention call of each layer: so the window is that
of the model's own mask, whatever else it says. A mask that means something else is an error.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function, sliding_window_causal_mask_function

from bourn.engines.hf.forward.attending import Look, Place, Terms, View, look
from bourn.engines.hf.forward.layout import Read
from bourn.engines.hf.forward.lending import NAME, before
from bourn.engines.hf.forward.slots import Slots, Unservable

Function = Callable[..., Any]

KNOWN = frozenset(
    {"scaling", "softcap", "s_aux", "is_causal"}  # heeded
    | {"dropout", "sliding_window"}  # there is none outside training; the mask has it
    | {"position_ids", "cache_position", "use_cache"}  # of no meaning here
)
"""Arguments of an attention call. Any other is refused."""

OTHER = -1
"""Stands for a window where a mask is no window at all."""


class Passing:
    """One pass of the model over the reads of a step.

    calls: how often attention was called so far: once for each layer, in the end.
    fresh: whether keys and values come to it that no cache has seen (`keep_and_attend`).
    """

    def __init__(self, slots: Slots, reads: Sequence[Read], *, fresh: bool = False) -> None:
        self.calls = 0
        self.fresh = fresh
        self._slots = slots
        self._reads = reads
        self._looks: dict[tuple[int | None, Place], list[Look]] = {}
        self._marks: dict[int | None, Tensor] = {}

    def mark(self, window: int | None) -> Tensor:
        if window not in self._marks:
            self._marks[window] = mark(window)
        return self._marks[window]

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, window: int | None, terms: Terms
    ) -> Tensor:
        """[1, tokens, heads, dim] for a query of [1, heads, tokens, dim]."""
        self.calls += 1
        if self._slots.gathered:
            keys, values = keys.transpose(1, 2), values.transpose(1, 2)
        elif not self._slots.owns(keys):
            raise Unservable("it attends to something made of its cache, not to what that holds")
        key = (window, Place(query.device, query.dtype))
        looks = self._looks.get(key)
        if looks is None:  # made at the first layer that wants them
            looks = self._looks[key] = list(self._ready(*key))
        outs = [look.attend(query[0], keys, values, terms) for look in looks]
        return (outs[0] if len(outs) == 1 else torch.cat(outs))[None]

    def keep_and_attend(
        self, layer: int, new: tuple[Tensor, Tensor, Tensor], window: int | None, terms: Terms
    ) -> Tensor:
        """For queries, keys and values that no cache has seen, [1, heads, tokens, dim] each.

        Tokens after those of the reads are filling: nothing is kept of them, they are told zeros.
        """
        tokens = sum(read.tokens for read in self._reads)
        query, keys, values = (one[:, :, :tokens] for one in new)
        kept = self._slots.update(keys, values, layer)
        out = self.attend(query, *kept, window, terms)
        if tokens == new[0].shape[2]:
            return out
        filled = out.new_zeros(1, new[0].shape[2], *out.shape[2:])
        filled[:, :tokens] = out
        return filled

    def _ready(self, window: int | None, place: Place) -> Iterator[Look]:
        token = row = 0
        for read in self._reads:
            tokens = slice(token, token := token + read.tokens)
            if self._slots.gathered:
                view = View(tokens, slice(0, 1), slice(row, row := row + read.positions))
            else:
                slots = slice(read.slot, read.slot + read.span)
                view = View(tokens, slots, slice(0, read.positions))
            yield look(read, view, window, place)


class _Here(threading.local):
    passing: Passing | None = None


_here = _Here()


@contextmanager
def passing(now: Passing) -> Iterator[None]:
    """What this thread's models attend to, for the length of one forward."""
    _here.passing = now
    try:
        yield
    finally:
        _here.passing = None


def running() -> Passing | None:
    """What this thread's models attend to now; None where nobody's pass runs."""
    return _here.passing


def lender(module: nn.Module) -> Function:
    """The attention that a module's model had before.

    Raises:
        Unservable: its own is not where it can be found.
    """
    scope = _scope(type(module).forward)
    name = before(module.config)
    if name != "eager":
        return scope.get("ALL_ATTENTION_FUNCTIONS", AttentionInterface())[name]  # type: ignore[no-any-return]
    if "eager_attention_forward" not in scope:
        raise Unservable("its own attention cannot be found, to be used where slots are not")
    return scope["eager_attention_forward"]  # type: ignore[no-any-return]


@cache
def _scope(forward: Function) -> dict[str, Any]:
    """The names that it sees."""
    names: dict[str, Any] = inspect.unwrap(forward).__globals__
    return names


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    **given: Any,
) -> tuple[Tensor, Tensor | None]:
    """What a layer of the model calls."""
    now = _here.passing
    if now is None:
        return lender(module)(module, query, key, value, attention_mask, **given)  # type: ignore[no-any-return]
    _check(module, given)
    terms = Terms(given.get("scaling"), given.get("softcap"), given.get("s_aux"))
    return now.attend(query, key, value, marked(attention_mask), terms), None


def _check(module: nn.Module, given: dict[str, Any]) -> None:
    lender(module)
    if given.get("is_causal") is False or not getattr(module, "is_causal", True):
        raise Unservable("a layer of it looks ahead")
    for name, value in given.items():
        if value is not None and value is not False and name not in KNOWN:
            raise Unservable(f"its attention takes `{name}`")


def mark(window: int | None) -> Tensor:
    """What goes for a mask: its length tells the window, also on another device."""
    shape = (1, 1) if window == OTHER else (1 + (window or 0), 1, 1, 1)
    return torch.zeros((), dtype=torch.bool).expand(shape)


def marked(mask: Tensor | None) -> int | None:
    """The window that a mark stands for."""
    if mask is None or mask.dtype is not torch.bool or mask.shape[1:] != (1, 1, 1):
        raise Unservable("its attention mask is neither causal nor a sliding window")
    return mask.shape[0] - 1 or None


def mask(**given: Any) -> Tensor | None:
    """What the model's `create_causal_mask` and the like call, all by name."""
    now = _here.passing
    if now is None:
        return AttentionMaskInterface()[before(given["config"])](**given)  # type: ignore[no-any-return]
    return now.mark(_window(**given))


def _window(
    mask_function: Function,
    local_size: int | None = None,
    attention_mask: Tensor | None = None,
    **_: object,
) -> int | None:
    """How far back a mask lets look; OTHER where it is of another kind.

    Models make masks that none of their layers uses, so that is no error yet.
    """
    if attention_mask is not None and not attention_mask.all():
        return OTHER
    if local_size is None:
        return None if mask_function is causal_mask_function else OTHER
    return local_size if _slides(mask_function, local_size) else OTHER


def _slides(function: Function, window: int) -> bool:
    """Whether a mask function is the sliding window: of its making, and right at its edges."""
    if window < 1 or function.__code__ is not sliding_window_causal_mask_function(window).__code__:
        return False
    tokens = torch.tensor([window, window, window, window - 1, 0])
    positions = torch.tensor([0, 1, window, 0, 1])
    zeros = torch.zeros_like(tokens)
    right = [False, True, True, True, False]
    return bool(function(zeros, zeros, tokens, positions).tolist() == right)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, mask)
