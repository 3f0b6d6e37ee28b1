"""Laws of sampling: what a row draws is its own affair, and the right thing.

The right thing is told by plain Python, and by the classes of transformers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from bourn.engines.hf.sampling.candidates import Candidates, Manner, Manners, keep, uniform
from bourn.engines.hf.sampling.drawing import Draw, tokens
from bourn.engines.hf.sampling.sampler import Sampler
from bourn.engines.hf.sampling.scores import Memory, changed
from bourn.engines.hf.sequence import Drawn
from bourn.engines.hf.sequence import Sequence as Row
from tests.support.rows import row

law = settings(deadline=None, max_examples=60)  # a busy machine is no counterexample
often = settings(deadline=None, max_examples=150)

LOGITS = st.one_of(
    st.integers(-12, 12).map(lambda eighths: eighths / 8),  # many of them equal
    st.floats(-8, 8, width=32),
)
ROWS = st.lists(LOGITS, min_size=2, max_size=40)

TEMPERATURES = st.one_of(st.just(1.0), st.floats(0.1, 3))
TOP_KS = st.one_of(st.just(0), st.integers(1, 50))
SHARES = st.integers(0, 997).map(lambda parts: parts / 997)  # evenly: floats are mostly tiny ones
TOP_PS = st.one_of(st.just(1.0), SHARES)
MIN_PS = st.one_of(st.just(0.0), SHARES)
MANNERS = st.builds(Manner, TEMPERATURES, TOP_KS, TOP_PS, MIN_PS)
NUMBERS = st.integers(0, 9_999).map(lambda parts: parts / 10_000)


# -- filters ---------------------------------------------------------------------------------------


def warped(logits: Tensor, manner: Manner) -> Tensor:
    """As transformers filters, in double precision."""
    chain: list[LogitsProcessor] = [TemperatureLogitsWarper(manner.temperature)]
    if manner.top_k:
        chain.append(TopKLogitsWarper(manner.top_k))
    if manner.top_p < 1:
        chain.append(TopPLogitsWarper(manner.top_p))
    if manner.min_p > 0:
        chain.append(MinPLogitsWarper(manner.min_p))
    scores = logits[None].double()
    for warper in chain:
        scores = warper(torch.zeros(1, 1, dtype=torch.long), scores)
    return scores[0]


def is_clear(logits: Tensor, manner: Manner) -> bool:
    """Whether no token stands so near to a border that rounding decides."""
    weights = (warped(logits, manner._replace(top_p=1.0, min_p=0.0))).softmax(0)
    weights = weights.sort(descending=True).values
    before = weights.cumsum(0) - weights
    near_p = manner.top_p < 1 and ((before - manner.top_p).abs() < 1e-9).any()
    near_m = manner.min_p > 0 and ((weights / weights[0] - manner.min_p).abs() < 1e-9).any()
    return not near_p and not near_m


@often
@given(ROWS, MANNERS)
def test_the_filters_leave_what_transformers_leaves(row_of: list[float], manner: Manner) -> None:
    logits = torch.tensor(row_of)
    assume(is_clear(logits, manner))
    expected = warped(logits, manner)
    kept = logits[expected > -math.inf].sort(descending=True).values
    best = logits.sort(descending=True).values
    candidates = Candidates(best.double().numpy()[None], whole=True)
    number = keep(candidates, Manners.of([manner]), np.full(1, np.nan)).number[0]
    assert best[:number].tolist() == kept.tolist()


def by_hand(logits: list[float], manner: Manner, number: float) -> tuple[int, float]:
    """The token that a number chooses, and how near the number is to choosing another."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    best = logits[order[0]]
    if 0 < manner.top_k <= len(order):
        least = logits[order[manner.top_k - 1]]
        order = [token for token in order if logits[token] >= least]
    weights = [math.exp((logits[token] - best) / manner.temperature) for token in order]
    sums = list(accumulate(weights))
    kept = [
        sums[place]
        for place, weight in enumerate(weights)
        if place == 0
        or (
            (manner.top_p >= 1 or sums[place - 1] < manner.top_p * sums[-1])
            and weight >= manner.min_p
        )
    ]
    shares = [total / kept[-1] for total in kept]
    place = next((place for place, share in enumerate(shares) if share > number), len(kept) - 1)
    return order[place], min(abs(share - number) for share in shares)


