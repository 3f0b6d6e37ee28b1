from __future__ import annotations

import pytest

from bourn.text.span import Span
from bourn.text.stops import StopStrings
from tests.text.cutting import ANSWER, HARD, REASONING, TOOL, answer, joined, run, sized


@pytest.mark.parametrize(
    ("stops", "given", "kept"),
    [
        (("\nUser:",), ["Hello.", "\nUser", ":", " next"], "Hello."),
        (("own fox",), ["The quick bro", "wn f", "ox jumps"], "The quick br"),
        (("Pari",), ["The capital city of France is Par", "is."], "The capital city of France is "),
        (("<|im_end|>\n",), ["Bye.<|im", "_end|>", "\n"], "Bye."),
        (("Observation:",), ["Observation:"], ""),
    ],
)
def test_no_part_of_a_stop_is_sent(stops: tuple[str, ...], given: list[str], kept: str) -> None:
    stage = StopStrings(stops)
    assert run(stage, answer(*given)) == answer(*filter(None, [kept]))
    assert stage.matched == stops[0]


def test_the_earliest_in_the_text_wins_not_the_first_in_the_list() -> None:
    stage = StopStrings(("STOP", "END"))
    assert run(stage, answer("one END two STOP")) == answer("one ")
    assert stage.matched == "END"


def test_the_list_may_be_in_any_order() -> None:
    for stops in (("A", "B"), ("B", "A")):
        stage = StopStrings(stops)
        assert run(stage, answer("a B c A")) == answer("a ")
        assert stage.matched == "B"


def test_the_one_that_ends_first_wins_though_another_began_before_it() -> None:
    stage = StopStrings(("abcde", "cd"))
    assert run(stage, answer("xabcde")) == answer("xab")
    assert stage.matched == "cd"


def test_of_those_that_end_together_the_longest_wins() -> None:
    stage = StopStrings(("\n", "User:\n"))
    assert run(stage, answer("Hi. User:\n")) == answer("Hi. ")
    assert stage.matched == "User:\n"


@pytest.mark.parametrize("length", range(1, 12))
def test_each_beginning_of_a_stop_is_held_and_given_at_the_end(length: int) -> None:
    stop = "Observation:"
    stage = StopStrings((stop,))
    assert stage.feed(Span(ANSWER, "so " + stop[:length])) == answer("so ")
    assert stage.held == stop[:length]
    assert stage.flush() == answer(stop[:length])
    assert stage.matched is None
    assert stage.held == ""
    assert stage.flush() == []


def test_nothing_that_cannot_become_a_stop_is_held() -> None:
    stage = StopStrings(("</s>", "\n\n"))
    for text in ("a < b", "x", " </", "p>"):
        stage.feed(Span(ANSWER, text))
    assert stage.held == ""


def test_after_the_stop_nothing_comes_of_any_channel() -> None:
    stage = StopStrings(("END",))
    assert stage.feed(Span(ANSWER, "so END and")) == answer("so ")
    assert stage.feed(Span(ANSWER, " more")) == []
    assert stage.feed(Span(TOOL, "{}")) == []
    assert stage.flush() == []


def test_stops_act_on_the_answer_only() -> None:
    stage = StopStrings(("END",))
    given = [Span(REASONING, "is this the END?"), Span(TOOL, "END"), Span(ANSWER, "No.")]
    assert run(stage, given) == given
    assert stage.matched is None


def test_a_stop_is_found_across_another_channel() -> None:
    stage = StopStrings(("END",))
    out = run(stage, [Span(ANSWER, "the E"), Span(REASONING, "hm"), Span(ANSWER, "ND!")])
    assert out == [Span(ANSWER, "the "), Span(REASONING, "hm")]
    assert stage.matched == "END"


def test_without_stops_the_very_same_span_passes() -> None:
    stage, span = StopStrings(()), Span(ANSWER, "anything")
    assert stage.feed(span)[0] is span
    assert stage.held == ""
    assert stage.flush() == []


def test_an_empty_span_gives_nothing() -> None:
    assert StopStrings(("x",)).feed(Span(ANSWER, "")) == []


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("hard", HARD)
def test_hard_text_is_stopped_anywhere(hard: str, size: int) -> None:
    stage = StopStrings((hard + "!",))
    out = run(stage, answer(*sized(f"{hard} a {hard}! b", size)))
    assert out == answer(f"{hard} a ")


LONG = 200_000


@pytest.mark.parametrize("size", [1, LONG])
def test_work_is_linear_in_the_text(size: int) -> None:
    """Quadratic work would be 10¹⁰ steps here; the guard on every test's time would end it."""
    text = "a" * LONG
    stage = StopStrings(("a" * 1000 + "b",))
    out = [span for piece in sized(text, size) for span in stage.feed(Span(ANSWER, piece))]
    assert len("".join(span.text for span in out)) == LONG - 1000
    assert joined([*out, *stage.flush()]) == answer(text)


def test_a_long_stop_of_equal_characters_is_found_at_its_earliest_end() -> None:
    stage = StopStrings(("a" * 1000,))
    assert run(stage, answer(*"b" * 5, *"a" * 999, "b", *"a" * 1500)) == answer(
        "b" * 5 + "a" * 999 + "b"
    )
    assert stage.matched == "a" * 1000


def test_many_stops_cost_no_more_than_one() -> None:
    stops = tuple(f"{number:03}x" for number in range(1000))
    text = "0123456789" * 10_000
    assert run(StopStrings(stops), answer(*sized(text, 3))) == answer(text)
