"""How an answer is wanted: by whom, for how long, and whether a known one will do.

It changes nothing of what the answer says.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CacheWish:
    """As in HTTP's Cache-Control.

    read: an answer that is there, or being made for somebody else, will do. write: this one may be
    given to others. only: nothing is to be made anew. max_age: seconds that it may be old.
    sampled: the same for answers that were drawn at random, one for all. cut: and for those that
    ended at their limit, among all who say so.
    """

    read: bool = True
    write: bool = True
    only: bool = False
    max_age: float | None = None
    sampled: bool = False
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; None is without end.

    queue: to wait for a slot. first_token: from the slot to the first token; progress of the
    prompt begins it anew. total: from the slot to the end.
    """

    queue: float | None = None
    first_token: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one request.

    owner: who asks; nobody else sees what is theirs. grace: seconds for which the answer goes on,
    or stays to be read, without a reader. background: it goes on without readers to its end.
    """

    owner: str = ""
    grace: float = 0.0
    background: bool = False
    cache: CacheWish = field(default_factory=CacheWish)
    timeouts: Timeouts = field(default_factory=Timeouts)

    @property
    def resumable(self) -> bool:
        """Whether a reader may come back."""
        return self.background or self.grace > 0
