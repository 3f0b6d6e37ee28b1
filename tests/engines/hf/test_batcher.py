from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bourn.engines.hf.batcher import Batcher
from bourn.engines.hf.sequence import Drawn, Sequence
from bourn.engines.hf.step import Step
from bourn.errors import EngineError
from bourn.types import FinishReason
from tests.support.paper_model import Heard, Paper, expected, row


@contextmanager
def batching(paper: Paper) -> Iterator[Batcher]:
    batcher = Batcher(paper, paper, slots=len(paper.cells))
    try:
        yield batcher
    finally:
        batcher.close()


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def all_over(heard: list[Heard]) -> None:
    wait(lambda: all(one.over for one in heard))


def test_rows_say_what_they_would_say_alone() -> None:
    prompts = [[n, 3, n] for n in range(1, 8)]
    rows = [row(prompt, limit=20) for prompt in prompts]
    with batching(Paper(3)) as batcher:
        for sequence, _ in rows:
            batcher.submit(sequence)
        all_over([heard for _, heard in rows])
    assert [heard.text for _, heard in rows] == [expected(prompt, 20) for prompt in prompts]


def test_it_serves_many_threads() -> None:
    rows = [row([n % 9 + 1, n % 7 + 1], limit=10) for n in range(60)]
    with batching(Paper(4)) as batcher:
        threads = [threading.Thread(target=batcher.submit, args=(each,)) for each, _ in rows]
        for thread in threads:
            thread.start()
        all_over([heard for _, heard in rows])
    for sequence, heard in rows:
        assert heard.text == expected(sequence.wishes.prompt, 10)


def test_the_limit_and_the_end_have_their_reasons() -> None:
    long, short = row([5, 5], limit=2), row([5], limit=500)
    with batching(Paper(2)) as batcher:
        batcher.submit(long[0], short[0])
        all_over([long[1], short[1]])
    assert long[1].pieces[-1].finish is FinishReason.LENGTH
    assert short[1].pieces[-1].finish is FinishReason.STOP
    usage = long[1].pieces[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (2, 2)


def test_a_step_that_fails_ends_only_the_row_that_fails_alone_too() -> None:
    def refuse(step: Step) -> None:
        if any(13 in stretch.sequence.wishes.prompt for stretch in step.stretches):
            raise MemoryError("too much")

    good, bad, later = row([1, 2], limit=30), row([13, 2], limit=30), row([4], limit=3)
    with batching(Paper(2, refuse)) as batcher:
        batcher.submit(good[0], bad[0])
        all_over([good[1], bad[1]])
        batcher.submit(later[0])
        all_over([later[1]])
    assert isinstance(bad[1].error, MemoryError)
    assert good[1].text == expected([1, 2], 30)
    assert later[1].text == expected([4], 3)


def test_a_row_whose_token_cannot_be_drawn_fails_alone() -> None:
    class Picky(Paper):
        def draw(self, sequences: list[Sequence], logits: object) -> list[Drawn | Exception]:
            drawn = super().draw(sequences, logits)
            return [
                ValueError("no") if sequence.wishes.prompt == (9,) else one
                for sequence, one in zip(sequences, drawn, strict=True)
            ]

    good, bad = row([1, 2]), row([9])
    with batching(Picky(2)) as batcher:
        batcher.submit(good[0], bad[0])
        all_over([good[1], bad[1]])
    assert str(bad[1].error) == "no"
    assert good[1].text == expected([1, 2])


def test_a_sampler_that_breaks_reaches_everybody_and_the_next_is_served() -> None:
    class Breaks(Paper):
        broken = True

        def draw(self, sequences: list[Sequence], logits: object) -> list[Drawn | Exception]:
            if self.broken:
                raise MemoryError("too much")
            return super().draw(sequences, logits)

    paper = Breaks(2)
    first, second, third = row([1]), row([2]), row([3])
    with batching(paper) as batcher:
        batcher.submit(first[0], second[0])
        all_over([first[1], second[1]])
        paper.broken = False
        batcher.submit(third[0])
        all_over([third[1]])
    assert isinstance(first[1].error, MemoryError)
    assert isinstance(second[1].error, MemoryError)
    assert third[1].text == expected([3])


def test_closing_ends_everybody_and_the_thread() -> None:
    running, waiting = row([1], limit=10**6, ends=False), row([2])
    before = set(threading.enumerate())
    gate = threading.Event()
    paper = Paper(1, lambda step: gate.set())
    batcher = Batcher(paper, paper, slots=1)
    batcher.submit(running[0], waiting[0])
    gate.wait()
    batcher.close()
    batcher.close()
    assert paper.closed
    assert set(threading.enumerate()) <= before
    assert isinstance(running[1].error, EngineError)
    assert isinstance(waiting[1].error, EngineError)
    with pytest.raises(EngineError, match="closed"):
        batcher.submit(row([1])[0])


def test_its_thread_ends_after_a_rest_and_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bourn.engines.hf.batcher._REST", 0.01)
    before = set(threading.enumerate())
    for _ in range(2):
        with batching(Paper(1)) as batcher:
            for prompt in ([1, 2], [3]):
                sequence, heard = row(prompt)
                batcher.submit(sequence)
                all_over([heard])
                assert heard.text == expected(prompt)
                wait(lambda: set(threading.enumerate()) <= before)


def test_it_rests_when_there_is_nothing_to_do() -> None:
    paper = Paper(1)
    with batching(paper) as batcher:
        sequence, heard = row([1, 2])
        batcher.submit(sequence)
        all_over([heard])
        steps = len(paper.steps)
        time.sleep(0.05)
        assert len(paper.steps) == steps