@often
@given(ROWS, MANNERS, NUMBERS)
def test_a_number_chooses_the_token_that_plain_python_chooses(
    row_of: list[float], manner: Manner, number: float
) -> None:
    logits = torch.tensor(row_of)
    assume(is_clear(logits, manner))
    expected, distance = by_hand(logits.tolist(), manner, number)
    assume(distance > 1e-9)
    assert tokens(logits[None], [Draw(manner, number)]) == [expected]


def large(seed: int, spread: float, size: int = 3000) -> Tensor:
    """Scores of a vocabulary larger than the candidates that are looked at first."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(size, generator=generator) * spread).bfloat16()


@law
@given(
    st.integers(0, 10_000),
    st.sampled_from([0.1, 1.0, 4.0]),
    st.builds(Manner, TEMPERATURES, st.sampled_from([0, 0, 1, 40, 300, 2500]), TOP_PS, MIN_PS),
    NUMBERS,
)
def test_and_so_it_does_where_a_few_candidates_may_not_suffice(
    seed: int, spread: float, manner: Manner, number: float
) -> None:
    logits = large(seed, spread)
    assume(is_clear(logits.float(), manner))
    expected, distance = by_hand(logits.tolist(), manner, number)
    assume(distance > 1e-6)  # the weight of all tokens is a sum in single precision
    assert tokens(logits[None], [Draw(manner, number)]) == [expected]


# -- rows beside each other ------------------------------------------------------------------------


@st.composite
def asking(draw: st.DrawFn) -> dict[str, Any]:
    """A row's settings."""
    return {
        "temperature": draw(st.one_of(st.just(0.0), TEMPERATURES)),
        "top_k": draw(st.sampled_from([0, 1, 3, 40, 200, 700])),
        "top_p": draw(TOP_PS),
        "min_p": draw(MIN_PS),
        "repetition_penalty": draw(st.sampled_from([1.0, 1.0, 1.3])),
        "frequency_penalty": draw(st.sampled_from([0.0, 0.0, 0.5])),
        "seed": draw(st.integers(0, 3)),
        "logprobs": draw(st.sampled_from([None, None, 2])),
    }


def three_tokens(sampler: Sampler, beside: list[Row], logits: Tensor, place: int) -> list[int]:
    """What the row at that place draws in three steps, its logits the same at each."""
    for _ in range(3):
        for each, outcome in zip(beside, sampler.draw(beside, logits), strict=True):
            assert isinstance(outcome, Drawn)
            each.record(outcome)
    return beside[place].ids[-3:]


@law
@given(st.lists(asking(), min_size=1, max_size=8), st.data())
def test_a_row_draws_alone_what_it_draws_beside_others(
    asked: list[dict[str, Any]], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(asked) - 1))
    logits = torch.stack(
        [large(data.draw(st.integers(0, 50)), data.draw(st.sampled_from([0.05, 1, 4])), 1500)]
        + [large(number, 2, 1500) for number in range(len(asked) - 1)]
    ).roll(place, 0)
    together = three_tokens(Sampler(), [row(**each) for each in asked], logits, place)
    alone = three_tokens(Sampler(), [row(**asked[place])], logits[place : place + 1], 0)
    assert together == alone


@law
@given(st.integers(2, 60), st.integers(0, 7), st.lists(MANNERS, min_size=8, max_size=8))
def test_what_a_rows_candidates_weigh_is_the_same_to_the_last_bit(
    width: int, place: int, manners: list[Manner]
) -> None:
    """However many more are looked at, and whatever is beside it."""
    logits = np.stack([large(seed, 4).sort(descending=True).values.double() for seed in range(8)])
    totals = np.full(8, 1e9)
    together = keep(Candidates(logits[:, :200], whole=False), Manners.of(manners), totals)
    few = Candidates(logits[place : place + 1, :width], whole=False)
    alone = keep(few, Manners.of(manners[place : place + 1]), totals[:1])
    assert together.sums[place, :width].tobytes() == alone.sums[0].tobytes()
    if alone.known[0]:
        assert together.known[place]
        assert together.number[place] == alone.number[0]
        assert together.mass[place] == alone.mass[0]


