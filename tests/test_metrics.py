from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bourn.metrics import Recorder, feel_of_speed, feel_of_start, percentile
from bourn.types import Channel, Piece, Usage


def clock(*moments: float) -> Callable[[], float]:
    ticking: Iterator[float] = iter(moments)
    return lambda: next(ticking)


def test_times_of_a_plain_answer() -> None:
    recorder = Recorder(clock(0, 1, 3, 3, 4, 6, 7))
    recorder.admitted()  # 1
    recorder.piece(Piece("a", tokens=1))  # 3
    recorder.text()  # 3
    recorder.piece(Piece("b", tokens=1))  # 4
    recorder.piece(Piece("c", tokens=1))  # 6
    told = recorder.metrics()  # 7
    assert (told.queue_time, told.ttft, told.first_text, told.total) == (1, 3, 3, 7)
    assert told.tokens == 3
    assert told.tokens_per_second == pytest.approx(2 / 3)
    assert (told.itl_p50, told.itl_p99, told.itl_mean) == (2, 2, 1.5)


def test_an_empty_role_piece_and_progress_are_no_tokens() -> None:
    recorder = Recorder(clock(0, 5, 9))
    recorder.piece(Piece(""))
    recorder.piece(Piece(prompt_done=3, prompt_total=8))
    recorder.piece(Piece("x", tokens=1))  # 5
    assert recorder.metrics().ttft == 5


def test_reasoning_counts_for_the_first_token_not_for_the_first_text() -> None:
    recorder = Recorder(clock(0, 1, 8, 9, 10))
    recorder.piece(Piece("hm", Channel.REASONING, tokens=1))  # 1
    recorder.piece(Piece("yes", tokens=1))  # 8
    recorder.text()  # 9
    told = recorder.metrics()
    assert (told.ttft, told.first_text) == (1, 9)


def test_usage_and_the_end_do_not_stretch_the_speed() -> None:
    recorder = Recorder(clock(0, 1, 2, 100))
    recorder.piece(Piece("a", tokens=1))
    recorder.piece(Piece("b", tokens=1))
    recorder.piece(Piece(usage=Usage(7, 2, 5)))
    told = recorder.metrics()
    assert told.tokens_per_second == 1
    assert (told.prompt_tokens, told.cached_tokens, told.estimated) == (7, 5, False)


def test_what_comes_after_an_early_usage_is_counted_on() -> None:
    recorder = Recorder(clock(0, 1, 2, 3, 4, 5))
    recorder.piece(Piece("a", tokens=1, usage=Usage(7, 1, 5)))
    assert recorder.usage == Usage(7, 1, 5)
    recorder.piece(Piece("b", tokens=1))
    recorder.piece(Piece("c", tokens=2))
    assert recorder.usage == Usage(7, 4, 5)  # as for one who is broken off here
    recorder.piece(Piece(tokens=1, usage=Usage(7, 5, 5)))
    assert recorder.usage == Usage(7, 5, 5)


def test_several_tokens_in_a_piece_share_its_time() -> None:
    recorder = Recorder(clock(0, 1, 5, 5))
    recorder.piece(Piece("a", tokens=1))
    recorder.piece(Piece("bcde", tokens=4))
    told = recorder.metrics()
    assert told.itl_p99 == 1
    assert told.tokens_per_second == 1


def test_the_gaps_of_two_choices_are_not_mixed() -> None:
    recorder = Recorder(clock(0, 1, 1.5, 3, 3.5, 9))
    for choice in (0, 1, 0, 1):
        recorder.piece(Piece("x", choice=choice, tokens=1))
    assert recorder.metrics().itl_p50 == 2


def test_without_the_engines_count_it_is_estimated() -> None:
    recorder = Recorder(clock(0, 1, 2, 3))
    recorder.piece(Piece("a", tokens=1))
    recorder.piece(Piece("b", tokens=1))
    assert recorder.usage == Usage(completion_tokens=2, estimated=True)
    assert recorder.metrics().estimated


def test_nothing_generated_has_no_times() -> None:
    told = Recorder(clock(0, 4, 4)).metrics()
    assert (told.ttft, told.first_text, told.tokens_per_second, told.itl_p50) == (None,) * 4
    assert told.queue_time == told.total == 4


def test_percentiles_are_of_the_nearest_rank() -> None:
    hundred = [float(n) for n in range(100)]
    assert (percentile(hundred, 0.5), percentile(hundred, 0.99)) == (50, 99)
    assert percentile([3.0], 0.99) == 3
    assert percentile([], 0.5) is None


@pytest.mark.parametrize(
    ("ttft", "word"), [(0.1, "instant"), (0.5, "responsive"), (2.0, "responsive"), (2.1, "slow")]
)
def test_words_for_the_start(ttft: float, word: str) -> None:
    assert feel_of_start(ttft) == word


@pytest.mark.parametrize(
    ("speed", "word"), [(15, "comfortable"), (14.9, "readable"), (5, "painful"), (1, "painful")]
)
def test_words_for_the_speed(speed: float, word: str) -> None:
    assert feel_of_speed(speed) == word


def test_a_prompt_that_was_being_read_is_counted_where_nobody_tells_more() -> None:
    recorder = Recorder(clock(0))
    recorder.piece(Piece(prompt_done=3, prompt_total=8))
    assert recorder.usage == Usage(8, 0)
    recorder.piece(Piece(usage=Usage(9, 1)))
    assert recorder.usage == Usage(9, 1)
