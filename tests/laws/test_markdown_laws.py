"""Laws of Markdown on a terminal: however it is cut, it looks the same, and no row is too wide."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it.token import Token
from rich.style import Style

from bourn.cli.markdown import MarkdownWriter
from bourn.cli.render.blocks import Block, Blocks
from bourn.cli.render.parser import Parser, nodes
from bourn.cli.render.rows import PLAIN, Row, Run, chop, wrap
from bourn.cli.render.rows import width as cells_of
from bourn.stream import Answer
from bourn.types import Delta
from tests.support.emulator import Emulator, cut

law = settings(deadline=None, max_examples=120)  # a busy machine is no counterexample
slow = settings(deadline=None, max_examples=10)

LINES = (
    *("text", "more text", "", "", "", "   three", "    four", "      six", "\ttab", "<div>"),
    *("# H", "## ", "#no", "---", "***", "- - -", "===", "--", "-", "*em", "**b** c", "[a]: b"),
    *("- a", "- b", "* c", "+ d", "  - n", "    - m", "-     five", "1. x", "2. y", "1) z", "2."),
    *("1.  x", "10. x", "   cont", "> q", ">", "> - l", "> ```", "  > q"),
    *("```", "```py", "   ```", "    ```", "  ```", "~~~", "````"),
    *("| a | b |", "|---|---|", "| --- | :-: |", "a | b", "--- | ---", "|-|", "| --- |", "| x |"),
)
TEXTS = st.lists(st.sampled_from(LINES), max_size=10).map("\n".join)
CUTS = st.lists(st.integers(0, 200), max_size=20)

PARSER = Parser()


def tops(source: str, line: int = 0) -> list[tuple[int, str]]:
    """Where blocks begin at the top of it, and items of lists there."""
    found = []
    for node in nodes(PARSER.parse(source)):
        if node.token.type in {"bullet_list_open", "ordered_list_open"}:
            found += [(line + _first(item.token), "item") for item in nodes(node.inner)]
        else:
            found.append((line + _first(node.token), node.token.type))
    return found


def _first(token: Token) -> int:
    assert token.map is not None
    return token.map[0]


def blocks_of(pieces: list[str]) -> list[Block]:
    blocks = Blocks()
    return [*(block for piece in pieces for block in blocks.feed(piece)), *blocks.flush()]


@law
@given(TEXTS)
def test_blocks_end_where_the_parser_ends_them(text: str) -> None:
    line, found = 0, []
    for block in blocks_of([text]):
        found += tops(block.source, line)
        line += block.source.count("\n")
    assert found == tops(text)


@law
@given(TEXTS, CUTS)
def test_any_cutting_gives_the_same_blocks_and_they_are_the_text(text: str, at: list[int]) -> None:
    whole = blocks_of([text])
    assert "".join(block.source for block in whole) == text
    assert blocks_of(cut(text, at)) == whole
    assert blocks_of(list(text)) == whole


@law
@given(TEXTS, CUTS)
def test_what_has_ended_and_what_is_open_are_all_there_is(text: str, at: list[int]) -> None:
    blocks = Blocks()
    said, ended = "", ""
    for piece in cut(text, at):
        said += piece
        ended += "".join(block.source for block in blocks.feed(piece))
        assert ended + blocks.open.source == said


# -- rows ------------------------------------------------------------------------------------------

BOLD = Style(bold=True)
SIMPLE = ("a", "bb", " ", "  ", "\n", "word", "longer-than-a-row", "表示", "é")
HARD = (*SIMPLE, "。", "👍🏽", "👨‍👩‍👧", "🇩🇪", "e\u0301")


def runs_of(parts: tuple[str, ...]) -> st.SearchStrategy[list[Run]]:
    texts = st.lists(st.sampled_from(parts), max_size=8).map("".join)
    return st.lists(st.builds(Run, texts, st.sampled_from([PLAIN, BOLD])), max_size=4)


def letters(rows: list[Row]) -> str:
    return "".join("".join(text.split()) for row in rows for text, _ in row)


@law
@given(runs_of(HARD), st.integers(6, 30))
def test_rows_fit_and_hold_all_of_the_text(runs: list[Run], limit: int) -> None:
    for rows in (wrap(runs, limit), chop(runs, limit)):
        assert letters(rows) == letters([tuple(runs)])
        assert all(cells_of(row) <= limit for row in rows)


@law
@given(runs_of(SIMPLE), st.integers(1, 30))
def test_how_the_text_is_cut_into_runs_makes_no_difference(runs: list[Run], limit: int) -> None:
    split = [Run(char, style) for text, style in runs for char in text]
    assert wrap(split, limit) == wrap(runs, limit)


# -- the screen ------------------------------------------------------------------------------------

PHRASES = st.sampled_from(
    [
        *(
            "the",
            "quick",
            "**brown fox**",
            "`over x`",
            "*lazy dog*",
            "表示します。",
            "👍🏽",
            "👨‍👩‍👧",
        ),
        *("[link](http://a.b/c)", "🇩🇪", "café", "2 * 3", "snake_case", "longerwordthatgoeson"),
        *("~~more~~", "3 < 4", "a & b", "- dash", "1986."),
    ]
)
PROSE = st.lists(PHRASES, min_size=1, max_size=60).map(" ".join)
SHORT = st.lists(PHRASES, min_size=1, max_size=8).map(" ".join)
BLOCK = st.one_of(
    PROSE,
    SHORT.map("# {}".format),
    st.lists(SHORT.map("- {}".format), min_size=1, max_size=5).map("\n".join),
    st.lists(SHORT.map("1. {}\n   - nested".format), min_size=1, max_size=3).map("\n".join),
    PROSE.map("> {}".format),
    st.lists(SHORT, max_size=40).map(lambda lines: "```python\n" + "\n".join(lines) + "\n```"),
    SHORT.map("| a | b |\n|---|--:|\n| {} | 1 |".format),
    st.just("---"),
)
ANSWERS = st.lists(BLOCK, min_size=1, max_size=4).map("\n\n".join)


def left(pieces: list[str], columns: int) -> list[str]:
    out = Emulator(columns, 24)
    writer = MarkdownWriter(out, draws_per_second=float("inf"), size=lambda: out.size)
    for piece in pieces:
        writer.event(Delta(piece))
    writer.end(Answer("x"))
    assert all(climb < 24 for climb in out.climbs)
    return out.lines


@slow
@given(ANSWERS, st.lists(st.integers(0, 5000), max_size=120), st.sampled_from([40, 80]))
def test_any_cutting_leaves_the_same_on_the_screen(text: str, at: list[int], columns: int) -> None:
    assert left(cut(text, at), columns) == left([text], columns)
