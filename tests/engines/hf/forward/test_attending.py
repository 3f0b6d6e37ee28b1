"""Every way of attending gives what the plain formula gives."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bourn.engines.hf.forward.attending import LaterLook, Place, Terms, View, look
from bourn.engines.hf.forward.layout import Chunk, Part, Read, arrange

SLOTS, ROOM, DIM = 6, 48, 8
PLACE = Place(torch.device("cpu"), torch.float32)


def by_the_formula(
    query: Tensor, keys: Tensor, values: Tensor, window: int | None, terms: Terms
) -> Tensor:
    """One token, [heads, dim], that comes after all but the last of [positions, heads, dim]."""
    if window is not None:
        keys, values = keys[-window:], values[-window:]
    each = query.shape[0] // keys.shape[1]
    keys, values = (kept.repeat_interleave(each, dim=1) for kept in (keys, values))
    scores = torch.einsum("hd,phd->hp", query, keys) * (terms.scaling or query.shape[-1] ** -0.5)
    if terms.softcap is not None:
        scores = torch.tanh(scores / terms.softcap) * terms.softcap
    if terms.sinks is not None:
        scores = torch.cat((scores, terms.sinks[:, None]), dim=1)
    return torch.einsum("hp,phd->hd", scores.softmax(1)[:, : keys.shape[0]], values)


def views(reads: Sequence[Read]) -> list[View]:
    token, made = 0, []
    for read in reads:
        slots = slice(read.slot, read.slot + read.span)
        made.append(View(slice(token, token + read.tokens), slots, slice(0, read.positions)))
        token += read.tokens
    return made


rows = st.lists(
    st.tuples(st.integers(0, SLOTS - 1), st.integers(0, 40), st.sampled_from([1, 1, 1, 2, 7])),
    min_size=1,
    max_size=SLOTS,
    unique_by=lambda row: row[0],
)
heads = st.sampled_from([(4, 4), (4, 2), (6, 2), (4, 1)])
windows = st.none() | st.integers(1, 50)


@settings(deadline=None)
@given(
    drawn=rows,
    heads=heads,
    window=windows,
    call=st.sampled_from([-1, 10, 10**6]),
    softcap=st.none() | st.just(2.0),
    sinks=st.booleans(),
    values_dim=st.sampled_from([DIM, 5]),
)
def test_all_ways_are_the_formula(
    *,
    drawn: list[tuple[int, int, int]],
    heads: tuple[int, int],
    window: int | None,
    call: int,
    softcap: float | None,
    sinks: bool,
    values_dim: int,
) -> None:
    source = torch.Generator().manual_seed(len(drawn) + call)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source)

    parts = [Part(slot, start, range(count)) for slot, start, count in drawn]
    reads = arrange(parts, call)
    query = random(heads[0], sum(read.tokens for read in reads), DIM)
    keys, values = (random(SLOTS, ROOM, heads[1], dim) for dim in (DIM, values_dim))
    terms = Terms(0.7, softcap, random(heads[0]) if sinks else None)
    for read, view in zip(reads, views(reads), strict=True):
        out = look(read, view, window, PLACE).attend(query, keys, values, terms)
        asked = iter(range(view.tokens.start, view.tokens.stop))
        right = [
            by_the_formula(
                query[:, next(asked)],
                keys[parts[index].slot, : position + 1],
                values[parts[index].slot, : position + 1],
                window,
                terms,
            )
            for index in read.members
            for position in range(parts[index].start, parts[index].end)
        ]
        torch.testing.assert_close(out, torch.stack(right), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_later_chunk_needs_no_mask(dtype: torch.dtype) -> None:
    """And makes none, but says the same as with one."""
    read = Chunk(0, Part(0, 30, range(9)))
    view = View(slice(0, 9), slice(0, 1), slice(0, 39))
    query = torch.randn(6, 9, DIM).to(dtype)
    keys, values = (torch.randn(1, ROOM, 2, DIM).to(dtype) for _ in range(2))
    later = look(read, view, None, Place(torch.device("cpu"), dtype))
    assert isinstance(later, LaterLook)
    masked = later.masked().attend(query, keys, values, Terms())
    off = (later.attend(query, keys, values, Terms()) - masked).abs().max()
    assert off <= 4 * torch.finfo(dtype).eps
