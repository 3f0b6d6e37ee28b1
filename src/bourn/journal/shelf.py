"""What is kept of the journals that have ended: bounded by count, bytes and age. Pure bookkeeping.

It holds no journal and deletes none: it says which are to go. What is live is never among them; it
is counted, so that no more is promised to come back to than can be kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bourn.journal.base import Kept


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept; and of live ones, how many somebody may come back to.

    count: of journals that have ended, and as many live ones. bytes: of those that have ended.
    owner_count, owner_bytes: the same of one owner; what nobody in particular owns is bound by the
    whole alone. age: seconds from the end of a journal, however often it is read.
    """

    count: int = 1000
    bytes: int = 256 * 2**20
    owner_count: int = 200
    owner_bytes: int = 64 * 2**20
    age: float = 3600.0


class Shelf:
    """Journals by id, those longest unused first."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self.limits = limits
        self._all = _Part(limits.count, limits.bytes)
        self._owned: dict[str, _Part] = {}
        self._live: dict[str, str] = {}  # an id and its owner
        self._live_of: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many that have ended are kept."""
        return len(self._all.kept)

    @property
    def bytes(self) -> int:
        return self._all.bytes

    def room(self, owner: str) -> bool:
        """Whether a further one may be begun that somebody may come back to."""
        theirs = self._live_of[owner] if owner else 0
        return len(self._live) < self.limits.count and theirs < self.limits.owner_count

    def begin(self, id: str, owner: str) -> None:  # noqa: A002 (it is what it is called)
        """A live one takes room, until it is added or dropped."""
        self._live[id] = owner
        self._live_of[owner] += 1

    def add(self, kept: Kept) -> list[str]:
        """Keep one that has ended; the ids of those that are to go for it.

        Its owner's go first, then anybody's, the longest unused before others. It may be itself
        alone, where it is larger than all that may be kept.
        """
        self.drop(kept.id)
        parts = self._parts(kept.label.owner)
        if not all(part.could_hold(kept) for part in parts):
            return [kept.id]
        for part in parts:
            part.put(kept)
        if kept.label.owner:
            self._owned[kept.label.owner] = parts[0]
        going = []
        for part in parts:
            while part.over:
                going.append(part.oldest)
                self.drop(part.oldest)
        return going

    def touch(self, id: str) -> None:  # noqa: A002
        """It was used: it is the last to go, but for its age."""
        if (kept := self._all.kept.get(id)) is not None:
            for part in self._parts(kept.label.owner):
                part.take(kept)
                part.put(kept)

    def drop(self, id: str) -> None:  # noqa: A002
        """It is gone. Idempotent."""
        if (begun_by := self._live.pop(id, None)) is not None:
            self._live_of[begun_by] -= 1
            if not self._live_of[begun_by]:
                del self._live_of[begun_by]
        if (kept := self._all.kept.get(id)) is not None:
            owner = kept.label.owner
            for part in self._parts(owner):
                part.take(kept)
            if owner and not self._owned[owner].kept:
                del self._owned[owner]

    def expired(self, now: float) -> list[str]:
        """Those that are too old by now, in unix seconds; they are no longer kept."""
        ids = [k.id for k in self._all.kept.values() if now - k.finished >= self.limits.age]
        for each in ids:
            self.drop(each)
        return ids

    def _parts(self, owner: str) -> list[_Part]:
        """All that bound what an owner has."""
        if not owner:
            return [self._all]
        theirs = self._owned.get(owner)
        return [theirs or _Part(self.limits.owner_count, self.limits.owner_bytes), self._all]


class _Part:
    """Some of them, the longest unused first, and the most there may be."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self.kept: dict[str, Kept] = {}
        self.bytes = 0

    @property
    def over(self) -> bool:
        return len(self.kept) > self._most or self.bytes > self._most_bytes

    @property
    def oldest(self) -> str:
        return next(iter(self.kept))

    def could_hold(self, kept: Kept) -> bool:
        return self._most > 0 and kept.size <= self._most_bytes

    def put(self, kept: Kept) -> None:
        self.kept[kept.id] = kept
        self.bytes += kept.size

    def take(self, kept: Kept) -> None:
        del self.kept[kept.id]
        self.bytes -= kept.size
