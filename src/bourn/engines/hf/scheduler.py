"""Decides what the next step reads: who gets a slot, how much of which prompt, and who draws.

Pure: it knows no tensors and no model. A slot keeps the tokens of the row that has left it, so that
the next request can go on from the longest beginning they share.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from typing import NamedTuple

from bourn.engines.hf.pace import Pace
from bourn.engines.hf.sequence import Sequence
from bourn.engines.hf.step import Copy, Step, Stretch

WORTH_WAITING = 32
"""Tokens of a prompt that another row is just reading: fewer are read sooner than waited for."""


@dataclass(slots=True, eq=False)
class Slot:
    """A row of the KV cache. `left`: the tokens whose keys and values its last row left there."""

    number: int
    sequence: Sequence | None = None
    left: list[int] = field(default_factory=list)
    freed: int = 0  # when it was left, for the oldest to be overwritten first

    @property
    def holds(self) -> Ids[int]:
        """What its keys and values stand for."""
        if self.sequence is None:
            return self.left
        return self.sequence.ids[: self.sequence.read]


class Place(NamedTuple):
    """Where a row goes, and what of its prompt it finds there or brings along."""

    slot: Slot
    source: Slot
    reused: int


class Scheduler:
    """Rows on slots. What does not fit waits, first come, first served."""

    def __init__(self, slots: int, pace: Pace | None = None) -> None:
        self._slots = [Slot(number) for number in range(slots)]
        self._waiting: list[Sequence] = []
        self._pace = pace or Pace()
        self._clock = 0

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._waiting) or any(self._running())

    def add(self, sequences: Iterable[Sequence]) -> None:
        self._waiting += sequences

    def plan(self) -> Step:
        """The next step. Rows that ended, or that nobody wants, are gone before it."""
        self._clear()
        copies = tuple(self._admit())
        return Step(copies, tuple(self._stretches()))

    def read(self, stretches: Iterable[Stretch]) -> None:
        """These were read: their keys and values are in the slots."""
        for stretch in stretches:
            stretch.sequence.read = stretch.start + stretch.count

    def forget(self, sequence: Sequence) -> None:
        """A step with this row failed: what its slot holds is not to be trusted."""
        for slot in self._slots:
            if slot.sequence is sequence:
                slot.sequence, slot.left = None, []

    def drop_all(self) -> list[Sequence]:
        """Everybody who is still here, none of them served any more."""
        everybody = [*self._running(), *self._waiting]
        self._waiting = []
        for sequence in everybody:
            self.forget(sequence)
        return everybody

    def _running(self) -> list[Sequence]:
        return [slot.sequence for slot in self._slots if slot.sequence is not None]

    def _clear(self) -> None:
        self._waiting = [waiting for waiting in self._waiting if not waiting.cancelled]
        for slot in self._slots:
            row = slot.sequence
            if row is not None and (row.ended or row.cancelled):
                self._clock += 1
                slot.left, slot.freed, slot.sequence = row.ids[: row.read], self._clock, None

    # -- who gets a slot ---------------------------------------------------------------------------

    def _admit(self) -> Iterable[Copy]:
        patient = []
        for waiting in self._waiting:
            place = None if self._comes_soon(waiting) else self._place(waiting)
            if place is None:
                patient.append(waiting)
                continue
            waiting.read = waiting.reused = place.reused
            place.slot.sequence, place.slot.left = waiting, []
            if place.reused and place.source is not place.slot:
                yield Copy(place.source.number, place.slot.number, place.reused)
        self._waiting = patient

    def _place(self, row: Sequence) -> Place | None:
        """Goes on where it left off, or brings the beginning along into the oldest free slot.

        A slot that shares but its beginning is left as it is: its conversation may go on.
        """
        free = [slot for slot in self._slots if slot.sequence is None]
        if not free:
            return None
        oldest = min(free, key=lambda slot: (bool(slot.left), slot.freed))
        if not row.wishes.reuse:
            return Place(oldest, oldest, 0)
        shared = {slot.number: _shared(slot.holds, row.wishes.prompt) for slot in self._slots}
        own = max(free, key=lambda slot: shared[slot.number])
        best = max(self._slots, key=lambda slot: shared[slot.number])
        goes_on = 2 * shared[own.number] >= len(own.left)
        target = own if goes_on and shared[own.number] else oldest
        source = own if shared[own.number] == shared[best.number] else best
        return Place(target, source, min(shared[source.number], len(row.wishes.prompt) - 1))

    def _comes_soon(self, row: Sequence) -> bool:
        """Whether much of its prompt is just being read for another row: it can be copied then."""
        if not row.wishes.reuse:
            return False
        best = max(_shared(slot.holds, row.wishes.prompt) for slot in self._slots)
        coming = (
            _shared(other.wishes.prompt, row.wishes.prompt)
            for other in self._running()
            if other.unread > 1 and not other.generated
        )
        return max(coming, default=0) - best >= WORTH_WAITING

    # -- what is read ------------------------------------------------------------------------------

    def _stretches(self) -> Iterable[Stretch]:
        rows = [(slot, slot.sequence) for slot in self._slots if slot.sequence is not None]
        drawing = [(slot, row) for slot, row in rows if row.unread == 1]
        for slot, row in drawing:
            yield Stretch(row, slot.number, row.read, 1, draws=True)
        left = self._pace.prompt_tokens(len(drawing))
        for slot, row in sorted(rows, key=lambda pair: pair[1].unread):
            count = min(row.unread, left)
            if row.unread > 1 and count:
                left -= count
                yield Stretch(row, slot.number, row.read, count, draws=count == row.unread)


def _shared(one: Ids[int], other: Ids[int]) -> int:
    """How many tokens both begin with. By halving, since comparing slices is fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if list(one[low:middle]) == list(other[low:middle]):
            low = middle
        else:
            high = middle - 1
    return low
