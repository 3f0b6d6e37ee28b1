"""Per-row sampling, on small tensors."""

from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

from bourn.engines.hf.sampling.processors import ForRow, Place, Placed
from bourn.engines.hf.sampling.sampler import Sampler
from bourn.engines.hf.sequence import Drawn, Hooks
from bourn.engines.hf.sequence import Sequence as Row
from bourn.errors import EngineError, InvalidRequest
from tests.support.rows import Words, row

FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def drawn(sampler: Sampler, rows: list[Row], logits: Tensor) -> list[int]:
    """The tokens; fails where a row did."""
    outcomes = sampler.draw(rows, logits)
    return [outcome.token for outcome in outcomes if isinstance(outcome, Drawn)]


def one(asked: Row, *logits: float) -> Drawn:
    (outcome,) = Sampler(Words()).draw([asked], torch.tensor([logits]))
    assert isinstance(outcome, Drawn), outcome
    return outcome


def error_of(asked: Row, *logits: float) -> Exception:
    (outcome,) = Sampler(Words()).draw([asked], torch.tensor([logits]))
    assert isinstance(outcome, Exception)
    return outcome


# -- greedy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_temperature_0_takes_the_first_of_the_highest(dtype: torch.dtype) -> None:
    logits = torch.tensor([[1, 3, 3, 2], [5, 0, 0, 0]], dtype=dtype)
    rows = [row(temperature=0.0, seed=seed) for seed in (1, 2)]
    assert drawn(Sampler(), rows, logits) == [1, 0]


def test_a_greedy_row_depends_on_no_seed() -> None:
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(5))
    tokens = {one(row(temperature=0.0, seed=seed), *logits[0]).token for seed in range(20)}
    assert tokens == {int(logits.argmax())}


# -- drawn at random -------------------------------------------------------------------------------


def frequencies(logits: Tensor, draws: int, **asked: Any) -> Tensor:
    """How often each token comes, of so many draws with different seeds and steps."""
    counts = torch.zeros(logits.shape[0])
    sampler = Sampler()
    rows = [row(seed=seed, **asked) for seed in range(100)]
    for _ in range(draws // len(rows)):
        for asking, outcome in zip(rows, sampler.draw(rows, logits.expand(100, -1)), strict=True):
            assert isinstance(outcome, Drawn)
            counts[outcome.token] += 1
            asking.record(outcome)
    return counts


def chi_square(counts: Tensor, probabilities: Tensor) -> float:
    """Per degree of freedom: about 1 where the counts come of these probabilities."""
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    expected = counts.sum() * probabilities[possible]
    return float(((counts[possible] - expected) ** 2 / expected).sum() / (possible.sum() - 1))


def test_tokens_come_as_often_as_they_are_probable() -> None:
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -math.inf])
    counts = frequencies(logits, 5000)
    assert chi_square(counts, logits.softmax(0)) < 2.2  # one in a hundred is above 2.4


def test_and_as_often_after_temperature_and_filters() -> None:
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -3.0])
    counts = frequencies(logits, 5000, temperature=0.7, top_k=6, top_p=0.95, min_p=0.05)
    left = (logits / 0.7)[:4]  # the fifth would come after 0.97 of the mass
    expected = torch.zeros(8)
    expected[:4] = left.softmax(0)
    assert chi_square(counts, expected) < 2.6


def test_and_as_often_where_all_of_a_large_vocabulary_may_come() -> None:
    """Most tokens are not among the first candidates: they are found all the same."""
    logits = torch.zeros(4000)
    counts = frequencies(logits, 2000).view(8, 500).sum(1)
    assert chi_square(counts, torch.full((8,), 1 / 8)) < 2.2


def test_a_seed_gives_other_numbers_at_each_step() -> None:
    sampler, asked = Sampler(), row(seed=3)
    tokens = []
    for _ in range(40):
        (outcome,) = sampler.draw([asked], torch.zeros(1, 500))
        assert isinstance(outcome, Drawn)
        asked.record(outcome)
        tokens.append(outcome.token)
    assert len(set(tokens)) > 30


