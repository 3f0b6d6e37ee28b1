"""How much of a prompt a step may read, so that the answers beside it keep flowing."""

from __future__ import annotations

ALONE = 512
"""Prompt tokens a step while nobody is answering: few enough to notice soon that a reader left."""

LEAST = 16
"""Prompt tokens a step at least, or a prompt would never be read beside a busy batch."""

_MEMORY = 0.2  # weight of the newest measurement


class Pace:
    """Measures steps, and keeps one that reads prompts to about twice one that only answers.

    step: seconds of a step that only answers. token: seconds that one prompt token adds. None until
    they were measured.
    """

    def __init__(self) -> None:
        self.step: float | None = None
        self.token: float | None = None

    def prompt_tokens(self, answering: int) -> int:
        """How many prompt tokens the next step may read, with so many rows answering."""
        if not answering:
            return ALONE
        if self.step is None or self.token is None:
            return 4 * LEAST
        return min(ALONE, max(LEAST, int(self.step / self.token)))

    def took(self, seconds: float, answering: int, prompt_tokens: int) -> None:
        """A step took so long."""
        if not prompt_tokens:
            self.step = _mean(self.step, seconds)
            return
        beside = (self.step or 0.0) if answering else 0.0
        self.token = _mean(self.token, max(seconds - beside, 0.0) / prompt_tokens or 1e-9)


def _mean(mean: float | None, new: float) -> float:
    return new if mean is None else mean + _MEMORY * (new - mean)
