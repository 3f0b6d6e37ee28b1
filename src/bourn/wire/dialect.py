"""What one kind of OpenAI-compatible endpoint takes and tells. For the kinds: engines.dialects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NAMELESS = "generic"
"""The kind of an endpoint of which nobody knows more."""


def spoken(kind: str) -> str:
    """The name of an engine, or of a kind of endpoint, for a sentence."""
    return "this endpoint" if kind == NAMELESS else kind


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of endpoint. What it is not known to take is never sent to it.

    limit: its name for the token limit of a chat.
    sampling: our names of `Sampling`'s fields to its own; what is missing it does not take.
    fields: the optional request fields (`Request.asks`), without sampling, that it honours.
    extra: fields sent with every request. chat_extra: with chats only.
    resolves: whether bourn's own defaults are sent in full (`ModelInfo.resolves`).
    top_k_off: its number for "no top_k".
    least_top: the fewest alternatives to ask for with logprobs; what is too many is cut off here.
    reasoning: its name for an earlier message's reasoning; None where it takes none back.
    reuse: its name for whether earlier prompts may be reused (`Request.reuse_prompt`).
    no_arguments: what it takes for the arguments of a call that has none.
    names_call: whether `tool_choice` may name a function; else that one alone is shown, and a call
        required.
    tells: whether its list of models tells more than their names.
    about: where it tells more about the model, from the root of the server.
    """

    name: str
    limit: str = "max_tokens"
    sampling: Mapping[str, str] = field(default_factory=dict)
    fields: frozenset[str] = frozenset()
    extra: Mapping[str, Any] = field(default_factory=dict)
    chat_extra: Mapping[str, Any] = field(default_factory=dict)
    resolves: bool = False
    top_k_off: int = 0
    least_top: int = 0
    reasoning: str | None = None
    reuse: str | None = None
    no_arguments: str = ""
    names_call: bool = True
    tells: bool = True
    about: str | None = None

    @property
    def honours(self) -> frozenset[str]:
        """All it honours, sampling included."""
        return self.fields | self.sampling.keys()
