"""Journals in this process's memory: the default, and gone with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bourn.errors import StreamClosed
from bourn.journal.base import Kept, Label
from bourn.types import Delta, Done, Event

_EVENT = 200
_TOKEN = 300


def weight(event: Event) -> int:
    """Bytes that an event takes in memory, about."""
    if not isinstance(event, Delta):
        return _EVENT
    size = _EVENT + len(event.text)
    if event.tool is not None:
        size += _EVENT + len(event.tool.arguments)
    if event.logprobs:
        size += _TOKEN * sum(1 + len(entry.top) for entry in event.logprobs)
    return size


class MemoryJournal:
    __slots__ = ("_ended", "_events", "_id", "_label", "_size", "_wakes")

    def __init__(self, id: str, label: Label = Label()) -> None:  # noqa: A002, B008 (frozen)
        self._id = id
        self._label = label
        self._events: list[Event] = []
        self._ended = False
        self._size = 0
        self._wakes: list[Callable[[], None]] = []

    @property
    def id(self) -> str:
        return self._id

    @property
    def label(self) -> Label:
        return self._label

    @property
    def head(self) -> int:
        return len(self._events)

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def size(self) -> int:
        return self._size

    async def append(self, *events: Event) -> None:
        if self._ended:
            raise StreamClosed("this journal has ended", hint="nothing may come after a `Done`")
        self._events.extend(events)
        self._ended = bool(events) and isinstance(events[-1], Done)
        self._size += sum(map(weight, events))
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

    async def start(self) -> list[Kept]:
        return []

    def create(self, id: str, label: Label = Label()) -> MemoryJournal:  # noqa: A002, B008 (frozen)
        journal = self._journals[id] = MemoryJournal(id, label)
        return journal

    def open(self, id: str) -> MemoryJournal | None:  # noqa: A002
        return self._journals.get(id)

    async def delete(self, id: str) -> None:  # noqa: A002
        self._journals.pop(id, None)

    async def aclose(self) -> None:
        """Nothing to let go of."""
