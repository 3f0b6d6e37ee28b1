from __future__ import annotations

from array import array
from random import Random

import pytest

from bourn.errors import EngineCrashed, QueueFull
from bourn.server.tally import BOUNDS, Histogram, Tally
from bourn.types import Done, FinishReason, Metrics, Usage


def test_bounds_rise_and_are_round() -> None:
    assert list(BOUNDS) == sorted(set(BOUNDS))
    assert (BOUNDS[0], BOUNDS[-1]) == (0.001, 500.0)
    assert max(len(str(bound)) for bound in BOUNDS) == 5


def test_a_histogram_counts_what_lies_up_to_each_bound() -> None:
    random = Random(0)
    values = [*BOUNDS, 0.0, 1000.0, *(random.expovariate(5) for _ in range(500))]
    histogram = Histogram()
    histogram.add(values[:100])
    histogram.add(array("d", values[100:]))
    histogram.add(())
    assert list(histogram.below()) == [
        *(sum(value <= bound for value in values) for bound in BOUNDS),
        len(values),
    ]
    assert histogram.sum == pytest.approx(sum(values))


WHOLE = Done(
    "complete",
    Usage(10, 5, cached_tokens=4),
    Metrics(queue_time=0.3, ttft=0.5, total=1.5, tokens=5),
)


def count(histogram: Histogram) -> int:
    return list(histogram.below())[-1]


def test_a_whole_answer() -> None:
    tally = Tally()
    tally.ended(WHOLE, [FinishReason.STOP, FinishReason.LENGTH], [0.1, 0.2, 0.3])
    assert (tally.prompt_tokens, tally.tokens, tally.cached_tokens) == (10, 5, 4)
    assert tally.finished == {FinishReason.STOP: 1, FinishReason.LENGTH: 1}
    assert (tally.ttft.sum, tally.total.sum, tally.queue_time.sum) == (0.5, 1.5, 0.3)
    assert count(tally.itl) == 3
    assert tally.itl.sum == pytest.approx(0.6)
    assert (tally.cancelled, tally.failed) == (0, {})


def test_an_answer_that_nobody_wanted_any_more() -> None:
    tally = Tally()
    tally.ended(Done("cancelled", Usage(10, 3), WHOLE.metrics), [], [0.1])
    assert (tally.cancelled, tally.finished, tally.failed) == (1, {}, {})
    assert tally.tokens == 3  # it was computed all the same
    assert (count(tally.ttft), count(tally.total)) == (1, 0)


def test_one_that_never_began_has_no_first_token() -> None:
    tally = Tally()
    tally.ended(Done("cancelled", metrics=Metrics(queue_time=7.0, total=7.0)), [], [])
    assert (count(tally.ttft), count(tally.itl)) == (0, 0)
    assert tally.queue_time.sum == 7.0


@pytest.mark.parametrize(
    ("done", "code"),
    [
        (Done("failed", error=EngineCrashed("the secret prompt killed it")), "engine_crashed"),
        (Done("failed", error=QueueFull("full")), "queue_full"),
        (Done("failed", error=KeyError("the secret prompt")), "internal_error"),
        (Done("blocked"), "blocked"),
    ],
)
def test_a_failure_is_counted_by_its_code(done: Done, code: str) -> None:
    tally = Tally()
    tally.ended(done, [], [])
    assert tally.failed == {code: 1}
    assert (count(tally.total), tally.cancelled) == (0, 0)
