"""Which requests one answer will do for.

Everything that is sent to the engine is in the key, all of it resolved, so that what is forgotten
here makes two answers of one, and never one of two. Answers that were drawn at random are nobody
else's, unless their reader says so, or a seed was given that the engine keeps.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

from bourn.engines.base import ModelInfo
from bourn.terms import Terms
from bourn.types import Request
from bourn.values import Unsayable, codec

VERSION = 1
"""Of what the key is made of: another one finds nothing that was kept before."""

Key = Callable[[Request, Request, ModelInfo, Terms], str | None]
"""Of a request as it was asked, as it is sent, what is known of the model, and the terms."""


def key_for(identity: str, *, everybody: bool = False) -> Key:
    """The key of a model's requests.

    identity: of the model by its content, and of what runs it: the same only where the same request
    would be answered alike. everybody: owners may be given what was made for others.
    """

    def key(asked: Request, sent: Request, info: ModelInfo, terms: Terms) -> str | None:
        if not _shareable(asked, sent, info, terms):
            return None
        kept = sent if _seeded(asked, info) else _without_seed(sent)
        try:
            said = codec(Request).write(kept)
        except Unsayable:
            return None
        owner = None if everybody else terms.owner
        whole = [VERSION, owner, identity, said, *(["cut"] if terms.cache.cut else ())]
        text = json.dumps(whole, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return sha256(text.encode()).hexdigest()

    return key


def _shareable(asked: Request, sent: Request, info: ModelInfo, terms: Terms) -> bool:
    if asked.engine_options:
        return False  # Python objects, that say nothing of themselves
    greedy = sent.sampling.temperature == 0 or sent.sampling.top_k == 1
    return greedy or terms.cache.sampled or _seeded(asked, info)


def _seeded(asked: Request, info: ModelInfo) -> bool:
    return asked.sampling.seed is not None and "seed" in info.honours


def _without_seed(request: Request) -> Request:
    return replace(request, sampling=replace(request.sampling, seed=None))
