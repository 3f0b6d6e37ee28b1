"""Keys and values of every row, kept in slots: one tensor for each, layer by layer.

A transformers cache whose rows stand at positions of their own. It knows where things are kept,
and nothing of how they are attended; what slots cannot do is an error, never a guess.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import NoReturn

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from bourn.engines.hf.forward.layout import Part
from bourn.engines.hf.step import Copy
from bourn.errors import EngineError

ROOM = 256
"""Positions there is room for at first, where room is made in steps."""

_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


class Unservable(EngineError):
    """The model asks of the slots what they cannot do. `why`: a sentence that begins with "it"."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"slots cannot serve this model: {why}",
            hint="it is served by `generate` instead, one answer at a time",
        )
        self.why = why


class Slots(Cache):  # type: ignore[misc]  # transformers is not typed
    """`count` slots of `window` positions, in layers that come to be as the model writes them.

    `begin` says where the tokens of the next pass belong; then `update`, which each layer of the
    model calls, writes them there and returns all slots, [slots, positions, heads, dim] each.
    With `gathered` it returns what the rows of this pass hold, one after another,
    [1, heads, positions, dim]: for models that keep something compressed and unfold it before
    they attend.

    On a CPU memory is taken as it is written (but on Windows). Elsewhere room is made in steps, up
    to the window.
    """

    def __init__(self, count: int, window: int, *, gathered: bool = False) -> None:
        super().__init__(layers=[])
        self.count = count
        self.window = window
        self.gathered = gathered
        self._ends = [0] * count
        self._parts: Sequence[Part] = ()
        self._needed = 0
        self._kept: set[int] = set()  # ids of the layers' keys
        self._written: dict[tuple[torch.device, int], Tensor] = {}
        self._held: dict[tuple[torch.device, int], Tensor] = {}

    @property
    def bytes_per_token(self) -> int:
        """What one position of one slot takes, in all layers; 0 before the first pass."""
        return sum(layer.bytes_per_token for layer in self.layers)

    def begin(self, copies: Iterable[Copy], parts: Sequence[Part]) -> None:
        """Make the copies, and say where the next pass writes.

        parts: in the order in which their tokens lie.

        Raises:
            EngineError: a row goes beyond its slot.
        """
        self._needed = max((part.end for part in parts), default=0)
        if self._needed > self.window:
            raise EngineError(f"{self._needed} positions do not fit a slot of {self.window}")
        for copy in copies:
            self._copy(copy)
        for part in parts:
            self._wipe(part.slot, part.start)
            self._ends[part.slot] = part.end
        self._parts = parts
        self._written.clear()
        self._held.clear()

    def owns(self, keys: Tensor) -> bool:
        """Whether it is what `update` returned, not something made of it."""
        return id(keys) in self._kept

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Write [1, heads, tokens, dim] where they belong; what to attend to."""
        while len(self.layers) <= layer_idx:
            self.layers.append(SlotLayer(self.count, self.window))
        layer: SlotLayer = self.layers[layer_idx]
        if layer.room < self._needed:
            layer.make_room(self._needed, key_states, value_states)
            self._kept = {id(one.keys) for one in self.layers}
        layer.write(self._places(layer, self._written, _new), key_states, value_states)
        if not self.gathered:
            return layer.keys, layer.values
        held = self._places(layer, self._held, _all)
        return layer.picked(held)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """None: each row has a length of its own, told to the model as position ids."""
        del layer_idx
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Of no meaning: no mask is made of it."""
        del layer_idx
        return query_length, 0

    def get_max_length(self, layer_idx: int | None = None) -> int:
        del layer_idx
        return self.window

    get_max_cache_shape = get_max_length  # its name before transformers 5.24

    def has_previous_state(self, *_: object, **__: object) -> NoReturn:
        _refuse("keep a recurrent state")

    def reorder_cache(self, *_: object, **__: object) -> NoReturn:
        _refuse("be reordered")

    def crop(self, *_: object, **__: object) -> NoReturn:
        _refuse("be cropped")

    def batch_repeat_interleave(self, *_: object, **__: object) -> NoReturn:
        _refuse("be repeated")

    def batch_select_indices(self, *_: object, **__: object) -> NoReturn:
        _refuse("be selected from")

    def reset(self) -> NoReturn:
        _refuse("be reset")

    def _copy(self, copy: Copy) -> None:
        for layer in self.layers:
            layer.copy(copy)
        self._ends[copy.target] = max(self._ends[copy.target], copy.length)

    def _wipe(self, slot: int, start: int) -> None:
        """What an earlier row left there is masked beside longer rows, but a NaN would show."""
        end = self._ends[slot]
        if start < end:
            for layer in self.layers:
                layer.wipe(slot, start, end)

    def _places(
        self,
        layer: SlotLayer,
        made: dict[tuple[torch.device, int], Tensor],
        positions: Callable[[Part], range],
    ) -> Tensor:
        """Positions of this pass's rows, in all slots laid end to end. Made once for all layers."""
        key = (layer.keys.device, layer.room)
        if key not in made:
            places = [
                part.slot * layer.room + position
                for part in self._parts
                for position in positions(part)
            ]
            made[key] = torch.tensor(places, device=layer.keys.device)
        return made[key]


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is not typed
    """One layer. Positions come before heads, so that the beginning of a row is one block."""

    keys: Tensor
    values: Tensor
    _flat: list[Tensor]  # the same, slots laid end to end

    def __init__(self, slots: int, window: int) -> None:
        super().__init__()
        self._slots = slots
        self._window = window
        self.room = 0

    @property
    def bytes_per_token(self) -> int:
        kept = (self.keys, self.values) if self.room else ()
        return sum(prod(one.shape[2:]) * one.element_size() for one in kept)

    def make_room(self, positions: int, key_states: Tensor, value_states: Tensor) -> None:
        """So many positions a slot, for tensors such as these, [1, heads, tokens, dim]."""
        room = self._window
        if not _lazy(key_states):
            room = min(room, max(ROOM, positions, 2 * self.room))
        old = (self.keys, self.values) if self.room else ()
        self.keys, self.values = (
            _zeros((self._slots, room, like.shape[1], like.shape[3]), like)
            for like in (key_states, value_states)
        )
        for new, kept in zip((self.keys, self.values), old, strict=False):
            new[:, : self.room] = kept
        self.room = room
        self._flat = [kept.view(1, -1, *kept.shape[2:]) for kept in (self.keys, self.values)]
        self.is_initialized = True

    def write(self, places: Tensor, key_states: Tensor, value_states: Tensor) -> None:
        keys, values = self._flat
        keys.index_copy_(1, places, key_states.transpose(1, 2))
        values.index_copy_(1, places, value_states.transpose(1, 2))

    def picked(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """What is kept at these places, [1, heads, places, dim] each."""
        keys, values = (kept.index_select(1, places).transpose(1, 2) for kept in self._flat)
        return keys, values

    def copy(self, copy: Copy) -> None:
        for kept in (self.keys, self.values):
            kept[copy.target, : copy.length] = kept[copy.source, : copy.length]

    def wipe(self, slot: int, start: int, end: int) -> None:
        for kept in (self.keys, self.values):
            kept[slot, start:end] = 0

    def lazy_initialization(self, *_: object, **__: object) -> NoReturn:
        _refuse("be made beforehand")

    def update(self, *_: object, **__: object) -> NoReturn:
        _refuse("be written layer by layer")

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self._window

    get_max_cache_shape = get_max_length  # its name before transformers 5.24


def _new(part: Part) -> range:
    return range(part.start, part.end)


def _all(part: Part) -> range:
    return range(part.end)


def _lazy(like: Tensor) -> bool:
    """Whether the system gives memory for such a tensor bit by bit, as it is written."""
    return bool(_PRIVATE) and like.device.type == "cpu"


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    if not _lazy(like):
        return torch.zeros(shape, dtype=like.dtype, device=like.device)
    pages = mmap.mmap(-1, prod(shape) * like.element_size(), flags=_PRIVATE)
    return torch.frombuffer(pages, dtype=like.dtype).view(shape)


def _refuse(what: str) -> NoReturn:
    raise Unservable(f"its cache was to {what}")
