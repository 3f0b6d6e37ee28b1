"""How the stretches of a step lie side by side, and which of them are attended together.

Plain values, no tensors, and nothing of requests. All tokens of a step go through the model as one
flat row; a read says which of them look at which positions of which slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Part(NamedTuple):
    """What one row adds to a pass: these tokens, from position `start` of its slot on."""

    slot: int
    start: int
    ids: Sequence[int]

    @property
    def end(self) -> int:
        return self.start + len(self.ids)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some tokens of one row, which look at all that the row has before and among them."""

    index: int
    part: Part

    @property
    def members(self) -> tuple[int, ...]:
        return (self.index,)

    @property
    def tokens(self) -> int:
        return len(self.part.ids)

    @property
    def slot(self) -> int:
        return self.part.slot

    @property
    def span(self) -> int:
        return 1

    @property
    def positions(self) -> int:
        return self.part.end


@dataclass(frozen=True, slots=True)
class Group:
    """One token each of rows in slots that are near one another, attended in one call.

    members: which parts of the pass they are. slot: the first of the slots that the call goes over.
    span: how many, those between that take no part included. offsets: of each row's slot from the
    first. lengths: positions of each row, this token included. positions: the longest's.
    """

    members: tuple[int, ...]
    slot: int
    offsets: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return len(self.members)

    @property
    def span(self) -> int:
        return self.offsets[-1] + 1

    @property
    def positions(self) -> int:
        return max(self.lengths)

    def joined(self, right: Group) -> Group:
        """With one whose slots come after."""
        step = right.slot - self.slot
        return Group(
            self.members + right.members,
            self.slot,
            self.offsets + tuple(step + offset for offset in right.offsets),
            self.lengths + right.lengths,
        )


Read = Chunk | Group


def arrange(parts: Sequence[Part], call: int) -> tuple[Read, ...]:
    """The reads of a pass, in the order in which their tokens lie.

    call: what one call costs, in positions read: neighbours whose lengths differ are attended
        together while padding the shorter costs less than this. Below 0: each row by itself.
    """
    order = sorted(range(len(parts)), key=lambda index: parts[index].slot)
    single = [_alone(index, parts[index]) for index in order if len(parts[index].ids) == 1]
    chunks = [Chunk(index, part) for index, part in enumerate(parts) if len(part.ids) > 1]
    return (*_joined(single, call), *chunks)


def _alone(index: int, part: Part) -> Group:
    return Group((index,), part.slot, (0,), (part.end,))


def _joined(rows: Iterable[Group], call: int) -> list[Group]:
    """Neighbours joined while that costs less than two calls; from the left, once over."""
    groups: list[Group] = []
    for row in rows:
        groups.append(row)
        while len(groups) > 1:
            both = groups[-2].joined(groups[-1])
            if _cost(both, call) > _cost(groups[-2], call) + _cost(groups[-1], call):
                break
            groups[-2:] = [both]
    return groups


def _cost(group: Group, call: int) -> int:
    return call + group.span * group.positions
