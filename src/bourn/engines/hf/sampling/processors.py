"""Logits processors that know their place, or the row they are for.

A plain processor is called after the penalties and before the temperature, as `generate` calls
what a user gives it. What a `GenerationConfig` asks for may have to come earlier or later, or may
have to know where the prompt ends. Knows no tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from bourn.engines.hf.sequence import Hook, Wishes


class Place(Enum):
    """When a processor is called: before the penalties, after them, or after the filters.

    The filters are temperature, top_k, top_p and min_p: what comes after them is called only where
    a token is drawn at random, with -inf for all that they left out.
    """

    FIRST = auto()
    MIDDLE = auto()
    LAST = auto()


@dataclass(frozen=True, slots=True)
class Placed:
    """A processor with a place of its own."""

    hook: Hook
    place: Place

    def __call__(self, ids: Any, scores: Any) -> Any:
        return self.hook(ids, scores)


@dataclass(frozen=True, slots=True)
class ForRow:
    """Makes a processor that must know its row's prompt, limit or ends: one for each row."""

    make: Callable[[Wishes], Hook]

    def __call__(self, wishes: Wishes) -> Hook:
        return self.make(wishes)


def made_for(wishes: Wishes) -> tuple[Hook, ...]:
    """A row's processors, all of them ready to be called."""
    return tuple(
        hook(wishes) if isinstance(hook, ForRow) else hook for hook in wishes.hooks.processors
    )


def at(place: Place, hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Those that belong there, in their order."""
    return tuple(hook for hook in hooks if _place(hook) is place)


def _place(hook: Hook) -> Place:
    return hook.place if isinstance(hook, Placed) else Place.MIDDLE
