"""Markdown on a terminal: what a person sees while it streams, and what is left in the end."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from bourn.cli.ask import TextWriter, WholeWriter, writer_for
from bourn.cli.markdown import MarkdownWriter, has_light_background, reflows, terminal_size
from bourn.cli.show import is_styled
from bourn.cli.thinking import Thinking
from bourn.stream import Answer
from bourn.types import Channel, Delta
from tests.support.emulator import Emulator, cut

SAMPLE = (Path(__file__).parents[1] / "support" / "sample.md").read_text(encoding="utf-8")
EVERY_TOKEN = float("inf")
ESCAPES = re.compile(r"\x1b\[[0-9;]*[mAJK]")  # all that is ever written


class Show:
    """A writer on an emulator."""

    def __init__(self, out: Emulator, environ: dict[str, str] | None = None) -> None:
        self.out = out
        self._writer = MarkdownWriter(
            out,
            draws_per_second=EVERY_TOKEN,
            size=lambda: out.size,
            environ={"TERM": "linux"} if environ is None else environ,
        )

    def feed(self, *pieces: str) -> Emulator:
        for piece in pieces:
            self._writer.event(Delta(piece))
        return self.out

    def end(self) -> Emulator:
        self._writer.end(Answer("x"))
        return self.out


def shown(pieces: Iterable[str], columns: int = 80, rows: int = 24) -> Emulator:
    """What is left on a terminal of an answer."""
    show = Show(Emulator(columns, rows))
    show.feed(*pieces)
    return show.end()


def tokens(text: str) -> list[str]:
    """As models cut: words, with the space before them."""
    return re.findall(r" ?[^\s]{1,6}|\s", text)


def letters(lines: Iterable[str]) -> str:
    return "".join("".join(lines).split())


# -- what is left ----------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_however_it_came_it_looks_the_same(columns: int, size: int) -> None:
    pieces = [SAMPLE[start : start + size] for start in range(0, len(SAMPLE), size)]
    assert shown(pieces, columns).lines == shown([SAMPLE], columns).lines


def test_the_looks_of_each_kind_of_block() -> None:
    lines = shown([SAMPLE], 200, 100).lines
    for expected in (
        "Streams, shortly",
        "• two, with a bold end of a rather long item that has to go on in another row",
        "  • nested code",
        "    a paragraph of the nested one",
        "1. first",
        "2. second",
        "3. fourth",
        "│ A quote with struck words.",
        "│ │ One in it.",
        "┌─ python " + "─" * 30,
        '    """日本語も使える。"""',
        "└" + "─" * 39,
        "Engine   Tokens       Note",
        "llama     1,234        ok",
        "hosted       56   a longer note",
        "Title",
        "─" * 40,
        "<b>HTML</b> is text. [a picture] (cat.png) https://example.org",
        "4. a list that begins late:",
        "   ┌─ sh " + "─" * 34,
        "   $ ls -l",
        "   and goes on.",
        "  with **no** Markdown in it",
    ):
        assert expected in lines
    assert "the notes (https://example.org/notes) for more" in lines[2]


def test_blocks_stand_apart_and_items_as_they_were_written() -> None:
    lines = shown(["# A\ntext\n- a\n- b\n\n- c\n  - d\n```\nx\n```\n"]).lines
    assert lines[:9] == ["A", "", "text", "", "• a", "• b", "", "• c", "  • d"]
    assert lines[9] == ""


def test_an_answer_may_end_inside_a_fence() -> None:
    lines = shown(tokens("Look:\n```python\nx = 1\nif x:\n    y")).lines
    assert lines[2].startswith("┌─ python ")
    assert lines[3:6] == ["x = 1", "if x:", "    y"]
    assert lines[6].startswith("└─")


def test_nothing_at_all_and_nothing_but_space() -> None:
    assert shown([]).written == ""
    assert shown(["\n", " \n"]).written == ""


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"word {n} of it, " for n in range(400)),
        "".join(f"paragraph {n}\n\n" for n in range(100)),
        "".join(f"- item {n}\n" for n in range(200)),
        "- items:\n" + "".join(f"  {n}. nested {n}\n" for n in range(200)),
        "```\n" + "".join(f"line {n}\n" for n in range(200)) + "```\n",
        "```python\n" + "".join(f"line = {n}\n" for n in range(200)) + "```\nend",
        "1. code:\n   ```python\n" + "".join(f"   line = {n}\n" for n in range(60)) + "   ```\nend",
        "".join(f"> quoted {n}\n" for n in range(200)),
        "| a | b |\n|---|---|\n" + "".join(f"| cell {n} | x |\n" for n in range(60)),
    ],
    ids=["prose", "paragraphs", "list", "nested", "code", "python", "item", "quote", "table"],
)
def test_an_answer_longer_than_the_screen_is_there_once(text: str) -> None:
    out = shown(tokens(text), columns=60, rows=24)
    numbers = [int(number) for number in re.findall(r"[a-z=] (\d+)", " ".join(out.lines))]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 60
    assert max(out.climbs, default=0) < 24


def test_emphasis_that_never_ends_loses_nothing() -> None:
    text = "a **b *c `d ~~e [f](g " + "the *quick **brown fox `jumps ~~over " * 40
    left = letters(shown(tokens(text), 40, 12).lines)
    assert re.sub(r"[*~`]", "", left) == re.sub(r"[*~`]", "", letters([text]))


# -- while it comes --------------------------------------------------------------------------------


def test_text_is_there_with_its_token() -> None:
    show = Show(Emulator(40))
    said = ""
    for piece in tokens("The quick brown fox jumps over the lazy dog. " * 4):
        said += piece
        show.feed(piece)
        assert letters(show.out.lines) == letters([said])


def test_what_grows_at_its_end_is_only_added_to() -> None:
    show = Show(Emulator(20))
    show.feed("Hello", " world", ", how", " are", " you", "?")
    assert show.out.frames == ["Hello", " world", ", how", "\r\nare", " you", "?"]


def test_a_word_that_does_not_fit_goes_to_the_next_row() -> None:
    show = Show(Emulator(20))
    show.feed("Some text that is unb", "elievably")
    assert show.out.lines == ["Some text that is", "unbelievably"]


def test_it_is_bold_from_its_first_letter() -> None:
    show = Show(Emulator())
    assert show.feed("This is **", "bo").style("bo").bold
    assert show.feed("ld").style("bold").bold
    assert "*" not in show.feed("**", " and").text
    assert not show.out.style("and").bold


@pytest.mark.parametrize("opened", ["`co", "[text](http://a.b/c", "~~gone", "*i", "***x"])
def test_marks_are_not_shown_before_they_are_closed(opened: str) -> None:
    out = Show(Emulator()).feed(f"Look: {opened}")
    assert not set("`[]~*") & set(out.text)


def test_marks_that_stay_open_are_text_in_the_end() -> None:
    show = Show(Emulator())
    show.feed("5 ** 3 and **bold to the end")
    assert show.end().lines == ["5 ** 3 and **bold to the end"]
    assert not show.out.style("bold").bold


def test_a_list_after_a_text_does_not_flash_as_a_heading() -> None:
    show = Show(Emulator())
    for piece in ("A text", "\n", "-", " ", "item"):
        show.feed(piece)
        assert not show.out.style("A text").bold
        assert show.out.lines in (["A text"], ["A text", "", "• item"])


def test_code_gets_its_colours_when_it_is_complete() -> None:
    show = Show(Emulator())
    show.feed("```python\n", "def f():\n", "    pass\n")
    assert show.out.style("def").fg == "default"
    show.feed("``", "`\n")
    assert show.out.style("def").fg != "default"
    assert show.out.style("f()").fg != show.out.style("def").fg


def test_long_code_gets_its_colours_by_the_screenful() -> None:
    lines = [f"def f{n}(): '''" if n % 2 else "text ''' and then" for n in range(60)]
    show = Show(Emulator(60, 20))
    show.feed(*tokens("```python\n" + "\n".join(lines)))
    above = show.out.screen.history.top
    assert [line[0].fg for line in above if line[0].data == "d"].count("default") == 0
    assert show.end().lines[1:-1] == lines


def test_a_table_is_aligned_when_it_is_complete() -> None:
    show = Show(Emulator())
    show.feed("| a | b |\n", "|---|--:|\n", "| long cell | 1 |\n")
    assert show.out.lines[-1] == "| long cell | 1 |"
    show.feed("\n")
    assert show.out.lines == ["a           b", "─────────────", "long cell   1"]


def test_a_table_too_wide_keeps_all_its_words() -> None:
    row = "| " + " | ".join(f"cell{n} 表示 words" for n in range(5)) + " |\n"
    text = row + "|" + "---|" * 5 + "\n" + row * 2
    wide, narrow = shown([text], 60), shown([text], 20)
    for out in (wide, narrow):
        assert len(re.findall("表", out.text)) == 15
    assert narrow.lines[0].startswith("| cell0")


# -- resizing --------------------------------------------------------------------------------------

PARTS = (
    "The first paragraph is there already, and it is longer than a row of a narrow window.\n\n",
    "The second one is open: **bold**, 表示👍🏽, the quick brown fox jumps over the lazy dog",
    ", and it goes on after the window has got another size, until it ends.\n\n- an item",
)


@pytest.mark.parametrize("reflowing", [False, True], ids=["cuts", "reflows"])
@pytest.mark.parametrize(("before", "after"), [(80, 40), (40, 80), (60, 30)])
def test_a_resize_leaves_no_stale_rows(before: int, after: int, *, reflowing: bool) -> None:
    environ = {"TERM": "xterm-256color" if reflowing else "rxvt"}
    show = Show(Emulator(before, 24, reflows=reflowing), environ)
    show.feed(*tokens(PARTS[0] + PARTS[1]))
    show.out.resize(after, 24)
    finished = next(line for line in show.out.lines if line)
    show.feed(*tokens(PARTS[2]))
    lines = show.end().lines
    assert lines[0] == finished
    opened = next(row for row, line in enumerate(lines) if line.startswith("The second"))
    expected = shown(["".join(PARTS[1:])], after).lines
    assert lines[opened:] == expected


def test_rows_above_the_screen_stay_when_it_shrinks() -> None:
    show = Show(Emulator(60, 24, reflows=True), {"TERM": "xterm"})
    show.feed(*tokens("- code:\n  ```\n" + "".join(f"  line {n} 表示\n" for n in range(20))))
    show.out.resize(30, 8)
    show.feed(*tokens("".join(f"  line {n} 表示\n" for n in range(20, 40)) + "  ```\n"))
    found = [int(number) for number in re.findall(r"line (\d+)", show.end().text)]
    assert found == list(range(40))


@pytest.mark.parametrize(
    ("environ", "wraps"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm", "XTERM_VERSION": "XTerm(390)"}, False),
        ({"TERM": "linux"}, False),
        ({"TERM": "screen"}, False),
        ({"TERM": "screen", "TMUX": "/tmp/x"}, True),
    ],
)
def test_which_terminals_reflow(environ: dict[str, str], *, wraps: bool) -> None:
    assert reflows(environ) is wraps


# -- terminals -------------------------------------------------------------------------------------

ATTACK = "a\x1b[2J\x1b]0;title\x07b\x9b31mc &#27;[1m `\x1b[A` [x](http://a/\x1b[A) \rd\x08\x7f"


@pytest.mark.parametrize(
    "frame", ["{}", "```python\n{}\n```\n", "| a |\n|---|\n| {} |\n\n", "# {}\n"]
)
def test_a_model_cannot_steer_the_terminal(frame: str) -> None:
    out = shown([frame.format(ATTACK)])
    left = ESCAPES.sub("", out.written)
    assert not set(left) & set(map(chr, [*range(10), 11, 12, *range(14, 32), *range(127, 160)]))
    assert "^[[2J" in out.text
    assert "<9B>31mc" in out.text
    assert left.count("\r") == left.count("\r\n")


def test_the_plain_writer_steers_no_terminal_and_leaves_files_alone() -> None:
    answer = Answer("x")
    terminal, file = Emulator(), io.StringIO()
    for out in (terminal, file):
        writer = TextWriter(out, Thinking("hide"))
        writer.event(Delta(ATTACK))
        writer.end(answer)
    assert "\x1b" not in terminal.written
    assert "^[[2J" in terminal.text
    assert file.getvalue() == ATTACK


def test_the_whole_writer_steers_no_terminal() -> None:
    answer = Answer("x")
    answer.choices[0].take(Delta(ATTACK))
    terminal, file = Emulator(), io.StringIO()
    for out in (terminal, file):
        WholeWriter(out).end(answer)
    assert "\x1b" not in terminal.written
    assert file.getvalue() == ATTACK


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_console_without_the_drawn_characters_gets_others(encoding: str) -> None:
    show = Show(Emulator(encoding=encoding))
    show.feed("- a\n\n> b\n\n```py\nc\n```\n| d |\n|---|\n| 表 |\n\n---\n")
    lines = show.end().lines
    for expected in ("* a", "| b", ".- py " + "-" * 34, "c", "d", "?"):
        assert expected in lines
    assert "-" * 40 in lines
    assert "?" not in "".join(lines).replace("?", "", 1)


@pytest.mark.parametrize("columns", [1, 3, 9])
def test_a_window_can_be_very_narrow(columns: int) -> None:
    text = "> - **word** and\n>   1. more\n\n```py\nx = 'y'\n```\n| a | b |\n|--|--|\n| c | d |\n"
    out = shown(tokens(text), columns, 10)
    assert re.sub(r"[^a-z]", "", letters(out.lines)).count("wordand") == 1
    assert "x='y'" in letters(out.lines)


def test_the_size_of_what_has_none() -> None:
    assert terminal_size(io.StringIO()) == (80, 24)


def test_a_light_background_is_told_by_the_terminal() -> None:
    assert has_light_background({"COLORFGBG": "0;15"})
    assert not has_light_background({"COLORFGBG": "15;0"})
    assert not has_light_background({})


# -- which writer ----------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="a console tells by itself")
def test_who_gets_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert isinstance(writer_for(Emulator()), MarkdownWriter)
    assert isinstance(writer_for(Emulator(), plain=True), TextWriter)
    assert isinstance(writer_for(io.StringIO()), TextWriter)
    monkeypatch.setenv("NO_COLOR", "1")
    assert isinstance(writer_for(Emulator()), TextWriter)


@pytest.mark.skipif(sys.platform == "win32", reason="a console tells by itself")
@pytest.mark.parametrize(
    ("environ", "styled"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "0"}, False),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_what_is_styled(environ: dict[str, str], *, styled: bool) -> None:
    assert is_styled(Emulator(), environ) is styled
    assert not is_styled(io.StringIO(), environ)


def test_a_pipe_loads_no_parser() -> None:
    code = (
        "import sys, bourn.cli.ask, bourn.cli.markdown;"
        "print({'rich', 'markdown_it', 'pygments'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"


# -- time, and other channels ----------------------------------------------------------------------


def test_tokens_that_come_fast_are_drawn_together_and_none_waits_for_the_next() -> None:
    out = Emulator()
    writer = MarkdownWriter(out, draws_per_second=20, size=lambda: out.size)
    for number in range(200):
        writer.event(Delta(f"w{number} "))
    assert len(out.frames) < 100
    deadline = time.monotonic() + 10
    while "w199" not in out.text and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "w199" in out.text
    writer.end(Answer("x"))


def test_the_end_does_not_wait_for_its_turn() -> None:
    out = Emulator()
    writer = MarkdownWriter(out, draws_per_second=0.001, size=lambda: out.size)
    writer.event(Delta("first "))
    writer.event(Delta("second"))
    assert out.lines == ["first"]
    writer.end(Answer("x"))
    assert out.lines == ["first second"]


class Gone(Emulator):
    """A terminal that has been closed."""

    gone = False

    def write(self, text: str) -> int:
        if self.gone:
            raise OSError("gone")
        return super().write(text)


def test_a_terminal_that_is_gone_is_told_with_the_next_token() -> None:
    out = Gone()
    writer = MarkdownWriter(out, draws_per_second=50, size=lambda: out.size)
    writer.event(Delta("first "))
    out.gone = True
    writer.event(Delta("second "))
    while writer._failure is None:
        time.sleep(0.01)
    with pytest.raises(OSError, match="gone"):
        writer.event(Delta("third "))


def test_reasoning_goes_before_the_text_and_between_blocks() -> None:
    out = Emulator()
    writer = MarkdownWriter(out, Thinking("show", out), draws_per_second=EVERY_TOKEN)
    for text, channel in (
        ("Let me\x1b[2J see.", Channel.REASONING),
        ("**One**", Channel.ANSWER),
        ("Hm.\n", Channel.REASONING),
        ("Two", Channel.ANSWER),
    ):
        writer.event(Delta(text, channel))
    writer.end(Answer("x"))
    assert out.lines == ["Let me^[[2J see.", "", "One", "Hm.", "", "Two"]


def test_only_the_first_choice_is_shown() -> None:
    show = Show(Emulator())
    show._writer.event(Delta("other", choice=1))
    assert show.feed("this").lines == ["this"]


def test_pieces_of_any_size() -> None:
    for at in ([], [1, 2, 3], [10, 400, 401, 900], list(range(0, 2000, 7))):
        assert shown(cut(SAMPLE, at), 60).lines == shown([SAMPLE], 60).lines