@law
@given(st.integers(2, 9), st.integers(0, 100), st.sampled_from([700, 1501, 33_000]))
def test_a_softmax_reckons_each_row_by_itself(rows: int, seed: int, size: int) -> None:
    """What torch promises nowhere, and drawing stands on."""
    scores = torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * 5
    together = scores.softmax(1)
    for place in (0, rows - 1):
        assert torch.equal(together[place], scores[place : place + 1].softmax(1)[0])


@law
@given(st.integers(0, 2**32 - 2), st.integers(0, 100_000))
def test_a_number_is_of_its_seed_and_step(seed: int, step: int) -> None:
    assert 0 <= uniform(seed, step) < 1
    assert uniform(seed, step) == uniform(seed, step)
    assert len({uniform(seed, step), uniform(seed, step + 1), uniform(seed + 1, step)}) == 3


def test_numbers_are_spread_evenly() -> None:
    """Over the seeds, as over the steps of one."""
    for numbers in (
        [uniform(seed, 0) for seed in range(20_000)],
        [uniform(5, step) for step in range(20_000)],
    ):
        counts, _ = np.histogram(numbers, 50, (0, 1))
        assert ((counts - 400) ** 2 / 400).sum() / 49 < 1.6  # one in a hundred is above 1.53


# -- penalties -------------------------------------------------------------------------------------

PENALTIES = st.fixed_dictionaries(
    {
        "repetition_penalty": st.floats(0.5, 2),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "logit_bias": st.dictionaries(st.integers(0, 7), st.floats(-5, 5)),
    }
)


def penalised(asked: Row, logits: list[float]) -> list[float]:
    """The same by the book."""
    wishes, scores = asked.wishes, list(logits)
    sampling = wishes.sampling
    assert sampling.repetition_penalty is not None
    for token, bias in wishes.logit_bias.items():
        scores[token] += bias
    for token in {token for token in asked.ids if token < len(scores)}:
        better = scores[token] > 0
        factor = sampling.repetition_penalty
        scores[token] = scores[token] / factor if better else scores[token] * factor
    answer = asked.ids[len(wishes.prompt) :]
    for token in set(answer):
        scores[token] -= sampling.presence_penalty or 0
        scores[token] -= (sampling.frequency_penalty or 0) * answer.count(token)
    return scores


@often
@given(
    st.lists(LOGITS, min_size=8, max_size=8),
    st.lists(st.integers(0, 9), min_size=1, max_size=6),  # some are beyond the vocabulary
    st.lists(st.integers(0, 7), max_size=8),
    PENALTIES,
)
def test_penalties_are_what_plain_python_makes_them(
    logits: list[float], prompt: list[int], answer: list[int], penalties: dict[str, Any]
) -> None:
    asked = row(prompt, answer, **penalties)
    scores = changed(asked, torch.tensor(logits), Memory(asked.wishes))
    expected = torch.tensor(penalised(asked, torch.tensor(logits).tolist()))
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)


@law
@given(
    st.lists(LOGITS, min_size=8, max_size=8),
    st.lists(st.integers(0, 7), min_size=1, max_size=12),
    st.floats(0.5, 2),
)
def test_the_repetition_penalty_is_that_of_transformers(
    logits: list[float], ids: list[int], penalty: float
) -> None:
    asked = row(ids, repetition_penalty=penalty)
    scores = changed(asked, torch.tensor(logits), Memory(asked.wishes))
    theirs = RepetitionPenaltyLogitsProcessor(penalty)
    assert scores.tolist() == theirs(torch.tensor([ids]), torch.tensor([logits]))[0].tolist()


@law
@given(st.lists(st.lists(st.integers(0, 99), max_size=9), min_size=1, max_size=9), st.data())
def test_a_memory_holds_a_rows_ids_as_they_grow(
    parts: list[list[int]], data: st.DataObject
) -> None:
    memory, ids = Memory(row().wishes), [5]
    for part in parts:
        ids += part
        beyond = data.draw(st.lists(st.integers(0, 99), max_size=1))
        assert memory.ids(ids, *beyond).tolist() == [*ids, *beyond]


def test_the_wishes_of_a_row_are_not_touched() -> None:
    asked = row(prompt=(1, 2), logit_bias={1: 1.0}, repetition_penalty=1.5, logprobs=1)
    before = replace(asked.wishes)
    Sampler().draw([asked], torch.zeros(1, 5))
    assert asked.wishes == before
    assert asked.ids == [1, 2]
