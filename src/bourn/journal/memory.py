"""Journals in this process's memory: the default, and gone with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bourn.types import Event


class MemoryJournal:
    __slots__ = ("_events", "_id", "_wakes")

    def __init__(self, id: str) -> None:  # noqa: A002
        self._id = id
        self._events: list[Event] = []
        self._wakes: list[Callable[[], None]] = []

    @property
    def id(self) -> str:
        return self._id

    async def append(self, *events: Event) -> None:
        self._events.extend(events)
        for wake in self._wakes:
            wake()

    async def read(self, after: int = 0) -> Sequence[Event]:
        return self._events[after:]

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wakes.append(wake)

        def leave() -> None:
            if wake in self._wakes:
                self._wakes.remove(wake)

        return leave


class MemoryJournals:
    """Each journal lives here for as long as the hub wants it."""

    def __init__(self) -> None:
        self._journals: dict[str, MemoryJournal] = {}

    def __len__(self) -> int:
        return len(self._journals)

    def create(self, id: str) -> MemoryJournal:  # noqa: A002
        journal = self._journals[id] = MemoryJournal(id)
        return journal

    async def delete(self, id: str) -> None:  # noqa: A002
        self._journals.pop(id, None)
