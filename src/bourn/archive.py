"""What is kept of answers: for those who come back, and for those who ask the same.

It stands between hubs and a store of journals; several hubs may share one. A journal that has ended
stays while its shelf has room for it, or while it is promised to somebody.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence

from bourn.journal.base import Journal, Journals, Kept, Label
from bourn.journal.memory import MemoryJournals
from bourn.journal.shelf import Limits, Shelf
from bourn.terms import Terms
from bourn.types import FinishReason, State

CLEAN = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS})
"""Ends after which an answer may be given to others: never broken off or blocked; nor at a limit,
unless all of them have said that it will do."""


class Archive:
    """Journals by id, and those that answer others by the key of their request.

    clock: unix seconds.
    """

    def __init__(
        self,
        journals: Journals | None = None,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._journals: Journals = MemoryJournals() if journals is None else journals
        self._shelf = Shelf(limits)
        self._clock = clock
        self._answers: dict[str, Kept] = {}
        self._earlier: set[str] = set()

    async def start(self) -> None:
        """Take in what earlier runs left. Raises StoreFailed."""
        for kept in await self._journals.start():
            self._earlier.add(kept.id)
            await self._put(kept)

    def begin(self, terms: Terms, key: str | None, model: str = "") -> Journal:
        """The journal of a new answer. `room` says beforehand whether one may come back."""
        id_ = secrets.token_urlsafe(16)
        durable = key is not None or terms.resumable
        if terms.resumable:
            self._shelf.begin(id_, terms.owner)
        label = Label(terms.owner, key, self._clock(), durable, model)
        return self._journals.create(id_, label)

    @property
    def kept(self) -> int:
        """How many answers are kept that have ended."""
        return len(self._shelf)

    @property
    def bytes(self) -> int:
        """What they take, about."""
        return self._shelf.bytes

    def room(self, owner: str) -> bool:
        """Whether one more may be promised to somebody who comes back."""
        return self._shelf.room(owner)

    async def ended(
        self,
        journal: Journal,
        state: State,
        reasons: Sequence[FinishReason],
        *,
        empty: bool,
        cut: bool = False,
    ) -> None:
        """Keep it, if somebody may want it. cut: also for others where it ended at its limit."""
        await self._clear()
        clean = CLEAN | {FinishReason.LENGTH} if cut else CLEAN
        answers = state == "complete" and not empty and bool(reasons) and clean.issuperset(reasons)
        label = journal.label
        if not label.durable:
            return
        kept = Kept(journal.id, label, state, journal.size, self._clock(), tuple(reasons))
        await self._put(kept, answers=answers)

    def find(self, key: str, max_age: float | None = None) -> Journal | None:
        """A whole answer to that request, no older than `max_age` seconds."""
        kept = self._answers.get(key)
        if kept is None:
            return None
        age = self._clock() - kept.finished
        if age >= self._shelf.limits.age or (max_age is not None and age > max_age):
            return None
        self._shelf.touch(kept.id)
        return self._journals.open(kept.id)

    def recall(self, id: str, owner: str) -> Journal | None:  # noqa: A002 (it is what it is called)
        """One of an earlier run, if it is that owner's."""
        journal = self._journals.open(id) if id in self._earlier else None
        return journal if journal is not None and journal.label.owner == owner else None

    def model(self, id: str) -> str:  # noqa: A002
        """The name of the model whose answer it is; "" where nobody knows."""
        journal = self._journals.open(id)
        return "" if journal is None else journal.label.model

    async def release(self, journal: Journal) -> None:
        """Nobody has a claim on it any more: it goes, unless it may answer others."""
        kept = self._answers.get(journal.label.key or "")
        if kept is None or kept.id != journal.id:
            await self._drop([journal.id])

    async def aclose(self) -> None:
        """Close the store. Idempotent."""
        await self._journals.aclose()

    async def _put(self, kept: Kept, *, answers: bool | None = None) -> None:
        if answers is None:
            answers = kept.state == "complete" and CLEAN.issuperset(kept.reasons or ("none",))
        if answers and kept.label.key is not None:
            self._answers[kept.label.key] = kept
        await self._drop(self._shelf.add(kept))

    async def _clear(self) -> None:
        await self._drop(self._shelf.expired(self._clock()))

    async def _drop(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            self._shelf.drop(id_)
            self._earlier.discard(id_)
            journal = self._journals.open(id_)
            key = journal.label.key if journal is not None else None
            if key is not None and key in self._answers and self._answers[key].id == id_:
                del self._answers[key]
            await self._journals.delete(id_)
