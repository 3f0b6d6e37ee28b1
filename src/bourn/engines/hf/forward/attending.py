"""The arithmetic of attention over slots: queries of a read against the positions it may see.

It knows tensors and reads; not which layer of which model asks, nor how a row came to its slot.
Queries of grouped heads are folded beside one another, so that keys are never repeated for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bourn.engines.hf.forward.layout import Chunk, Group, Read

_FLASH: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
"""What `scaled_dot_product_attention` calls on a CPU, which also tells the weights' sum. Internal
to torch, so it may be gone one day."""


class Terms(NamedTuple):
    """What a layer asks of its scores, beside which positions they are of.

    sinks: one score for each head, that takes its share of the softmax and adds nothing.
    """

    scaling: float | None = None
    softcap: float | None = None
    sinks: Tensor | None = None

    def beside(self, *shape: int) -> Terms:
        """With the sinks laid out as the scores are."""
        return self if self.sinks is None else self._replace(sinks=self.sinks.view(shape))


class Place(NamedTuple):
    """Where masks are needed, and as what."""

    device: torch.device
    dtype: torch.dtype


class View(NamedTuple):
    """Where a read lies: its tokens in the flat row, its slots and positions in what is kept."""

    tokens: slice
    slots: slice
    positions: slice


@dataclass(frozen=True, slots=True)
class ChunkLook:
    """What some tokens of one row see.

    mask: added to the scores; None where nothing is hidden but what lies ahead.
    """

    view: View
    mask: Tensor | None

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, terms: Terms) -> Tensor:
        """[its tokens, heads, dim of values], as `Look` says."""
        heads = keys.shape[2]
        asked = _folded(query, self.view, heads)
        keys, values = (
            kept[self.view.slots, self.view.positions]
            .permute(2, 0, 1, 3)
            .expand(-1, asked.shape[1], -1, -1)
            for kept in (keys, values)
        )
        terms = terms.beside(heads, -1, 1, 1)
        out = _weighed(asked, keys, values, terms, self.mask, causal=self.mask is None)
        return out.permute(2, 0, 1, 3).flatten(1, 2)


@dataclass(frozen=True, slots=True)
class LaterLook:
    """What some tokens of one row see that come after others, all of which they see.

    No mask is needed for that: once they look at those before, once among themselves, and what
    they saw is weighed by how much of the whole it was.
    masked: the same with a mask, for layers and devices where that cannot be told.
    """

    view: View
    past: int
    masked: Callable[[], ChunkLook]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, terms: Terms) -> Tensor:
        alike = keys.shape[3] == values.shape[3] and terms.softcap is None and terms.sinks is None
        if _FLASH is None or query.device.type != "cpu" or not alike:
            return self.masked().attend(query, keys, values, terms)
        asked = _folded(query, self.view, keys.shape[2])
        heads, each, tokens, _ = asked.shape
        keys, values = (
            kept[self.view.slots, self.view.positions].transpose(1, 2) for kept in (keys, values)
        )
        own_keys, own_values = (
            kept[0, :, None, self.past :].expand(-1, each, -1, -1) for kept in (keys, values)
        )
        own, its_weight = _with_weight(asked, own_keys, own_values, terms, causal=True)
        keys, values = keys[:, :, : self.past], values[:, :, : self.past]
        together = asked.reshape(1, heads, each * tokens, -1)
        past, past_weight = _with_weight(together, keys, values, terms, causal=False)
        share = torch.sigmoid(past_weight.view(heads, each, tokens, 1) - its_weight[..., None])
        out = torch.lerp(own, past.view_as(own), share.to(own.dtype))
        return out.permute(2, 0, 1, 3).flatten(1, 2)


@dataclass(frozen=True, slots=True)
class GroupLook:
    """What single tokens of rows see, whose slots are near one another.

    mask: added to the scores; None where all see as much.
    asked: for each slot, the row whose query it gets; told: the slots whose answers are wanted.
    Both None where each slot has a row.
    """

    view: View
    mask: Tensor | None
    asked: Tensor | None = None
    told: Tensor | None = None

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, terms: Terms) -> Tensor:
        heads = keys.shape[2]
        asked = _folded(query, self.view, heads).permute(2, 0, 1, 3)
        if self.asked is not None:
            asked = asked.index_select(0, self.asked)
        keys, values = (
            kept[self.view.slots, self.view.positions].transpose(1, 2) for kept in (keys, values)
        )
        out = _weighed(asked, keys, values, terms.beside(heads, -1, 1), self.mask)
        if self.told is not None:
            out = out.index_select(0, self.told)
        return out.flatten(1, 2)


Look = ChunkLook | LaterLook | GroupLook
"""A read made ready. `attend` takes the queries of the whole flat row, [heads, tokens, dim], and
all that is kept, [slots, positions, heads of theirs, dim]."""


def look(read: Read, view: View, window: int | None, place: Place) -> Look:
    """What a read sees, at most `window` positions back, its own included.

    view: its positions are all that the read may see; less where the window is shorter.
    """
    if isinstance(read, Chunk):
        return _chunk_look(read, view, window, place)
    return _group_look(read, view, window, place)


def _chunk_look(read: Chunk, view: View, window: int | None, place: Place) -> Look:
    if window is not None and window >= read.positions:
        window = None
    if window is None and not read.part.start:
        return ChunkLook(view, None)
    masked = cache(lambda: _masked_look(read, view, window, place))
    return LaterLook(view, read.part.start, masked) if window is None else masked()


def _masked_look(read: Chunk, view: View, window: int | None, place: Place) -> ChunkLook:
    start, end = read.part.start, read.part.end
    low = 0 if window is None else max(0, start + 1 - window)
    token = torch.arange(start, end, device=place.device)[:, None]
    seen = torch.arange(low, end, device=place.device)
    hidden = seen > token
    if window is not None:
        hidden |= seen <= token - window
    return ChunkLook(_without(view, low), _mask(hidden, place))


def _group_look(read: Group, view: View, window: int | None, place: Place) -> GroupLook:
    lengths, longest = read.lengths, read.positions
    low = 0 if window is None else max(0, min(lengths) - window)
    asked = told = mask = None
    if read.span > len(lengths):
        told = torch.tensor(read.offsets, device=place.device)
        asked = torch.zeros(read.span, dtype=torch.long, device=place.device)
        asked[told] = torch.arange(len(lengths), device=place.device)
    if min(lengths) < longest:
        ends = torch.full((read.span, 1, 1, 1), longest)
        ends[list(read.offsets), 0, 0, 0] = torch.tensor(lengths)
        ends = ends.to(place.device)
        seen = torch.arange(low, longest, device=place.device)
        hidden = seen >= ends
        if window is not None:
            hidden |= seen < ends - window
        mask = _mask(hidden, place)
    return GroupLook(_without(view, low), mask, asked, told)


def _without(view: View, low: int) -> View:
    start, stop = view.positions.start, view.positions.stop
    return view._replace(positions=slice(start + low, stop))


def _mask(hidden: Tensor, place: Place) -> Tensor:
    mask = torch.zeros(hidden.shape, dtype=place.dtype, device=place.device)
    return mask.masked_fill_(hidden, float("-inf"))


def _folded(query: Tensor, view: View, heads: int) -> Tensor:
    """[heads of keys, heads for each of them, tokens, dim]."""
    asked = query[:, view.tokens]
    return asked.view(heads, -1, *asked.shape[1:])


def _with_weight(
    query: Tensor, keys: Tensor, values: Tensor, terms: Terms, *, causal: bool
) -> tuple[Tensor, Tensor]:
    """What is seen, and the logarithm of how much that is, for each query."""
    seen = _FLASH(query, keys, values, 0.0, causal, scale=terms.scaling)
    return seen[0], seen[1]


def _weighed(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    terms: Terms,
    mask: Tensor | None,
    *,
    causal: bool = False,
) -> Tensor:
    """All with two batch dimensions first."""
    if terms.softcap is None and terms.sinks is None:
        return scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, is_causal=causal, scale=terms.scaling
        )
    scaling = query.shape[-1] ** -0.5 if terms.scaling is None else terms.scaling
    scores = (query @ keys.transpose(-1, -2)).float() * scaling
    if terms.softcap is not None:
        scores = torch.tanh(scores / terms.softcap) * terms.softcap
    if causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(ahead, float("-inf"))
    elif mask is not None:
        scores += mask
    if terms.sinks is not None:
        scores = torch.cat((scores, terms.sinks.expand(*scores.shape[:-1], 1)), dim=-1)
    weights = scores.softmax(-1)[..., : keys.shape[-2]]
    return weights.to(values.dtype) @ values
