"""From the scores of many rows, on whatever device, to one token each.

Together where that is possible: the few likeliest tokens of all rows are found at once and brought
to the CPU, where the rest is small. It knows neither sequences nor what was done to their scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bourn.engines.hf.sampling.candidates import (
    Candidates,
    Floats,
    Manner,
    Manners,
    keep,
    ordered,
    places,
)
from bourn.errors import EngineError

NARROW = 256
"""Rows whose top_k is at most this are drawn from few candidates."""

SPARE = 16
"""Candidates beyond top_k: equal scores at its border, common in bfloat16, are all kept."""

WIDE = 1024
"""Candidates for all other rows. Where they do not suffice, the whole row is sorted."""


class Draw(NamedTuple):
    """What is to be drawn for one row.

    number: from 0 up to, but not, 1; it decides. last: what is to be done to the row's scores after
    the filters.
    """

    manner: Manner
    number: float
    last: Callable[[Tensor], Tensor] | None = None


Outcome = int | Exception
"""A token, or why there is none."""


def tokens(scores: Tensor, draws: Sequence[Draw]) -> list[Outcome]:
    """A token for each row of the scores, [rows, vocabulary]."""
    batch = _Batch(scores, draws)
    groups: dict[str, list[int]] = {"greedy": [], "narrow": [], "wide": [], "alone": []}
    for row, wanted in enumerate(draws):
        groups[_kind(wanted)].append(row)
    batch.take_likeliest(groups["greedy"])
    most = max((draws[row].manner.top_k for row in groups["narrow"]), default=0)
    batch.draw_from_few(groups["narrow"], most + SPARE)
    batch.draw_from_few(groups["wide"], WIDE)
    for row in groups["alone"]:
        batch.draw_from_all(row)
    return [batch.outcomes[row] for row in range(len(draws))]


def _kind(wanted: Draw) -> str:
    if wanted.manner.temperature == 0:
        return "greedy"
    if wanted.last is not None:
        return "alone"
    return "narrow" if 0 < wanted.manner.top_k <= NARROW else "wide"


class _Batch:
    """The rows of one step, and what has come of them."""

    def __init__(self, scores: Tensor, draws: Sequence[Draw]) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self._scores = scores
        self._draws = draws

    def take_likeliest(self, rows: list[int]) -> None:
        """The first of the highest, as `generate` takes it."""
        if rows:
            highest, places = self._part(rows).max(1)
            for row, score, token in zip(rows, highest.tolist(), places.tolist(), strict=True):
                self.outcomes[row] = _fault(score) or token

    def draw_from_few(self, rows: list[int], width: int) -> None:
        """From so many candidates, or from all tokens where these do not suffice."""
        if not rows:
            return
        size = self._scores.shape[1]
        width = min(width, size)
        found = self._part(rows).topk(width)
        totals = self._totals(rows)
        scores = found.values.float().cpu().numpy()
        faults = [_fault(score) for score in scores[:, 0].tolist()]
        scores[[fault is not None for fault in faults]] = 0  # nothing to reckon with
        logits, ids = ordered(scores, found.indices.cpu().numpy())
        manners = Manners.of([self._draws[row].manner for row in rows])
        numbers = np.array([self._draws[row].number for row in rows])
        candidates = Candidates(logits, whole=width == size)
        for n, place in enumerate(places(candidates, manners, totals, numbers).tolist()):
            self.outcomes[rows[n]] = faults[n] or int(ids[n, place])
            if place < 0:
                self.draw_from_all(rows[n])

    def draw_from_all(self, row: int) -> None:
        """From all tokens of one row, with its last processors."""
        try:
            self.outcomes[row] = _drawn_alone(self._scores[row].float(), self._draws[row])
        except Exception as error:  # noqa: BLE001 (whatever its processor raises, it is this row's)
            self.outcomes[row] = error

    def _part(self, rows: list[int]) -> Tensor:
        return self._scores if len(rows) == len(self._draws) else self._scores[rows]

    def _totals(self, rows: list[int]) -> Floats:
        """What all tokens of a row weigh, where that matters: it does not with top_k.

        By a softmax, since that reckons each row by itself: a sum over several rows may not be that
        over one, in its last bits.
        """
        manners = [self._draws[row].manner for row in rows]
        if all(manner.top_k for manner in manners):
            return np.full(len(rows), np.nan)
        scores = self._part(rows).float()
        temperatures = torch.tensor([[manner.temperature] for manner in manners])
        heights = (scores - scores.amax(1, keepdim=True)) / temperatures.to(scores)
        totals = 1 / heights.softmax(1).amax(1).cpu().numpy().astype(np.float64)
        return np.where([manner.top_k == 0 for manner in manners], totals, np.nan)


def _drawn_alone(scores: Tensor, wanted: Draw) -> Outcome:
    row = _Row(scores)
    if wanted.last is not None and row.fault is None:
        row = _Row(wanted.last(row.filtered(wanted.manner)))
        wanted = wanted._replace(manner=Manner())
    return row.fault or row.draw(wanted.manner, wanted.number)


class _Row:
    """All tokens of one row. Only their scores are sorted, which is fast; tokens are looked up."""

    def __init__(self, scores: Tensor) -> None:
        self._tensor = scores
        self._scores = scores.cpu().numpy()
        self.fault = _fault(float(self._scores.max()))
        self._sorted = -np.sort(-self._scores)

    def draw(self, manner: Manner, number: float) -> int:
        manners, numbers = Manners.of([manner]), np.array([number])
        (place,) = places(self._candidates, manners, _UNKNOWN, numbers).tolist()
        equals = np.flatnonzero(self._scores == self._sorted[place])
        return int(equals[place - np.argmax(self._sorted == self._sorted[place])])

    def filtered(self, manner: Manner) -> Tensor:
        """Divided by the temperature, and -inf where top_k, top_p or min_p leave a token out."""
        (number,) = keep(self._candidates, Manners.of([manner]), _UNKNOWN).number.tolist()
        least = self._sorted[number - 1]
        above = np.flatnonzero(self._scores > least)
        equals = np.flatnonzero(self._scores == least)[: number - len(above)]
        kept = torch.from_numpy(np.concatenate([above, equals])).to(self._tensor.device)
        left = torch.full_like(self._tensor, -torch.inf)
        left[kept] = self._tensor[kept] / manner.temperature
        return left

    @property
    def _candidates(self) -> Candidates:
        return Candidates(self._sorted[None].astype(np.float64), whole=True)


_UNKNOWN = np.full(1, np.nan)
"""The weight of all tokens, where it need not be told."""


def _fault(highest: float) -> EngineError | None:
    """Why nothing can be drawn, where the highest score of a row is this."""
    if math.isnan(highest):
        return EngineError(
            "the model gave scores that are not numbers (NaN)",
            hint="try another dtype: float16 overflows in some models; or look at your processors",
        )
    if highest == -math.inf:
        return EngineError(
            "no token is left to draw: the score of each is minus infinity",
            hint="logit_bias or a logits processor rules out all of them",
        )
    return None
