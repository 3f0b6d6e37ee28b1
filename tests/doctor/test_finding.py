"""A list of checks: each is a finding under its name, whatever becomes of it."""

from __future__ import annotations

from bourn.doctor.finding import FAILED, CannotTell, Finding, State, note, ok, run
from bourn.errors import LoadFailed


def cannot(subject: int) -> Finding:
    raise CannotTell(f"{subject} says nothing")


def fails(subject: int) -> Finding:
    raise LoadFailed(f"{subject} is damaged")


def has_a_mistake(subject: int) -> Finding:
    return ok(str(1 // (subject - 7)))


def test_findings_are_named_and_in_order() -> None:
    found = list(run({"one": lambda n: ok(f"{n}"), "two": lambda n: note(f"{n + 1}", "so")}, 7))
    assert found == [
        Finding(State.OK, "7", check="one"),
        Finding(State.NOTE, "8", "so", check="two"),
    ]


def test_what_cannot_be_told_is_skipped_and_the_others_are_still_done() -> None:
    checks = {"a": cannot, "b": fails, "c": has_a_mistake, "d": lambda n: ok(f"{n}")}
    found = list(run(checks, 7))
    assert [(each.check, each.state) for each in found] == [
        ("a", State.SKIPPED),
        ("b", State.SKIPPED),
        ("c", State.SKIPPED),
        ("d", State.OK),
    ]
    assert [each.found for each in found[:2]] == ["7 says nothing", "7 is damaged"]
    assert found[2].found.startswith(f"{FAILED}: ZeroDivisionError")
