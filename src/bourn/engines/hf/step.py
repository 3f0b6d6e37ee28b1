"""What one step does: which tokens of which rows the model reads. Plain values, no tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bourn.engines.hf.sequence import Sequence


class Copy(NamedTuple):
    """The first `length` positions of one slot are wanted in another."""

    source: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """The next `count` tokens of a row, from position `start` on, into its slot.

    draws: whether they are its last unread ones, so that a token can be drawn after them.
    """

    sequence: Sequence
    slot: int
    start: int
    count: int
    draws: bool

    @property
    def ids(self) -> list[int]:
        return self.sequence.ids[self.start : self.start + self.count]


@dataclass(frozen=True, slots=True)
class Step:
    """One pass through the model: copies first, then every stretch, all in one batch."""

    copies: tuple[Copy, ...]
    stretches: tuple[Stretch, ...]


class Backend(Protocol):
    """What makes tokens for rows, in a thread of its own. Safe from any thread.

    Slots (`batcher`) and `generate` (`generating`) are the two there are.
    """

    def submit(self, *sequences: Sequence) -> None:
        """Begin with these; what becomes of them goes to their sinks."""
        ...

    def wake(self) -> None:
        """Something was cancelled: look at it now, not only when the next row comes."""
        ...

    def close(self) -> None:
        """End: nothing more is computed, and memory is given back. Idempotent."""
        ...
