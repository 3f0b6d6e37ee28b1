"""How probable drawn tokens were to the model, and what else it would have said.

Told of the model's own logits, before a penalty, a processor or the temperature changed them: as
vLLM does by default, and so that they can be compared between requests with other settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from bourn.engines.hf.sampling.candidates import ordered
from bourn.types import TokenLogprob

LEAST = -9999.0
"""Stands for the logarithm of 0, as in OpenAI's API: JSON has no infinity."""


class Texts(Protocol):
    """`vocabulary.Vocabulary`: what tokens stand for."""

    def token(self, token: int, /) -> str: ...

    def token_bytes(self, token: int, /) -> bytes: ...


class Wish(NamedTuple):
    """The token that a row drew, and how many of the likeliest it wants to be told beside it."""

    token: int
    top: int


def entries(
    logits: Tensor, wishes: Mapping[int, Wish], texts: Texts | None
) -> dict[int, TokenLogprob]:
    """For each of these rows of the logits, [rows, vocabulary]."""
    if not wishes:
        return {}
    logprobs = logits[list(wishes)].float().log_softmax(1)
    drawn = torch.tensor([wish.token for wish in wishes.values()], device=logits.device)
    own = logprobs.gather(1, drawn[:, None])[:, 0].tolist()
    most = min(max(wish.top for wish in wishes.values()), logits.shape[1])
    found = logprobs.topk(most)
    best, ids = ordered(found.values.cpu().numpy(), found.indices.cpu().numpy())
    told = {}
    for place, (row, wish) in enumerate(wishes.items()):
        beside = zip(ids[place, : wish.top], best[place, : wish.top], strict=True)
        top = tuple(_entry(int(token), float(value), texts) for token, value in beside)
        told[row] = _entry(wish.token, own[place], texts, top)
    return told


def _entry(
    token: int, logprob: float, texts: Texts | None, top: tuple[TokenLogprob, ...] = ()
) -> TokenLogprob:
    logprob = max(logprob, LEAST)
    if texts is None:
        return TokenLogprob("", logprob, top=top)
    return TokenLogprob(texts.token(token), logprob, texts.token_bytes(token), top)