def test_the_same_seed_draws_the_same_and_another_draws_others() -> None:
    logits = torch.zeros(3, 5000)
    first, again, other = drawn(Sampler(), [row(seed=7), row(seed=7), row(seed=8)], logits)
    assert first == again != other


def test_equal_logits_at_the_border_of_top_k_are_all_kept() -> None:
    logits = torch.tensor([1.0] * 60 + [0.0] * 60)
    counts = frequencies(logits, 1000, top_k=3)
    assert counts[60:].sum() == 0
    assert (counts[:60] > 0).all()


def test_a_token_with_an_infinite_score_is_certain() -> None:
    asked = [row(seed=seed, top_k=top_k) for seed in range(10) for top_k in (0, 3)]
    logits = torch.tensor([[1.0, math.inf, 5.0, 0.0]]).expand(20, -1)
    assert set(drawn(Sampler(), asked, logits)) == {1}


@pytest.mark.parametrize("dtype", FLOATS)
def test_any_float_type_can_be_drawn_from(dtype: torch.dtype) -> None:
    logits = torch.full((2, 3000), -20.0, dtype=dtype)
    logits[:, 2500] = 20
    asked = [row(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05), row()]
    assert drawn(Sampler(), asked, logits) == [2500, 2500]


# -- what is done to the logits before -------------------------------------------------------------


def test_the_logits_are_left_as_they_are() -> None:
    def cruel(ids: Tensor, scores: Tensor) -> Tensor:
        return scores.zero_()

    def sly(ids: Tensor, scores: Tensor) -> bool:
        return bool(scores.zero_().any())

    logits = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    sampler = Sampler()
    sampler.draw([row(), row(hooks=Hooks(criteria=(sly,)))], logits)
    assert logits.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    biased: dict[str, Any] = {"logit_bias": {0: 5.0}, "repetition_penalty": 2.0}
    sampler.draw([row(**biased), row(hooks=Hooks((cruel,)))], logits)
    assert logits.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_bias_forces_and_forbids() -> None:
    assert one(row(logit_bias={2: 100}), 1.0, 2.0, 0.0).token == 2
    assert one(row(logit_bias={1: -math.inf}, temperature=0.0), 1.0, 2.0, 0.0).token == 0


@pytest.mark.parametrize("token", [-1, 3])
def test_a_bias_for_a_token_that_is_not_there_is_refused(token: int) -> None:
    error = error_of(row(logit_bias={token: 1.0}), 1.0, 2.0, 0.0)
    assert isinstance(error, InvalidRequest)
    assert str(token) in str(error)


def test_no_end_is_drawn_before_min_new_tokens() -> None:
    ends = frozenset({1, 2, 900})  # one of them is beyond the vocabulary
    asked: dict[str, Any] = {"temperature": 0.0, "min_new_tokens": 2, "end_ids": ends}
    logits = (0.0, 5.0, 4.0, 1.0)
    assert one(row(**asked), *logits).token == 3
    assert one(row(drawn=(3,), **asked), *logits).token == 3
    assert one(row(drawn=(3, 3), **asked), *logits).token == 1


def test_the_repetition_penalty_is_over_prompt_and_answer() -> None:
    asked: dict[str, Any] = {"temperature": 0.0, "repetition_penalty": 2.0}
    assert one(row(prompt=(0,), **asked), 3.0, 2.0, 1.0).token == 1
    assert one(row(prompt=(0,), drawn=(1, 1), **asked), 3.0, 2.0, 1.7).token == 2
    assert one(row(prompt=(0,), **asked), -1.0, -1.5, -3.0).token == 1  # more negative, not less


def test_ids_that_a_model_reads_but_never_writes_are_not_penalised() -> None:
    asked = row(prompt=(0, 77), temperature=0.0, repetition_penalty=2.0)
    assert one(asked, 3.0, 2.0).token == 1


