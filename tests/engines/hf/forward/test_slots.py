from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bourn.engines.hf.forward.layout import Part
from bourn.engines.hf.forward.slots import ROOM, SlotLayer, Slots, Unservable
from bourn.engines.hf.step import Copy
from bourn.errors import EngineError

HEADS, KEY, VALUE = 2, 4, 3


def states(*tokens: float) -> tuple[Tensor, Tensor]:
    """Keys and values whose every number is the token."""
    flat = torch.tensor(tokens, dtype=torch.float32).view(1, 1, -1, 1)
    return flat.expand(1, HEADS, -1, KEY), flat.expand(1, HEADS, -1, VALUE)


def write(slots: Slots, *parts: Part, copies: tuple[Copy, ...] = ()) -> tuple[Tensor, Tensor]:
    slots.begin(copies, parts)
    return slots.update(*states(*(token for part in parts for token in part.ids)), layer_idx=0)


def held(kept: Tensor, slot: int, positions: int) -> list[float]:
    assert kept.dim() == 4
    return list(kept[slot, :positions, -1, -1].tolist())


def test_each_token_goes_to_its_slot_and_position() -> None:
    slots = Slots(3, 8)
    write(slots, Part(2, 0, (5, 6)), Part(0, 0, (7,)))
    keys, values = write(slots, Part(0, 1, (8,)), Part(2, 2, (9,)))
    for kept, dim in ((keys, KEY), (values, VALUE)):
        assert kept.shape == (3, 8, HEADS, dim)
        assert held(kept, 0, 3) == [7, 8, 0]
        assert held(kept, 2, 4) == [5, 6, 9, 0]


def test_layers_are_kept_apart_and_counted() -> None:
    slots = Slots(2, 8)
    assert slots.bytes_per_token == 0
    slots.begin((), [Part(0, 0, (1,))])
    first, _ = slots.update(*states(1), layer_idx=0)
    second, _ = slots.update(*states(2), layer_idx=1)
    assert (held(first, 0, 1), held(second, 0, 1)) == ([1], [2])
    assert slots.bytes_per_token == 2 * HEADS * (KEY + VALUE) * 4
    assert slots.owns(first)
    assert slots.owns(second)
    assert not slots.owns(first.clone())


def test_a_beginning_is_copied_before_anything_is_written() -> None:
    slots = Slots(3, 8)
    write(slots, Part(0, 0, (5, 6, 7)))
    keys, _ = write(slots, Part(0, 0, (1,)), Part(1, 2, (9,)), copies=(Copy(0, 1, 2),))
    assert held(keys, 1, 3) == [5, 6, 9]
    assert held(keys, 0, 3) == [1, 0, 0]


def test_what_an_earlier_row_left_is_wiped() -> None:
    """Beyond a row's own positions nothing is ever read but zeros."""
    slots = Slots(2, 8)
    nan = float("nan")
    slots.begin((), [Part(0, 0, range(5))])
    slots.update(*states(nan, nan, nan, nan, nan), layer_idx=0)
    keys, values = write(slots, Part(0, 0, (1, 2)))
    assert held(keys, 0, 8) == [1, 2, 0, 0, 0, 0, 0, 0]
    assert held(values, 0, 8) == [1, 2, 0, 0, 0, 0, 0, 0]


def test_gathered_rows_lie_one_after_another() -> None:
    slots = Slots(3, 8, gathered=True)
    write(slots, Part(2, 0, (5, 6)), Part(0, 0, (7,)))
    keys, values = write(slots, Part(2, 2, (8,)), Part(0, 1, (9,)))
    assert keys.shape == (1, HEADS, 5, KEY)
    assert values[0, 0, :, 0].tolist() == [5, 6, 8, 7, 9]


def test_a_row_must_fit_its_slot() -> None:
    slots = Slots(1, 4)
    with pytest.raises(EngineError, match="5 positions do not fit a slot of 4"):
        slots.begin((), [Part(0, 3, (1, 2))])


def test_elsewhere_than_on_a_cpu_room_is_made_in_steps() -> None:
    like = torch.empty(1, HEADS, 1, KEY, device="meta")
    layer = SlotLayer(2, 1000)
    rooms = []
    for positions in (1, ROOM + 1, 999):
        layer.make_room(positions, like, like)
        rooms.append((layer.room, layer.keys.shape[1]))
    assert rooms == [(ROOM, ROOM), (2 * ROOM, 2 * ROOM), (1000, 1000)]


def test_what_is_there_stays_when_room_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bourn.engines.hf.forward.slots._PRIVATE", 0)
    slots = Slots(2, 4 * ROOM)
    write(slots, Part(1, 0, (5, 6)))
    keys, values = write(slots, Part(1, 2, range(ROOM)), Part(0, 0, (7,)))
    assert keys.shape[1] == 2 * ROOM
    assert held(values, 1, 4) == [5, 6, 0, 1]
    assert held(keys, 0, 2) == [7, 0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_as_well() -> None:
    slots = Slots(2, 4 * ROOM)
    slots.begin((), [Part(1, 0, range(ROOM + 1))])
    keys, values = states(*range(ROOM + 1))
    keys, _ = slots.update(keys.cuda(), values.cuda(), 0)
    assert keys.is_cuda
    assert held(keys, 1, 3) == [0, 1, 2]


ASKED: list[tuple[str, Callable[[Slots], object]]] = [
    ("keep a recurrent state", lambda slots: slots.has_previous_state(0)),
    ("be reordered", lambda slots: slots.reorder_cache(torch.tensor([0]))),
    ("be cropped", lambda slots: slots.crop(-1)),
    ("be repeated", lambda slots: slots.batch_repeat_interleave(2)),
    ("be selected from", lambda slots: slots.batch_select_indices(torch.tensor([0]))),
    ("be reset", lambda slots: slots.reset()),
    ("be made beforehand", lambda slots: slots.layers[0].lazy_initialization()),
    ("be written layer by layer", lambda slots: slots.layers[0].update()),
]


@pytest.mark.parametrize(("what", "ask"), ASKED, ids=[what for what, _ in ASKED])
def test_what_slots_cannot_do_is_an_error(what: str, ask: Callable[[Slots], object]) -> None:
    slots = Slots(1, 4)
    write(slots, Part(0, 0, (1,)))
    with pytest.raises(Unservable) as caught:
        ask(slots)
    assert caught.value.why == f"its cache was to {what}"


@pytest.mark.parametrize("state", ["conv", "recurrent"])
def test_other_states_are_an_error(state: str) -> None:
    slots = Slots(1, 4)
    write(slots, Part(0, 0, (1,)))
    with pytest.raises(ValueError, match="layer"):
        getattr(slots, f"update_{state}_state")(torch.zeros(1), 0)
