"""The contract of journals: one generation's events, numbered from 1, only ever appended to.

A journal that has its `Done` never changes again. Readers come and go with an offset of their own:
a reader that joins late, or comes back, reads on from the last number it saw. A store knows nothing
of engines or requests, and no reader's pace holds another's, or the producer's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bourn.types import Event, FinishReason, State


@dataclass(frozen=True, slots=True)
class Label:
    """What stands on a journal: whose it is, and whom it may serve later.

    model: the name of what makes it. key: of the request that it answers, where it may answer
    others. created: unix seconds.
    durable: somebody may come back for it, or it may answer others; a store on disk writes no
    other one.
    """

    owner: str = ""
    key: str | None = None
    created: float = 0.0
    durable: bool = False
    model: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """A journal that has ended, as it is kept.

    size: bytes that it takes, about. finished: unix seconds. reasons: why its choices ended, in
    that order; none of a choice that was broken off, and none at all where one is only assumed.
    """

    id: str
    label: Label
    state: State
    size: int
    finished: float
    reasons: tuple[FinishReason, ...] = ()


class Journal(Protocol):
    @property
    def id(self) -> str:
        """Unguessable: who knows it may read."""
        ...

    @property
    def label(self) -> Label: ...

    @property
    def head(self) -> int:
        """The number of the last event that is there; 0 before the first."""
        ...

    @property
    def ended(self) -> bool:
        """Whether that is its `Done`, so that nothing comes after it."""
        ...

    @property
    def size(self) -> int:
        """Bytes that it takes, about, where it is now: in memory or elsewhere."""
        ...

    async def append(self, *events: Event) -> None:
        """Add events in order. Only the one producer calls this, and never after a `Done`.

        It neither waits for a disk nor fails with one.

        Raises:
            StreamClosed: it has ended; nothing is added.
        """
        ...

    async def read(self, after: int = 0) -> Sequence[Event]:
        """The events numbered `after + 1` and up that are there now, or the first of them.

        None only where there are none. What a store cannot find again ends in `Done("lost", …)`.
        """
        ...

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` in the event loop whenever there may be more to read.

        It ends when the returned function is called. A call too many is harmless; one too few would
        hang a reader.
        """
        ...


class Journals(Protocol):
    """A store of journals. Belongs to an event loop."""

    async def start(self) -> list[Kept]:
        """Make it ready; what earlier runs left, the first to end first.

        What was live then has lost its producer: its journal ends in `Done("lost", …)`.

        Raises:
            StoreFailed: the store cannot be used. One of ours that was damaged is no failure here.
        """
        ...

    def create(self, id: str, label: Label = Label()) -> Journal:  # noqa: A002
        """A new, empty journal, by an id that no other has had.

        A store on disk or elsewhere writes it with the first events.
        """
        ...

    def open(self, id: str) -> Journal | None:  # noqa: A002 (it is what it is called)
        """One that is here, also from an earlier run."""
        ...

    async def delete(self, id: str) -> None:  # noqa: A002
        """Forget it. Idempotent; who has subscribed to it may read it to its end."""
        ...

    async def aclose(self) -> None:
        """Write what is to be written, and let go. Idempotent; what is live goes on in memory."""
        ...
