"""From a row's most likely tokens to the one that is drawn: filters, then one uniform number.

Candidates are sorted, so whatever a filter keeps is a beginning of them, and numbers that belong to
a row are sums from its own beginning: what stands after it, or beside it, cannot change a bit of
them. Knows arrays, no tensors and no sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bourn.types import Sampling

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Manner(NamedTuple):
    """How one row is drawn; what was not said is off."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


class Manners(NamedTuple):
    """The manners of several rows."""

    temperature: Floats
    top_k: Ints
    top_p: Floats
    min_p: Floats

    @classmethod
    def of(cls, manners: Sequence[Manner]) -> Manners:
        temperature, top_k, top_p, min_p = zip(*manners, strict=True)
        return cls(
            np.array(temperature, np.float64),
            np.array(top_k, np.int64),
            np.array(top_p, np.float64),
            np.array(min_p, np.float64),
        )


class Candidates(NamedTuple):
    """The logits of several rows' likeliest tokens, the likeliest first.

    whole: whether these are all the tokens there are. Else those as likely as the last are not to
    be relied on: there may be more of them, and it is chance which are here.
    """

    logits: Floats
    whole: bool

    @property
    def sure(self) -> Ints:
        """How many of each row's are to be relied on."""
        if self.whole:
            return np.full(len(self.logits), self.logits.shape[1])
        sure: Ints = (self.logits > self.logits[:, -1:]).sum(1)
        return sure


class Kept(NamedTuple):
    """What the filters leave of each row's candidates: so many of them, from the first on.

    known: whether that is certain; else more candidates are needed. sums: what each candidate and
    those before it weigh together, where the first weighs 1. mass: what those kept weigh.
    """

    number: Ints
    known: Bools
    sums: Floats
    mass: Floats


@lru_cache(maxsize=1024)
def manner(sampling: Sampling) -> Manner:
    """The part of the sampling settings that is about one token; what was not said is off."""
    given = sampling.given()
    return Manner(**{name: given[name] for name in Manner._fields if name in given})


def uniform(seed: int, step: int) -> float:
    """A number from 0 up to, but not, 1: the same for the same seed and step, whoever asks."""
    drawn = blake2b(b"%d,%d" % (seed, step), digest_size=8).digest()
    return (int.from_bytes(drawn) >> 11) * 2.0**-53


def ordered(logits: NDArray[np.float32], ids: Ints) -> tuple[Floats, Ints]:
    """What `topk` gave, with the lower id before its equal: `topk` leaves their order open."""
    order = np.lexsort((ids, -logits))
    logits = np.take_along_axis(logits, order, 1)
    return logits.astype(np.float64), np.take_along_axis(ids, order, 1)


def keep(candidates: Candidates, manners: Manners, totals: Floats) -> Kept:
    """Temperature, then top_k, top_p and min_p, each as far as the one before left something.

    totals: the weight of all tokens of each row, where its candidates are not the whole.

    As in transformers: of equal logits at the border of top_k all are kept, and top_p keeps the
    token that reaches it.
    """
    scaled = _scaled(candidates.logits, manners.temperature)
    sums = np.exp(scaled).cumsum(1)
    width, sure = sums.shape[1], candidates.sure
    best = _best(candidates.logits, manners.top_k)
    mass = np.where(best <= sure, _last(sums, best), totals)
    before = np.zeros_like(sums)
    before[:, 1:] = sums[:, :-1]
    nucleus = (before < (manners.top_p * mass)[:, None]).sum(1)
    nucleus[manners.top_p >= 1] = width
    with np.errstate(divide="ignore"):  # where there is no min_p all are above it
        likely = (scaled >= np.log(manners.min_p)[:, None]).sum(1)
    number = np.minimum.reduce([best, nucleus, likely]).clip(1)
    weighed = (best <= sure) | (manners.top_k == 0)  # else top_k leaves nobody knows what mass
    known = weighed & (number <= sure)
    return Kept(number, known, sums, np.where(known, _last(sums, number), mass))


def places(candidates: Candidates, manners: Manners, totals: Floats, numbers: Floats) -> Ints:
    """Which candidate of each row is chosen by these numbers, from 0 up to, but not, 1.

    -1 where more candidates are needed to tell.
    """
    kept = keep(candidates, manners, totals)
    target = np.minimum(numbers * kept.mass, np.nextafter(kept.mass, 0))
    place = (kept.sums <= target[:, None]).sum(1)
    free = (manners.top_k == 0) & (manners.top_p >= 1) & (manners.min_p <= 0)
    found = kept.known | (free & (place < candidates.sure))
    return np.where(found, place, -1)


def _scaled(logits: Floats, temperature: Floats) -> Floats:
    top = logits[:, :1]
    with np.errstate(invalid="ignore", over="ignore"):  # infinite ones: a token that must come
        return np.where(logits == top, 0.0, (logits - top) / temperature[:, None])


def _best(logits: Floats, top_k: Ints) -> Ints:
    """How many of the candidates top_k keeps."""
    width = logits.shape[1]
    least = _last(logits, top_k.clip(1, width))
    number: Ints = (logits >= least[:, None]).sum(1)
    number[(top_k == 0) | (top_k > width)] = width
    return number


def _last(rows: Floats, number: Ints) -> Floats:
    """The last of the first so many of each row."""
    return rows[np.arange(len(rows)), number - 1]
