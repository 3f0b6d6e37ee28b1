"""What a page shows at one moment, whatever draws it. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from bourn.web.view import Shown
from bourn.web.wishes import Wishes


@dataclass(frozen=True, slots=True)
class Sight:
    """A change of what is shown; None is as it was.

    talk: the conversation's id. talks: all of them, (title, id), the last changed first.
    past: what was said before the last turn; now: the last turn.
    status: a line on what goes on; wrong: on what cannot be done. spoken: to be read out.
    busy: whether an answer is being made. can_continue: whether the last one can be gone on with.
    draft: what stands in the box. wishes: what stands in the settings.
    """

    talk: str | None = None
    talks: tuple[tuple[str, str], ...] | None = None
    title: str | None = None
    past: list[Shown] | None = None
    now: list[Shown] | None = None
    status: str | None = None
    wrong: str | None = None
    spoken: str | None = None
    busy: bool | None = None
    can_continue: bool | None = None
    draft: str | None = None
    wishes: Wishes | None = None
