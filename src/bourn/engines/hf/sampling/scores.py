"""What is done to the logits of one row before a token is drawn from them.

In this order: logit bias, `min_new_tokens`, repetition penalty, presence and frequency penalty,
the user's processors. It draws nothing, and knows one row at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Many

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bourn.engines.hf.sampling.processors import Place, at, made_for
from bourn.engines.hf.sequence import Hook, Sequence, Wishes
from bourn.errors import InvalidRequest


class Memory:
    """What is kept of a row between two steps: its ids as an array, its processors made ready.

    It must not refer to its sequence, with which it goes.
    """

    def __init__(self, wishes: Wishes) -> None:
        processors = made_for(wishes)
        self.first = at(Place.FIRST, processors)
        self.middle = at(Place.MIDDLE, processors)
        self.last = at(Place.LAST, processors)
        self._ids: NDArray[np.int64] = np.empty(0, np.int64)
        self._length = 0

    def ids(self, ids: Many[int], *drawn: int) -> Tensor:
        """A row's ids, and what was drawn after them. Only what is new since the last is copied."""
        length = len(ids) + len(drawn)
        if length > len(self._ids):
            self._ids = np.resize(self._ids, 2 * length)
        self._ids[self._length : length] = [*ids[self._length :], *drawn]
        self._length = len(ids)
        return torch.from_numpy(self._ids[:length])


def changes(sequence: Sequence) -> bool:
    """Whether anything is to be done to its logits."""
    wishes = sequence.wishes
    return (
        bool(wishes.logit_bias or wishes.hooks.processors)
        or sequence.generated < wishes.min_new_tokens
        or _repetition(wishes) != 1
        or any(_penalties(wishes))
    )


def remembers(sequence: Sequence) -> bool:
    """Whether something of it is to be kept from step to step."""
    wishes = sequence.wishes
    return bool(wishes.hooks) or _repetition(wishes) != 1 or any(_penalties(wishes))


def changed(sequence: Sequence, scores: Tensor, memory: Memory | None) -> Tensor:
    """The row's scores, [vocabulary], float32 and perhaps changed in place.

    Raises:
        InvalidRequest: the bias is for a token that there is not.
        Exception: whatever a processor raises.
    """
    _add_bias(sequence.wishes, scores)
    if sequence.generated < sequence.wishes.min_new_tokens:
        scores[_within(sequence.wishes.end_ids, scores)] = -torch.inf
    if memory is None:
        return scores
    ids = memory.ids(sequence.ids)
    scores = processed(memory.first, ids, scores)
    _penalise(sequence.wishes, ids, scores)
    return processed(memory.middle, ids, scores)


def processed(hooks: Iterable[Hook], ids: Tensor, scores: Tensor) -> Tensor:
    """What the processors make of one row, [vocabulary]; what they get and give stays theirs.

    Raises:
        TypeError: one gives something else than scores.
        Exception: whatever else one raises.
    """
    for hook in hooks:
        given = hook(ids[None].to(scores.device), scores[None].clone())
        if not isinstance(given, Tensor) or given.shape != (1, len(scores)):
            shape = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
            raise TypeError(
                f"a logits processor gave {shape}, not scores of shape (1, {len(scores)}): {hook!r}"
            )
        scores = given[0].to(scores, copy=True)
    return scores


def _add_bias(wishes: Wishes, scores: Tensor) -> None:
    for token in wishes.logit_bias:
        if not 0 <= token < len(scores):
            raise InvalidRequest(
                f"logit_bias is for token {token}, which this model does not have",
                hint=f"its tokens are 0 to {len(scores) - 1}",
            )
    if wishes.logit_bias:
        ids = torch.tensor(list(wishes.logit_bias), device=scores.device)
        scores[ids] += torch.tensor(list(wishes.logit_bias.values()), device=scores.device)


def _penalise(wishes: Wishes, ids: Tensor, scores: Tensor) -> None:
    """In place. An id that comes more than once gets the same value each time, but for `add`."""
    if (penalty := _repetition(wishes)) != 1:
        seen = ids[ids < len(scores)].to(scores.device)  # some models read more than they write
        found = scores[seen]
        scores[seen] = torch.where(found < 0, found * penalty, found / penalty)
    presence, frequency = _penalties(wishes)
    drawn = ids[len(wishes.prompt) :].to(scores.device)
    if presence:
        scores[drawn] = scores[drawn] - presence
    if frequency:
        scores.index_add_(0, drawn, torch.full_like(drawn, -frequency, dtype=scores.dtype))


def _repetition(wishes: Wishes) -> float:
    penalty = wishes.sampling.repetition_penalty
    return 1.0 if penalty is None else penalty


def _penalties(wishes: Wishes) -> tuple[float, float]:
    sampling = wishes.sampling
    return sampling.presence_penalty or 0.0, sampling.frequency_penalty or 0.0


def _within(ids: Iterable[int], scores: Tensor) -> Tensor:
    known = [token for token in ids if 0 <= token < len(scores)]
    return torch.tensor(known, dtype=torch.long, device=scores.device)
