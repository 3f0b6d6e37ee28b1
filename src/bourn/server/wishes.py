"""What a client may wish of bourn itself, beside what OpenAI's API has words for.

It rides in one field of the body, `bourn`; wishes for the cache also in the `Cache-Control` header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bourn.hub import ABANDONED
from bourn.terms import CacheWish, Terms, Timeouts
from bourn.wire.fields import Fields, ill

KNOWN = ("background", "grace", "cache", "max_age", "sampled", "cut", "queue")
DIRECTIVES = ("no-store", "no-cache", "only-if-cached")


@dataclass(frozen=True, slots=True)
class Wishes:
    """background, grace, cache: as in `Terms`. queue: tell the place in the queue."""

    background: bool = False
    grace: float = 0.0
    cache: CacheWish = field(default_factory=CacheWish)
    queue: bool = False

    def terms(self, owner: str, timeouts: Timeouts) -> Terms:
        return Terms(owner, self.grace, self.background, self.cache, timeouts)


def wishes_of(told: Mapping[str, Any], cache_control: str = "") -> Wishes:
    """The wishes in the field `bourn`, and in the header; what is unknown there is passed over.

    Raises:
        InvalidRequest: one in the body is unknown, or of a wrong type or size.
    """
    fields = Fields(told, "bourn.")
    fields.refuse_unknown(KNOWN)
    grace, max_age = fields.number("grace") or 0, fields.number("max_age")
    if not 0 <= grace <= ABANDONED:
        raise ill("bourn.grace", grace, f"seconds, at most {ABANDONED:g}")
    if max_age is not None and not max_age >= 0:
        raise ill("bourn.max_age", max_age, "seconds")
    heard = _directives(cache_control)
    wished = _cache(told.get("cache")) | heard.keys()
    ages = [max_age, _seconds(heard.get("max-age", ""))]
    cache = CacheWish(
        read="no-cache" not in wished,
        write="no-store" not in wished,
        only="only-if-cached" in wished,
        max_age=min((age for age in ages if age is not None), default=None),
        sampled=fields.flag("sampled"),
        cut=fields.flag("cut"),
    )
    return Wishes(fields.flag("background"), grace, cache, fields.flag("queue"))


def _cache(told: object) -> set[str]:
    listed = told if isinstance(told, list) else [] if told is None else [told]
    if not all(wish in DIRECTIVES for wish in listed):
        raise ill("bourn.cache", told, f"one of {', '.join(DIRECTIVES)}, or several in a list")
    return set(listed)


def _directives(told: str) -> dict[str, str]:
    parts = (part.strip().partition("=") for part in told.lower().split(","))
    return {name.strip(): value.strip().strip('"') for name, _, value in parts if name}


def _seconds(told: str) -> float | None:
    return float(told) if re.fullmatch("[0-9]{1,9}", told) else None
