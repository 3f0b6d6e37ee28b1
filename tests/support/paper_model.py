"""A model on paper: its KV cache is lists of tokens, its logits what those tokens come to.

It checks what a runner must be able to trust: that each slot holds just what its row has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bourn.engines.hf.sequence import Drawn, Sequence, Wishes
from bourn.engines.hf.step import Step
from bourn.types import DEFAULT_SAMPLING, Piece

VOCABULARY = 50
END = 0


def next_token(ids: Iterable[int]) -> int:
    """Depends on every token before, and ends about one answer in VOCABULARY tokens."""
    state = 7
    for token in ids:
        state = (state * 31 + token + 1) % 1_000_003
    return state % VOCABULARY


def answer(prompt: Iterable[int], limit: int) -> list[int]:
    """What a row answers when it is alone; the end token with it."""
    ids = list(prompt)
    drawn: list[int] = []
    while len(drawn) < limit and END not in drawn:
        drawn.append(next_token(ids))
        ids.append(drawn[-1])
    return drawn


class Paper:
    """Runner and sampler in one. before: called before each step; it may raise."""

    def __init__(self, slots: int, before: Callable[[Step], object] = lambda step: None) -> None:
        self.cells: list[list[int]] = [[] for _ in range(slots)]
        self.before = before
        self.steps: list[Step] = []
        self.copied = 0
        self.closed = False

    def run(self, step: Step) -> Any:
        self.before(step)
        self.steps.append(step)
        for source, target, length in step.copies:
            assert len(self.cells[source]) >= length
            self.cells[target] = self.cells[source][:length]
            self.copied += length
        for stretch in step.stretches:
            cell = self.cells[stretch.slot][: stretch.start]
            assert cell == stretch.sequence.ids[: stretch.start]
            self.cells[stretch.slot] = cell + stretch.ids
        return [self.cells[stretch.slot] for stretch in step.stretches if stretch.draws]

    def draw(self, sequences: list[Sequence], logits: Any) -> list[Drawn | Exception]:
        return [Drawn(next_token(cell)) for cell in logits]

    def close(self) -> None:
        self.closed = True


class Letters:
    """A detokenizer: a letter a token."""

    def feed(self, ids: Iterable[int]) -> str:
        return "".join(chr(ord("A") + token) for token in ids)

    def flush(self) -> str:
        return ""


class Heard:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.error: Exception | None = None

    def __call__(self, said: Piece | Exception) -> None:
        assert not self.over, "something came after the end"
        if isinstance(said, Exception):
            self.error = said
        else:
            self.pieces.append(said)

    @property
    def over(self) -> bool:
        return self.error is not None or any(piece.finish for piece in self.pieces)

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def row(
    prompt: Iterable[int], *, limit: int = 5, ends: bool = True, reuse: bool = True
) -> tuple[Sequence, Heard]:
    heard = Heard()
    end_ids = frozenset({END} if ends else ())
    wishes = Wishes(tuple(prompt), DEFAULT_SAMPLING, limit, end_ids=end_ids, reuse=reuse)
    return Sequence(wishes, Letters(), heard), heard


def expected(prompt: Iterable[int], limit: int = 5) -> str:
    """The text that a row alone would say."""
    return Letters().feed(token for token in answer(prompt, limit) if token != END)
