"""The contract of journals: one generation's events, numbered from 1, only ever appended to.

A journal that has its `Done` never changes again. Readers come and go with an offset of their own:
a reader that joins late, or comes back, reads on from the last number it saw. A store knows nothing
of engines or requests, and no reader's pace holds another's, or the producer's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from bourn.types import Event


class Journal(Protocol):
    @property
    def id(self) -> str:
        """Unguessable: who knows it may read."""
        ...

    async def append(self, *events: Event) -> None:
        """Add events in order. Only the one producer calls this, and never after a `Done`."""
        ...

    async def read(self, after: int = 0) -> Sequence[Event]:
        """The events numbered `after + 1` and up that are there now; perhaps none."""
        ...

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` in the event loop whenever there may be more to read.

        It ends when the returned function is called. A call too many is harmless; one too few would
        hang a reader.
        """
        ...


class Journals(Protocol):
    """A store of journals."""

    def create(self, id: str) -> Journal:  # noqa: A002 (it is what it is called)
        """A new, empty journal. A store on disk or elsewhere writes it with the first events."""
        ...

    async def delete(self, id: str) -> None:  # noqa: A002
        """Forget it. Idempotent; who holds the journal may read what they hold to its end."""
        ...
