"""Blocks of Markdown as rows: the looks that a stream does not show."""

from __future__ import annotations

import pytest

from bourn.cli.render.blocks import Block, Blocks
from bourn.cli.render.painter import Glyphs, Look, Painter

PAINTER = Painter()


def rows(source: str, width: int = 40, look: Look = Look.FINAL) -> list[str]:
    return ["".join(text for text, _ in row) for row in PAINTER.rows(Block(source), width, look)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a\nb", ["a", "b"]),
        ("a  \nb", ["a", "b"]),
        ("a   b", ["a b"]),
        ("Title\n===", ["Title"]),
        ("[a](b)", ["a (b)"]),
        ("<http://a.b>", ["http://a.b"]),
        ("[http://a.b](http://a.b)", ["http://a.b"]),
        ("<me@a.b>", ["me@a.b"]),
        ("[a]: b\n[a]", ["[a]: b", "[a]"]),
        ("![](b.png)", ["[image] (b.png)"]),
        ("&lt;b&gt; &amp; \\*", ["<b> & *"]),
        ("    code\n\n    more", ["    code", "", "    more"]),
        ("-", ["•"]),
        ("- a\n\n  b", ["• a", "", "  b"]),
        ("1) a\n1) b", ["1) a", "2) b"]),
        ("- [ ] a", ["• [ ] a"]),
        ("> - a\n>\n> b", ["│ • a", "│ ", "│ b"]),
        ("| a |\n|---|\n| b<br>c |", ["a", "─", "b", "c"]),
        ("```\n```", ["┌" + "─" * 39, "└" + "─" * 39]),
        (
            "```no-such-language\na\tb\n```",
            ["┌─ no-such-language " + "─" * 20, "a   b", "└" + "─" * 39],
        ),
    ],
)
def test_rows(source: str, expected: list[str]) -> None:
    assert [row.rstrip() for row in rows(source)] == [row.rstrip() for row in expected]


def test_code_goes_over_many_rows_and_loses_no_space() -> None:
    assert rows("```\n" + "ab " * 5 + "\n```", 8)[1:-1] == ["ab ab ab", " ab ab "]


def test_what_grows_has_no_end_yet() -> None:
    source = "- a\n  ```py\n  x = 1\n"
    assert rows(source, look=Look.GROWS) == ["• a", "  ┌─ py " + "─" * 32, "  x = 1"]
    assert rows(source, look=Look.KEPT)[-1] == "  └" + "─" * 37


def test_only_the_last_part_grows() -> None:
    source = "- ```py\n  x = 1\n  ```\n- **b"
    painted = PAINTER.rows(Block(source), 40, Look.GROWS)
    assert [text for text, _ in painted[-1]] == ["• ", "b"]
    assert "".join(text for text, _ in painted[-2]).startswith("  └")
    assert len(painted[1]) > 1, "the code is complete, and has its colours"


def test_a_prefix_is_left_out_where_there_is_no_room() -> None:
    assert rows("> > > > > words go on", 12)[0].count("│") < 5
    assert "words" in "".join(rows("> > > > > words go on", 12))


def test_glyphs_by_encoding() -> None:
    assert Glyphs.of("utf-8").bullet == "•"
    assert Glyphs.of("cp437").bar == "|", "it has lines, but no bullet"
    assert Glyphs.of("no-such-encoding").rule == "-"


def test_the_rest_of_a_block_looks_as_it_did_in_it() -> None:
    for source, at in (
        ("1. item\n   - a\n   - b\n", len("1. item\n   - a\n")),
        ("> a\n> b", len("> a\n")),
        ("```py\nx\ny", len("```py\nx\n")),
        ("10. one two three four five", len("10. one two three ")),
        ("> one two three four five", len("> one two three ")),
    ):
        blocks = Blocks()
        blocks.feed(source)
        head, rest = blocks.part(blocks.open, at)
        width = 17
        whole = PAINTER.rows(Block(source), width, Look.GROWS)
        parts = [PAINTER.rows(block, width, Look.GROWS) for block in (head, rest)]
        assert parts[0] + parts[1] == whole
        assert all(parts)
