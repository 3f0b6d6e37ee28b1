from __future__ import annotations

import pytest

from bourn.text.matcher import Matcher, Reading


def test_reads_up_to_the_end_of_the_first_pattern() -> None:
    matcher = Matcher(["own fox"])
    assert matcher.read("The quick brown fox jumps") == Reading("The quick br", "own fox", 19)
    assert matcher.read("The quick brown fox jumps", 19) == Reading(" jumps", None, 25)


def test_holds_only_the_beginning_of_a_pattern() -> None:
    matcher = Matcher(["Observation:"])
    assert matcher.read("ok Obs") == Reading("ok ", None, 6)
    assert matcher.held == "Obs"
    assert matcher.read("olete") == Reading("Obsolete", None, 5)
    assert matcher.held == ""


def test_what_ends_first_wins_and_then_the_longest() -> None:
    assert Matcher(["xaby", "ab"]).read("xaby") == Reading("x", "ab", 3)
    assert Matcher(["b", "ab", "xab"]).read("xxab") == Reading("x", "xab", 4)


def test_a_shorter_beginning_is_found_when_the_longer_one_fails() -> None:
    matcher = Matcher(["aab"])
    assert matcher.read("aa").clear == ""
    assert matcher.read("a") == Reading("a", None, 1)
    assert matcher.held == "aa"
    assert matcher.read("b") == Reading("", "aab", 1)


def test_starts_anew_after_a_find() -> None:
    matcher = Matcher(["aa"])
    text, at, found = "aaaaa", 0, []
    while at < len(text):
        reading = matcher.read(text, at)
        at = reading.end
        found.append(reading.found)
    assert found == ["aa", "aa", None]
    assert matcher.flush() == "a"
    assert matcher.flush() == ""


def test_without_patterns_everything_is_clear() -> None:
    assert Matcher([]).read("anything [at] all") == Reading("anything [at] all", None, 17)


def test_characters_that_mean_something_to_expressions_are_only_characters() -> None:
    assert Matcher(["]", "^", "-\\"]).read("a-\\b") == Reading("a", "-\\", 3)


def test_an_empty_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="everywhere"):
        Matcher(["a", ""])