def test_presence_and_frequency_are_over_the_answer_alone() -> None:
    presence: dict[str, Any] = {"temperature": 0.0, "presence_penalty": 1.5}
    assert one(row(prompt=(0, 0), **presence), 3.0, 2.0).token == 0
    assert one(row(drawn=(0,), **presence), 3.0, 2.0).token == 1
    assert one(row(drawn=(0, 0, 0), **presence), 3.0, 1.4).token == 0  # once, however often it came
    frequency: dict[str, Any] = {"temperature": 0.0, "frequency_penalty": 0.5}
    assert one(row(prompt=(0, 0, 0), **frequency), 3.0, 2.0).token == 0
    assert one(row(drawn=(0,), **frequency), 3.0, 2.0).token == 0
    assert one(row(drawn=(0, 0, 0), **frequency), 3.0, 2.0).token == 1


# -- the user's own hooks --------------------------------------------------------------------------


class Notes:
    """A processor, or a criterion, that writes down what it is called with."""

    def __init__(self, answer: Any = None) -> None:
        self.ids: list[Tensor] = []
        self.scores: list[Tensor] = []
        self._answer = answer

    def __call__(self, ids: Tensor, scores: Tensor) -> Any:
        self.ids.append(ids)
        self.scores.append(scores)
        return scores if self._answer is None else self._answer


def test_a_processor_gets_its_rows_ids_and_scores() -> None:
    notes = Notes()
    asked = row(prompt=(4, 5), drawn=(6,), temperature=0.5, hooks=Hooks((notes,)))
    logits = torch.tensor([[0.0, 1.0], [2.0, 3.0]], dtype=torch.bfloat16)
    sampler = Sampler()
    _, second = sampler.draw([row(), asked], logits)
    assert isinstance(second, Drawn)
    asked.record(second)
    sampler.draw([asked], logits[:1])
    assert [ids.tolist() for ids in notes.ids] == [[[4, 5, 6]], [[4, 5, 6, second.token]]]
    assert {ids.dtype for ids in notes.ids} == {torch.int64}
    assert [scores.tolist() for scores in notes.scores] == [[[2.0, 3.0]], [[0.0, 1.0]]]
    assert {scores.dtype for scores in notes.scores} == {torch.float32}


def test_processors_come_one_after_the_other_and_may_keep_what_they_are_given() -> None:
    notes = Notes()
    doubled = Hooks((lambda ids, scores: scores + 1, notes, lambda ids, scores: scores.mul_(-1)))
    assert one(row(temperature=0.0, hooks=doubled), 1.0, 2.0).token == 0
    assert notes.scores[0].tolist() == [[2.0, 3.0]]


def test_a_processor_may_have_a_place_of_its_own() -> None:
    first, middle, last = Notes(), Notes(), Notes()
    hooks = Hooks((Placed(last, Place.LAST), middle, Placed(first, Place.FIRST)))
    asked: dict[str, Any] = {"prompt": (1,), "repetition_penalty": 2.0, "top_k": 2, "hooks": hooks}
    one(row(temperature=0.5, **asked), 1.0, 4.0, 0.0)
    assert first.scores[0].tolist() == [[1.0, 4.0, 0.0]]
    assert middle.scores[0].tolist() == [[1.0, 2.0, 0.0]]
    assert last.scores[0].tolist() == [[2.0, 4.0, -math.inf]]
    one(row(temperature=0.0, **asked), 1.0, 4.0, 0.0)
    assert len(last.scores) == 1  # nothing is drawn at random


def test_the_last_processor_has_the_last_word() -> None:
    def only_the_second(ids: Tensor, scores: Tensor) -> Tensor:
        keep = scores.topk(2).indices[0, 1]
        return torch.full_like(scores, -math.inf).index_fill_(1, keep, 0.0)

    hooks = Hooks((Placed(only_the_second, Place.LAST),))
    assert {one(row(seed=n, hooks=hooks), 1.0, 4.0, 2.0).token for n in range(5)} == {2}


def test_a_processor_can_be_made_for_each_row() -> None:
    notes: dict[int, Notes] = {3: Notes(), 2: Notes()}
    hooks = Hooks((ForRow(lambda wishes: notes[len(wishes.prompt)]),))
    rows = [row(prompt=(0,) * length, hooks=hooks) for length in notes]
    sampler = Sampler()
    for _ in range(2):
        sampler.draw(rows, torch.zeros(2, 4))
    assert [len(of_row.ids) for of_row in notes.values()] == [2, 2]
    assert notes[3].ids[0].tolist() == [[0, 0, 0]]


