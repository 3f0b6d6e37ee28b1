"""Rows to draw tokens for, without a model, an engine or a tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from bourn.engines.hf.sequence import Drawn, Wishes
from bourn.engines.hf.sequence import Sequence as Row
from bourn.types import Sampling

NEUTRAL = Sampling(
    temperature=1.0,
    top_p=1.0,
    top_k=0,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
    seed=0,
)
"""Tokens are drawn as the model has them, nothing else is done."""

_SAMPLING = {field.name for field in fields(Sampling)}


class Silent:
    """A detokenizer that finds no text."""

    def feed(self, ids: Iterable[int]) -> str:
        return ""

    def flush(self) -> str:
        return ""


class Words:
    """What tokens stand for: token 7 is `<7>`."""

    def token(self, token: int) -> str:
        return f"<{token}>"

    def token_bytes(self, token: int) -> bytes:
        return b"<%d>" % token


def row(prompt: Sequence[int] = (0,), drawn: Sequence[int] = (), **asked: Any) -> Row:
    """A row that has drawn these tokens; `asked`: fields of `Sampling` and of `Wishes`."""
    sampling = Sampling(**{name: asked.pop(name) for name in _SAMPLING & asked.keys()})
    asked.setdefault("max_new_tokens", 10_000)
    wishes = Wishes(prompt=tuple(prompt), sampling=sampling.over(NEUTRAL), **asked)
    made = Row(wishes, Silent(), lambda _: None)
    for token in drawn:
        made.record(Drawn(token))
    return made
