"""All the state of one row: what was asked of it, what was read, what was drawn, where it ends.

Knows no tensors: the user's own hooks are the only ones here that see them, and they are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bourn.text.detokenize import Detokenizer
from bourn.types import FinishReason, Piece, Sampling, TokenLogprob, Usage

Hook = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Hooks:
    """The user's own `LogitsProcessor`s and `StoppingCriteria`.

    Called in the engine's thread with that row's ids, [1, length], prompt included, and its
    scores, [1, vocabulary], as `generate` would call them for it alone.
    """

    processors: tuple[Hook, ...] = ()
    criteria: tuple[Hook, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.processors or self.criteria)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is asked of one row, all of it resolved.

    prompt: ids, one at least. max_new_tokens: what the window leaves at most.
    end_ids: tokens that end it and are not shown; none where ends are to be ignored.
    sampling: every field is given, the seed too (this row's own).
    reuse: whether keys and values from earlier requests may be gone on from.
    """

    prompt: tuple[int, ...]
    sampling: Sampling
    max_new_tokens: int
    min_new_tokens: int = 0
    end_ids: frozenset[int] = frozenset()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    reuse: bool = True
    hooks: Hooks = Hooks()


class Drawn(NamedTuple):
    """A token for one row. `logprobs`: where asked. `stop`: a criterion of the user's says so."""

    token: int
    logprobs: TokenLogprob | None = None
    stop: bool = False


Sink = Callable[[Piece | Exception], None]
"""Where a row's pieces go. Called in the engine's thread; the last call has a finish, or is an
exception."""


class Sequence:
    """One row, from its prompt to its end.

    It belongs to the thread of its engine, but for `cancel`, which any thread may call.

    ids: the prompt and what was drawn. read: how many of them the KV cache holds.
    reused: how many of the prompt were there already.
    """

    def __init__(
        self, wishes: Wishes, detokenizer: Detokenizer, sink: Sink, *, choice: int = 0
    ) -> None:
        self.wishes = wishes
        self.choice = choice
        self.ids = list(wishes.prompt)
        self.read = 0
        self.reused = 0
        self.cancelled = False
        self.ended = False
        self._detokenizer = detokenizer
        self._sink = sink

    @property
    def generated(self) -> int:
        """Tokens drawn so far."""
        return len(self.ids) - len(self.wishes.prompt)

    @property
    def unread(self) -> int:
        """Tokens that the model has yet to see before the next can be drawn."""
        return len(self.ids) - self.read

    @property
    def usage(self) -> Usage:
        return Usage(len(self.wishes.prompt), self.generated, self.reused)

    def cancel(self) -> None:
        """Nobody wants it any more: it is gone at the next step, and says nothing."""
        self.cancelled = True

    def progress(self) -> None:
        """Tell how much of the prompt was read."""
        if self.choice == 0:
            self._give(Piece(prompt_done=self.read, prompt_total=len(self.ids)))

    def record(self, drawn: Drawn) -> None:
        """One token more; the finish reason is made here."""
        self.ids.append(drawn.token)
        ended = drawn.token in self.wishes.end_ids
        text = "" if ended else self._detokenizer.feed((drawn.token,))
        finish = self._finish(ended=ended or drawn.stop)
        if finish is not None:
            self.ended = True
            text += self._detokenizer.flush()
        entries = () if drawn.logprobs is None or ended else (drawn.logprobs,)
        tells = finish is not None or self.generated == 1  # early, for who breaks it off
        self._give(
            Piece(
                text,
                choice=self.choice,
                tokens=1,
                logprobs=entries,
                finish=finish,
                usage=self.usage if tells else None,
            )
        )

    def fail(self, error: Exception) -> None:
        """It ends here, with an error instead of a finish."""
        self.ended = True
        if not self.cancelled:
            self._sink(error)

    def _finish(self, *, ended: bool) -> FinishReason | None:
        if ended:  # also on the last token allowed
            return FinishReason.STOP
        return FinishReason.LENGTH if self.generated >= self.wishes.max_new_tokens else None

    def _give(self, piece: Piece) -> None:
        if not self.cancelled:
            self._sink(piece)