class Mishap(RuntimeError):
    pass


def fails(ids: Tensor, scores: Tensor) -> Any:
    raise Mishap("no")


@pytest.mark.parametrize(
    "hooks",
    [
        Hooks(processors=(fails,)),
        Hooks(processors=(Placed(fails, Place.LAST),)),
        Hooks(processors=(Placed(fails, Place.FIRST),)),
        Hooks(processors=(ForRow(lambda wishes: fails(None, None)),)),  # type: ignore[arg-type]
        Hooks(criteria=(fails,)),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_a_hook_raises_reaches_its_row_and_no_other(hooks: Hooks, place: int) -> None:
    rows = [row(temperature=0.0), row(logit_bias={1: 9.0}), row(logprobs=0)]
    rows.insert(place, row(prompt=(1, 2), hooks=hooks))
    outcomes = Sampler(Words()).draw(rows, torch.tensor([[9.0, 0.0, 0.0]]).expand(4, -1))
    assert [type(outcome) is Mishap for outcome in outcomes] == [n == place for n in range(4)]
    good = [outcome for outcome in outcomes if isinstance(outcome, Drawn)]
    assert [outcome.token for outcome in good] == [0, good[1].token, 0]
    assert good[2].logprobs is not None


@pytest.mark.parametrize("given", [None, torch.zeros(3), torch.zeros(1, 2), "scores"])
def test_a_processor_must_give_scores(given: Any) -> None:
    error = error_of(row(hooks=Hooks((lambda ids, scores: given,))), 1.0, 2.0, 3.0)
    assert isinstance(error, TypeError)
    assert "(1, 3)" in str(error)


@pytest.mark.parametrize(
    ("answer", "stop"),
    [(True, True), (False, False), (torch.tensor([True]), True), (torch.tensor([False]), False)],
)
def test_a_criterion_stops_its_row(answer: Any, stop: bool) -> None:
    assert one(row(hooks=Hooks(criteria=(Notes(answer),))), 1.0, 2.0).stop is stop


def test_a_criterion_sees_the_token_and_the_scores_before_the_temperature() -> None:
    notes, after = Notes(answer=True), Notes(answer=False)
    hooks = Hooks(criteria=(notes, after))
    asked = row(prompt=(8, 9), temperature=0.5, top_k=1, repetition_penalty=1.0, hooks=hooks)
    sampler = Sampler()
    for step in (1, 2):
        (outcome,) = sampler.draw([asked], torch.tensor([[0.0, 6.0, 2.0]], dtype=torch.float16))
        assert outcome == Drawn(1, stop=True)
        asked.record(Drawn(1))
        assert notes.ids[-1].tolist() == [[8, 9] + [1] * step]
    assert notes.scores[0].tolist() == [[0.0, 6.0, 2.0]]
    assert notes.scores[0].dtype == torch.float32
    assert len(after.ids) == 2  # it is asked although another has said stop


def test_nothing_is_kept_of_a_row_that_is_gone() -> None:
    asked = row(hooks=Hooks((ForRow(lambda wishes: Notes()),)), repetition_penalty=1.1)
    made: list[weakref.ref[Any]] = []

    def make(wishes: Any) -> Notes:
        notes = Notes()
        made.append(weakref.ref(notes))
        return notes

    sampler = Sampler()
    asked = row(hooks=Hooks((ForRow(make),)), repetition_penalty=1.1)
    sampler.draw([asked], torch.zeros(1, 3))
    assert made[0]() is not None
    del asked
    gc.collect()
    assert made[0]() is None


# -- rows that cannot be drawn for -----------------------------------------------------------------

SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    {"temperature": 1.0},
    {"temperature": 1.0, "top_p": 0.9},
    {"hooks": Hooks((Placed(lambda ids, scores: scores, Place.LAST),))},
]


@pytest.mark.parametrize("asked", SETTINGS)
@pytest.mark.parametrize(("bad", "word"), [(math.nan, "NaN"), (-math.inf, "infinity")])
def test_scores_that_are_none_are_an_error_of_that_row(
    asked: dict[str, Any], bad: float, word: str
) -> None:
    logits = torch.zeros(3, 3000)
    logits[1, :] = bad
    logits[:, 7] = torch.tensor([50.0, bad, 50.0])
    first, second, third = Sampler(Words()).draw(
        [row(**asked), row(logprobs=2, **asked), row(**asked)], logits
    )
    assert isinstance(second, EngineError)
    assert word in str(second)
    assert second.hint
    assert first == third == Drawn(7)


@pytest.mark.parametrize("asked", SETTINGS)
def test_one_nan_among_numbers_is_an_error_too(asked: dict[str, Any]) -> None:
    logits = [0.0] * 50 + [math.nan] + [0.0] * 50
    assert isinstance(error_of(row(**asked), *logits), EngineError)


def test_a_last_processor_that_forbids_everything_is_an_error() -> None:
    hooks = Hooks((Placed(lambda ids, scores: scores - math.inf, Place.LAST),))
    assert isinstance(error_of(row(hooks=hooks), 1.0, 2.0), EngineError)


# -- log probabilities -----------------------------------------------------------------------------


def test_logprobs_are_the_models_own() -> None:
    asked = row(
        prompt=(0,), logprobs=2, temperature=0.0, repetition_penalty=9.0, logit_bias={3: 20.0}
    )
    logits = torch.tensor([4.0, 3.0, 2.0, 1.0])
    entry = one(asked, *logits).logprobs
    assert entry is not None
    expected = logits.log_softmax(0).tolist()
    assert (entry.token, entry.bytes) == ("<3>", b"<3>")
    assert entry.logprob == pytest.approx(expected[3], abs=1e-6)
    assert [(top.token, top.bytes) for top in entry.top] == [("<0>", b"<0>"), ("<1>", b"<1>")]
    assert [top.logprob for top in entry.top] == pytest.approx(expected[:2], abs=1e-6)


def test_each_row_gets_as_many_alternatives_as_it_asks_for() -> None:
    wished = [3, None, 0, 1, 99]
    rows = [row(logprobs=n, seed=n or 0) for n in wished]
    outcomes = Sampler(Words()).draw(rows, torch.randn(5, 10, dtype=torch.bfloat16))
    entries = [outcome.logprobs for outcome in outcomes if isinstance(outcome, Drawn)]
    assert [None if entry is None else len(entry.top) for entry in entries] == [3, None, 0, 1, 10]
    for entry in entries:
        tops = [] if entry is None else [top.logprob for top in entry.top]
        assert tops == sorted(tops, reverse=True)


def test_of_equal_alternatives_the_lower_id_comes_first() -> None:
    entry = one(row(logprobs=3), 1.0, 2.0, 2.0, 2.0).logprobs
    assert entry is not None
    assert [top.token for top in entry.top] == ["<1>", "<2>", "<3>"]


def test_a_probability_of_0_has_a_logarithm_that_json_can_say() -> None:
    entry = one(row(logprobs=3), 1.0, -math.inf, -math.inf).logprobs
    assert entry is not None
    assert [top.logprob for top in entry.top] == [0.0, -9999.0, -9999.0]


def test_without_a_vocabulary_there_are_numbers_alone() -> None:
    (outcome,) = Sampler().draw([row(logprobs=1, temperature=0.0)], torch.tensor([[0.0, 50.0]]))
    assert isinstance(outcome, Drawn)
    assert outcome.logprobs is not None
    assert (outcome.logprobs.token, outcome.logprobs.logprob) == ("", 0.0)


def test_what_lies_beyond_the_vocabulary_is_never_drawn() -> None:
    logits = torch.tensor([[0.0, 1.0, 9.0, 9.0]])
    (outcome,) = Sampler(Words(), 2).draw([row(temperature=0.0, logprobs=5)], logits)
    assert isinstance(outcome, Drawn)
    assert outcome.token == 1
    assert outcome.logprobs is not None
    assert len(outcome.logprobs.top) == 2


def test_no_rows_draw_nothing() -> None:
    assert Sampler().draw([], torch.zeros(0, 5)) == []
