"""Who may generate now: slots, and a bounded queue that is fair to all who ask, and can be left."""

from __future__ import annotations

import asyncio
from bisect import insort_right
from operator import attrgetter

from bourn.errors import QueueFull


class Ticket:
    """A claim on `size` slots. `place` 0 is admitted, 1 is next in the queue.

    turn: of its owner's tickets the first, second … in the queue.
    """

    def __init__(self, admission: Admission, size: int, place: int, turn: int = 0) -> None:
        self.size = size
        self.place = place
        self.turn = turn
        self._admission = admission
        self._left = False
        self._moved = asyncio.Event()

    async def moved(self) -> int:
        """Wait until the place has changed since this was last asked; the new place."""
        await self._moved.wait()
        self._moved.clear()
        return self.place

    def leave(self) -> None:
        """Give the slots back, or leave the queue. Idempotent."""
        if not self._left:
            self._left = True
            self._admission._leave(self)

    def _move(self, place: int) -> None:
        if place != self.place:
            self.place = place
            self._moved.set()


class Admission:
    """`slots`: how many at once, None for no limit. `queue_limit`: how many may wait.

    A request of several choices takes several slots, all at once; the next in the queue is not
    overtaken, so that a large request cannot starve behind small ones. Owners take turns: who has
    many waiting stands behind the first of everybody else's.
    """

    def __init__(self, slots: int | None, queue_limit: int) -> None:
        self.slots = slots
        self.queue_limit = queue_limit
        self._used = 0
        self._queue: list[Ticket] = []
        self._turn = 0  # of the ticket that was admitted last
        self._turns: dict[str, int] = {}  # the last of each owner's that waits

    @property
    def used(self) -> int:
        return self._used

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def enter(self, size: int = 1, owner: str = "") -> Ticket:
        """Claim slots, no more than there are, or queue for them.

        Raises:
            QueueFull: nobody more may wait.
        """
        if not self._queue and self._fits(size):
            self._used += size
            return Ticket(self, size, place=0)
        if len(self._queue) >= self.queue_limit:
            raise QueueFull(
                f"{len(self._queue)} requests are waiting already", hint="try again in a moment"
            )
        turn = self._turns[owner] = max(self._turn, self._turns.get(owner, 0)) + 1
        ticket = Ticket(self, size, place=-1, turn=turn)
        insort_right(self._queue, ticket, key=attrgetter("turn"))
        ticket.place = self._queue.index(ticket) + 1
        self._number()
        return ticket

    def _fits(self, size: int) -> bool:
        return self.slots is None or self._used + size <= self.slots

    def _leave(self, ticket: Ticket) -> None:
        if ticket.place == 0:
            self._used -= ticket.size
        else:
            self._queue.remove(ticket)
        while self._queue and self._fits(self._queue[0].size):
            admitted = self._queue.pop(0)
            self._used += admitted.size
            self._turn = admitted.turn
            admitted._move(0)
        if not self._queue:
            self._turns.clear()
        self._number()

    def _number(self) -> None:
        for place, waiting in enumerate(self._queue, 1):
            waiting._move(place)
