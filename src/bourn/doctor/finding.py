"""What a check says: a finding, and the mend that a program can do by itself.

Knows no models. Each check is a function from what it looks at to one `Finding`; a list of them
is run in order, and whatever a check cannot tell is a finding too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from bourn.errors import BournError

Subject = TypeVar("Subject")


class State(StrEnum):
    """How bad it is, from best to worst; and `skipped`, where it could not be told.

    note: good to know. warning: wrong in some programs, or for some. broken: wrong for all.
    """

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    BROKEN = "broken"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Fix:
    """Changes to a checkpoint's generation_config.json.

    ends: ids for its `eos_token_id`, beside those that are there. puts, drops: fields to be set,
    and to be taken out.
    """

    ends: tuple[int, ...] = ()
    puts: Mapping[str, object] = field(default_factory=dict)
    drops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """state, found: how it is. why: what comes of it. mend: what to do. fix: what `--fix` does."""

    state: State
    found: str
    why: str = ""
    mend: str = ""
    fix: Fix | None = None
    check: str = ""


class CannotTell(Exception):
    """A check cannot be done; the text says why."""


NEEDS_EXTRA = "it takes transformers: pip install 'bourn[hf]'"
FAILED = "the check itself failed"

Checks = Mapping[str, Callable[[Subject], Finding]]
"""By the names that people see, in the order in which they are shown."""


def ok(found: str) -> Finding:
    return Finding(State.OK, found)


def note(found: str, why: str = "", mend: str = "") -> Finding:
    return Finding(State.NOTE, found, why, mend)


def warning(found: str, why: str, mend: str, fix: Fix | None = None) -> Finding:
    return Finding(State.WARNING, found, why, mend, fix)


def broken(found: str, why: str, mend: str, fix: Fix | None = None) -> Finding:
    return Finding(State.BROKEN, found, why, mend, fix)


def skipped(why: str) -> Finding:
    return Finding(State.SKIPPED, why)


def run(checks: Checks[Subject], subject: Subject) -> Iterator[Finding]:
    """The findings of all checks, in their order."""
    for name, check in checks.items():
        try:
            found = check(subject)
        except (CannotTell, BournError) as reason:
            found = skipped(str(reason))
        except Exception as error:  # noqa: BLE001  # sick files do what nobody thought of; go on
            found = skipped(f"{FAILED}: {type(error).__name__}: {error}")
        yield replace(found, check=name)
