"""How many tokens messages may be, where nobody can count them. Always labelled as an estimate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from bourn.types import Message, Usage

_PLAIN = 1 / 3.5
"""Tokens for a character of ASCII, before anything was learned."""

_DENSE = 1 / 1.5
"""Tokens for any other character, of which most are Chinese, Japanese, Korean, or emoji."""

_AROUND = 4.0
"""Tokens that a template writes around each message."""

_IMAGE = 500.0

_LEAST, _MOST = 0.25, 4.0
"""Further than this from the first guess, what an endpoint told was not the size of the prompt."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens by characters. `scale` is what was learned of one model from its last usage."""

    scale: float = 1.0

    def count(self, messages: Iterable[Message]) -> int:
        """About how many tokens the messages are, once a template is around them."""
        return ceil(self.scale * _guess(messages))

    def learned(self, messages: Iterable[Message], usage: Usage) -> Estimate:
        """Calibrated: `usage` is what the endpoint told of a prompt of exactly these messages."""
        guess = _guess(messages)
        if usage.estimated or not usage.prompt_tokens or not guess:
            return self
        return Estimate(min(max(usage.prompt_tokens / guess, _LEAST), _MOST))


UNCALIBRATED = Estimate()


def _guess(messages: Iterable[Message]) -> float:
    return sum(map(_of_message, messages))


def _of_message(message: Message) -> float:
    called = "".join(call.name + call.arguments for call in message.tool_calls)
    return _AROUND + _of_text(message.text + called) + _IMAGE * len(message.images)


def _of_text(text: str) -> float:
    plain = len(text.encode("ascii", "ignore"))
    return plain * _PLAIN + (len(text) - plain) * _DENSE
