"""Where an answer stands, in words."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest

from bourn.chat import Turn
from bourn.types import FinishReason, Message, Metrics
from bourn.web.heard import Phase
from bourn.web.words import Announcer, meter, ordinal, status

TURN = Turn((Message("user", "?"), Message("assistant", "!")))


@dataclass(frozen=True)
class At:
    phase: Phase
    place: int | None = None
    progress: tuple[int, int] | None = None
    tokens: int = 0
    speed: float | None = None


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (At(Phase.LOADING), "loading the model"),
        (At(Phase.WAITING), "waiting"),
        (At(Phase.WAITING, place=2), "2nd in the queue"),
        (At(Phase.READING), "reading the prompt"),
        (At(Phase.READING, progress=(0, 0)), "reading the prompt"),
        (At(Phase.READING, progress=(42, 100)), "reading the prompt, 42 %"),
        (At(Phase.THINKING, tokens=1), "thinking, 1 token"),
        (At(Phase.ANSWERING, tokens=23, speed=17.16), "answering, 23 tokens, 17.2 tokens/s"),
        (At(Phase.ENDED, tokens=23), ""),
    ],
)
def test_what_is_being_done(at: At, words: str) -> None:
    assert status(at) == words


def test_places() -> None:
    told = {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st"}
    assert {number: ordinal(number) for number in told} == told
    assert ordinal(111) == "111th"


def test_how_it_went() -> None:
    metrics = Metrics(queue_time=1.5, ttft=0.31, tokens=1200, tokens_per_second=17.24)
    assert meter(metrics, TURN) == [
        "first token 0.31 s (instant)",
        "17.2 tokens/s (comfortable)",
        "1,200 tokens",
        "1.5 s in the queue",
    ]
    cut = Turn(TURN.messages, FinishReason.LENGTH, seed=7)
    assert meter(Metrics(tokens=1, estimated=True), cut) == [
        "cut at the limit",
        "~1 token",
        "seed 7",
    ]
    assert meter(None, Turn(TURN.messages, FinishReason.CANCELLED)) == ["stopped"]
    assert meter(None, TURN) == []


# -- for screen readers ----------------------------------------------------------------------------


def test_whole_sentences_and_phases_are_announced() -> None:
    announcer = Announcer()
    assert announcer.feed(Phase.WAITING, "", 0.0) == "Waiting."
    assert announcer.feed(Phase.ANSWERING, "A bourn", 3.0) == "Answering."
    assert announcer.feed(Phase.ANSWERING, "A bourn is", 6.0) == ""
    assert announcer.feed(Phase.ANSWERING, "A bourn is a stream. It", 6.1) == "A bourn is a stream."
    assert announcer.feed(Phase.ANSWERING, "A bourn is a stream. It runs. So", 7.0) == ""
    assert announcer.feed(Phase.ENDED, "A bourn is a stream. It runs. So on", 7.1) == (
        "It runs. So on End of the answer."
    )
    assert announcer.feed(Phase.ENDED, "A bourn is a stream. It runs. So on", 9.0) == ""


def test_never_more_often_than_said() -> None:
    announcer, times = Announcer(between=2.0), []
    text = ""
    for step in range(200):
        text += "Word. " if step % 3 else "More "
        if announcer.feed(Phase.ANSWERING, text, step / 10):
            times.append(step / 10)
    assert len(times) >= 8
    assert all(after - before >= 2.0 for before, after in pairwise(times))


def test_all_is_said_once() -> None:
    announcer = Announcer(between=0.0)
    text = 'First: 3.5 of "them". 漢字。次。\n- a list\n- of two\nand the rest'
    told = [announcer.feed(Phase.ANSWERING, text[:upto], upto) for upto in range(len(text) + 1)]
    told.append(announcer.feed(Phase.ENDED, text, 1000.0, "Stopped."))
    said = [each for each in told if each]
    assert said == [
        "Answering.",
        'First: 3.5 of "them".',
        "漢字。",
        "次。",
        "- a list",
        "- of two",
        "and the rest Stopped.",
    ]


def test_a_long_line_of_marks_takes_no_time() -> None:
    text = "!" * 50_000
    announcer = Announcer()
    assert announcer.feed(Phase.ANSWERING, text, 0.0) == "Answering."
    assert announcer.feed(Phase.ENDED, text, 9.0) == f"{text} End of the answer."
