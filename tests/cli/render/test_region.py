"""What is written to have other rows on the screen."""

from __future__ import annotations

import pytest

from bourn.cli.render.region import Region
from bourn.cli.render.rows import Row, Run
from tests.support.emulator import Emulator


class Shown:
    def __init__(self, columns: int = 20, lines: int = 6) -> None:
        self.out = Emulator(columns, lines)
        self.region = Region(reflows=False)
        self.region.resize(columns, lines)

    def __call__(self, *rows: str) -> str:
        """What was written to show these rows."""
        self.region.show([_row(row) for row in rows])
        self.out.write(self.region.take())
        return self.out.frames[-1]


def _row(text: str) -> Row:
    return (Run(text),) if text else ()


def test_rows_are_added() -> None:
    show = Shown()
    assert show("a") == "a"
    assert show("a", "b") == "\r\nb"
    assert show("a", "bc", "d") == "c\r\nd"
    assert show("a", "bc", "d") == ""


def test_rows_are_written_over_from_the_first_that_differs() -> None:
    show = Shown()
    show("a", "b", "c")
    assert show("a", "x", "c") == "\r\x1b[1Ax\x1b[K\r\nc\x1b[J"
    assert show("a", "x", "y", "z") == "\ry\x1b[K\r\nz"
    assert show.out.lines == ["a", "x", "y", "z"]


def test_rows_go_away() -> None:
    show = Shown()
    show("a", "b", "c")
    show("a")
    assert show.out.lines == ["a"]
    show()
    assert show.out.lines == []
    show("d")
    assert show.out.lines == ["d"]


def test_what_is_settled_is_not_touched() -> None:
    show = Shown()
    show("a", "b")
    show.region.settle(1)
    assert show("x") == "\rx\x1b[J"
    show.region.settle()
    assert show("y") == "\r\ny"
    assert show.out.lines == ["a", "x", "y"]


def test_rows_that_left_the_screen_stay_as_they_were() -> None:
    show = Shown(lines=4)
    show(*"abcdefgh")
    show(*"ABCDEFGH")
    assert show.out.lines == list("abcdeFGH")
    assert not show.region.fits([_row("A")])
    assert show.region.fits([_row(row) for row in "abcdeXYZ"])
    show("a")  # even where nothing of it is left on the screen
    show("a", "b", "c", "d", "e", "again")
    assert show.out.lines == [*"abcde", "again"]


def test_the_row_after_it() -> None:
    show = Shown()
    show.region.end()
    assert show.region.take() == ""
    show("a")
    show.region.end()
    show.region.end()
    assert show.region.take() == "\r\n"


@pytest.mark.parametrize("columns", [10, 30])
def test_a_resize_takes_the_rows_off_and_they_come_again(columns: int) -> None:
    show = Shown()
    show("settled")
    show.region.settle()
    show("one", "two")
    show.out.resize(columns, 6)
    show.region.resize(columns, 6)
    show("one two")
    assert show.out.lines == ["settled", "one two"]
