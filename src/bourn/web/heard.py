"""An answer as far as it was heard, and where it stands. It waits for nothing."""

from __future__ import annotations

import time
from enum import StrEnum

from bourn.stream import Answer
from bourn.types import Channel, Delta, Event, Progress, Queued, Started


class Phase(StrEnum):
    """Where an answer stands. `reading` is the model's: of the prompt."""

    LOADING = "loading"
    WAITING = "waiting"
    READING = "reading"
    THINKING = "thinking"
    ANSWERING = "answering"
    ENDED = "ended"


class Heard(Answer):
    """place: in the queue, 1 is next. progress: tokens of the prompt that were read, and all.

    replayed: it was made before.
    """

    def __init__(self, id: str = "", *, replayed: bool = False) -> None:  # noqa: A002
        super().__init__(id)
        self.phase = Phase.WAITING
        self.place: int | None = None
        self.progress: tuple[int, int] | None = None
        self.tokens = 0
        self.replayed = replayed
        self._first: float | None = None  # when the first token was heard

    @property
    def there(self) -> bool:
        """Whether something came of it."""
        return bool(self.text or self.reasoning) or self.state == "complete"

    @property
    def speed(self) -> float | None:
        """Tokens a second since the first one, where they are made now and there are some."""
        if self._first is None or self.replayed:
            return None
        seconds = time.monotonic() - self._first
        return (self.tokens - 1) / seconds if self.tokens > 1 and seconds > 0.2 else None

    def hear(self, event: Event) -> None:
        self._see(event)
        match event:
            case Queued():
                self.place = event.place
            case Started():
                self.place, self.phase = None, Phase.READING
            case Progress():
                self.progress = (event.done, event.total)
            case Delta() if event.text or event.tokens:
                self._delta(event)

    def _delta(self, delta: Delta) -> None:
        self.phase = Phase.THINKING if delta.channel is Channel.REASONING else Phase.ANSWERING
        self.tokens += delta.tokens
        if self._first is None:
            self._first = time.monotonic()
