"""Draws the next token of each row, as that row wishes; the rows beside it make no difference.

The order of what is done to a row:

1. logit bias, `min_new_tokens`, repetition, presence and frequency penalty, the user's processors;
2. temperature, then top_k, top_p and min_p. This is the order of transformers, and vLLM too takes
   the temperature first: for it the settings on model cards were found, and a `GenerationConfig`
   means here what it means to `generate`. llama.cpp divides by the temperature last, so that with
   the same numbers fewer tokens are left here below a temperature of 1, and more above;
3. one uniform number, made of the row's seed and its step, chooses from what is left, the likeliest
   token first. Nothing else is random, and a row with temperature 0 needs not even that.

Given the same logits, a row draws the same token alone and in any batch, to the last bit.
"""

from __future__ import annotations

from functools import partial
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from bourn.engines.hf.sampling.candidates import manner, uniform
from bourn.engines.hf.sampling.drawing import Draw, Outcome, tokens
from bourn.engines.hf.sampling.logprobs import Texts, Wish, entries
from bourn.engines.hf.sampling.scores import Memory, changed, changes, processed, remembers
from bourn.engines.hf.sequence import Drawn, Sequence
from bourn.types import TokenLogprob


class Sampler:
    """Draws for any rows, in one thread at a time.

    vocabulary: the texts of tokens, for log probabilities; without it these carry no text.
    size: how many of the logits stand for a token, where an embedding is longer than its
        vocabulary; None is all of them.
    """

    def __init__(self, vocabulary: Texts | None = None, size: int | None = None) -> None:
        self._vocabulary = vocabulary
        self._size = size
        self._memories: WeakKeyDictionary[Sequence, Memory] = WeakKeyDictionary()

    @torch.no_grad()
    def draw(self, sequences: list[Sequence], logits: Tensor) -> list[Drawn | Exception]:
        """A token for each row, or what went wrong with it; one row's fault is not its neighbour's.

        logits: [rows, vocabulary], of any float type, on any device; they are not changed.

        What a row's own processor or criterion raises is given as it is. A criterion is asked after
        the token is drawn: its ids include it, its scores are those before the temperature. Log
        probabilities are the model's own, before anything was done to its logits.
        """
        logits = logits[:, : self._size]
        scores, wrong = self._scores(sequences, logits)
        outcomes = wrong | self._tokens(sequences, scores, wrong)
        told = entries(logits, _wishes(sequences, outcomes), self._vocabulary)
        return [
            self._drawn(sequence, scores[row], outcomes[row], told.get(row))
            for row, sequence in enumerate(sequences)
        ]

    def _scores(
        self, sequences: list[Sequence], logits: Tensor
    ) -> tuple[Tensor, dict[int, Outcome]]:
        """The logits as the rows want them changed; what went wrong, by row."""
        changing = [row for row, sequence in enumerate(sequences) if changes(sequence)]
        if not changing:
            return logits, {}
        scores = logits.to(torch.float32, copy=True)
        wrong: dict[int, Outcome] = {}
        for row in changing:
            before = scores[row]
            try:
                after = changed(sequences[row], before, self._memory(sequences[row]))
                if after is not before:
                    scores[row] = after
            except Exception as error:  # noqa: BLE001 (what a row's processor raises is that row's)
                wrong[row] = error
        return scores, wrong

    def _tokens(
        self, sequences: list[Sequence], scores: Tensor, wrong: dict[int, Outcome]
    ) -> dict[int, Outcome]:
        """What is drawn for each of the other rows."""
        rows = [row for row in range(len(sequences)) if row not in wrong]
        draws = [self._wanted(sequences[row]) for row in rows]
        return dict(zip(rows, tokens(scores[rows] if wrong else scores, draws), strict=True))

    def _wanted(self, sequence: Sequence) -> Draw:
        sampling = sequence.wishes.sampling
        memory = self._memory(sequence)
        last = None
        if memory is not None and memory.last:
            last = partial(processed, memory.last, memory.ids(sequence.ids))
        return Draw(manner(sampling), uniform(sampling.seed or 0, sequence.generated), last)

    def _drawn(
        self, sequence: Sequence, scores: Tensor, outcome: Outcome, entry: TokenLogprob | None
    ) -> Drawn | Exception:
        if isinstance(outcome, Exception):
            return outcome
        try:
            return Drawn(outcome, entry, stop=self._stops(sequence, outcome, scores))
        except Exception as error:  # noqa: BLE001 (what a row's criterion raises is that row's)
            return error

    def _stops(self, sequence: Sequence, token: int, scores: Tensor) -> bool:
        """Whether a criterion of the user's says so. All are asked: some count their calls."""
        memory = self._memory(sequence)
        criteria = sequence.wishes.hooks.criteria
        if memory is None or not criteria:
            return False
        ids = memory.ids(sequence.ids, token)[None].to(scores.device)
        own = scores[None].to(torch.float32, copy=True)
        said = [bool(criterion(ids, own)) for criterion in criteria]
        return any(said)

    def _memory(self, sequence: Sequence) -> Memory | None:
        if not remembers(sequence):
            return None
        if (memory := self._memories.get(sequence)) is None:
            memory = self._memories[sequence] = Memory(sequence.wishes)
        return memory


def _wishes(sequences: list[Sequence], outcomes: dict[int, Outcome]) -> dict[int, Wish]:
    """The rows that drew a token and want to know how probable it was."""
    return {
        row: Wish(outcome, sequences[row].wishes.logprobs or 0)
        for row, outcome in outcomes.items()
        if isinstance(outcome, int) and sequences[row].wishes.logprobs is not None
    }
