"""`bourn chat` in a real pseudo-terminal: what is typed, and what is to be seen."""

from __future__ import annotations

import base64
import json
import re
import signal
import stat
import sys
import termios
from pathlib import Path

import pytest

from tests.support.background import served
from tests.support.openai_server import Answer, Cue, chunk, error, sse, text_stream
from tests.support.terminal import (
    ALT_ENTER,
    CTRL_C,
    CTRL_D,
    CTRL_J,
    ENTER,
    TAB,
    UP,
    Terminal,
)

pytestmark = [
    pytest.mark.terminal,
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals"),
]

FOX = "scripted:The quick brown fox"
SLOW = "scripted:" + " ".join(f"w{number}" for number in range(400)) + "?delay=0.02"


def paste(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


# -- commands --------------------------------------------------------------------------------------


def test_every_command(tmp_path: Path) -> None:
    said = tmp_path / "said.json"
    with Terminal("chat", FOX, "--quiet", home=tmp_path) as terminal:
        for typed, seen in [
            ("hi", "The quick brown fox"),
            ("", "Nothing was typed"),
            (":help", "show these lines"),
            ("/history", "## Assistant (scripted)"),
            (":seed 7", "seed 7 for each answer"),
            (":conf temperature=0.5", "temperature = 0.5"),
            (":conf", "top_k is not set: 40"),
            (":conf window=3", "cannot be changed while the model is loaded"),
            (":conf temperature=hot", "temperature is 'hot'"),
            (":reset-conf", "none is set"),
            (":system Be brief.", "system: Be brief."),
            (":stats", "the conversation takes 12 tokens"),
            (f":save {said}", "saved to"),
            (":undo", "taken back; 0 turns left"),
            (f":load {said}", "“hi”, 1 turn"),
            (":copy", "copied, through the terminal"),
            (":model", "scripted on scripted"),
            (":model scripted:another one", "scripted on scripted"),
            (":retry", "another one"),
            (":continue", "another one"),
            (":edit ho", "another one"),
            (":nonsense", "there is no command :nonsense"),
            ("/etc/hosts?", "put a space before it"),
            (":clear-history", "a new conversation begins"),
            (":his", "nothing was said yet"),
        ]:
            terminal.wait_for_prompt()
            before = terminal.text.count(seen)
            terminal.type(typed + ENTER)
            terminal.wait_for(seen, times=before + 1)
        terminal.wait_for_prompt()
        assert f"\x1b]52;c;{base64.b64encode(b'The quick brown fox').decode()}\x07".encode() in (
            terminal.raw
        )
        terminal.type(":quit\r")
        assert terminal.wait_for_end() == 0


def test_clear_clears_the_screen(tmp_path: Path) -> None:
    with Terminal("chat", FOX, home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        terminal.type("hi\r")
        terminal.wait_for("4 tokens")
        terminal.wait_for_prompt()
        terminal.type(":cl\r")
        terminal.wait_until(
            lambda: "fox" not in "".join(terminal.screen.display), "an empty screen"
        )
        terminal.wait_for_prompt()


def test_commands_are_completed(tmp_path: Path) -> None:
    (tmp_path / "said-before.json").write_text('[{"role": "user", "content": "the question"}]')
    with Terminal("chat", FOX, home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        terminal.type(f":sta{TAB}")
        terminal.wait_until(lambda: terminal.line == "> :stats", ":stats")
        terminal.type(ENTER)
        terminal.wait_for("nothing was answered yet")
        terminal.wait_for_prompt()
        terminal.type(f":conf temp{TAB}0.5{ENTER}")
        terminal.wait_for("temperature = 0.5")
        terminal.wait_for_prompt()
        terminal.type(f":load {tmp_path}/said-{TAB}")
        terminal.type(ENTER)
        terminal.wait_for("“the question”, 0 turns")


def test_the_editor_has_the_last_question(tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nread -p "In the editor: " word\nsed -i "s/tea/$word/" "$1"\n')
    editor.chmod(0o755)
    with Terminal("chat", FOX, "--quiet", home=tmp_path, env={"EDITOR": str(editor)}) as terminal:
        terminal.wait_for_prompt()
        terminal.type("Do you like tea?\r")
        terminal.wait_for("quick")
        terminal.wait_for_prompt()
        terminal.type(":edit\r")
        terminal.wait_for("In the editor:")
        terminal.type("coffee\r")
        terminal.wait_for("In the editor: coffee")  # which has its lines and its echo
        terminal.wait_for("quick", times=2)
        terminal.wait_for_prompt()
        terminal.type(":history\r")
        terminal.wait_for("Do you like coffee?")
        assert terminal.text.count("tea?") == 1


def test_without_an_editor_the_last_question_is_in_the_line(tmp_path: Path) -> None:
    with Terminal("chat", FOX, "--quiet", home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        terminal.type("Do you like tea?\r")
        terminal.wait_for("quick")
        terminal.wait_for_prompt()
        terminal.type(":edit\r")
        terminal.wait_until(lambda: terminal.line == "> :edit Do you like tea?", "the question")
        terminal.type("\x7f or coffee?\r")
        terminal.wait_for("quick", times=2)
        terminal.wait_for_prompt()
        terminal.type(":history\r")
        terminal.wait_for("## You\n\nDo you like tea or coffee?")


# -- several lines ---------------------------------------------------------------------------------


def test_several_lines_in_all_ways(tmp_path: Path) -> None:
    said = tmp_path / "said.md"
    with Terminal("chat", FOX, "--quiet", home=tmp_path) as terminal:
        for number, typed in enumerate(
            [
                ("alt", ALT_ENTER, "enter", ENTER),
                ("control", CTRL_J, "j", ENTER),
                ('"""', ENTER, ":in a block", ENTER, "", ENTER, "  of lines", ENTER, '"""', ENTER),
                (":multi-line\r", "begun", ENTER, "by a command", ENTER, '"""', ENTER),
                (paste("pasted\n\n/usr/bin\r\nlines\n"), ENTER),
                ("a line of a program\n",),
            ]
        ):
            terminal.wait_for_prompt()
            for each in typed:
                terminal.type(each)
                if each == ":multi-line\r":
                    terminal.wait_until(lambda: terminal.line == "…", "the second line")
            terminal.wait_for("quick brown", times=number + 1)
        terminal.wait_for_prompt()
        terminal.type(f":save {said}\r")
        terminal.wait_for("saved to")
    questions = said.read_text().split("## You\n\n")[1:]
    assert [each.split("\n\n## Assistant")[0] for each in questions] == [
        "alt\nenter",
        "control\nj",
        ":in a block\n\n  of lines",
        "begun\nby a command",
        "pasted\n\n/usr/bin\nlines",
        "a line of a program",
    ]


# -- stopping --------------------------------------------------------------------------------------

HELD = sse(chunk(role="assistant"), *map(chunk, ("one ", "two ", "three ")), done=False)


def test_ctrl_c_stops_the_answer_and_the_next_question_is_about_it(tmp_path: Path) -> None:
    answers = Answer([HELD, Cue.HANG]), Answer(text_stream("It was three."))
    with served(*answers) as server, Terminal("chat", f"{server.url}#m", home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        terminal.type("Count.\r")
        terminal.wait_for("one two three")
        terminal.type("What was")  # of the next question: it must not be lost
        terminal.type(CTRL_C)
        terminal.wait_for("(stopped; :continue goes on)")
        terminal.wait_for("cancelled")
        terminal.wait_until(lambda: terminal.line == "> What was", "what was typed")
        terminal.wait_until(server.hung_up.is_set, "that the server is told")
        terminal.type(" the last?\r")
        terminal.wait_for("It was three.")
        terminal.wait_for_prompt()
        terminal.type(":history\r")
        terminal.wait_for("*(stopped here)*")
        terminal.wait_for_prompt()
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0
    assert server.asked[1].json["messages"] == [
        {"role": "user", "content": "Count."},
        {"role": "assistant", "content": "one two three "},
        {"role": "user", "content": "What was the last?"},
    ]


def test_ctrl_c_before_the_first_word(tmp_path: Path) -> None:
    answers = Answer([Cue.HANG]), Answer(text_stream("Here I am."))
    with served(*answers) as server, Terminal("chat", f"{server.url}#m", home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        terminal.type("Hello?\r")
        terminal.wait_until(server.was_asked.is_set, "the question")
        terminal.type(CTRL_C)
        terminal.wait_for("(stopped; :retry asks it again)")
        terminal.wait_for_prompt()
        terminal.type(":retry\r")
        terminal.wait_for("Here I am.")
    assert server.asked[1].json["messages"] == [{"role": "user", "content": "Hello?"}]


def test_ctrl_c_clears_the_line_and_twice_in_an_empty_one_leaves(tmp_path: Path) -> None:
    with Terminal("chat", FOX, home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        terminal.type(CTRL_C)
        terminal.wait_for("Ctrl-C once more leaves")
        terminal.type("abc")
        terminal.wait_until(lambda: terminal.line == "> abc", "abc")
        terminal.type(CTRL_C)
        terminal.wait_for_prompt()
        terminal.type(CTRL_C)
        terminal.wait_for("Ctrl-C once more leaves")
        terminal.type(CTRL_C)
        assert terminal.wait_for_end() == 0


def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    with Terminal("chat", SLOW, home=tmp_path) as terminal:
        before = terminal.modes
        terminal.wait_for_prompt()
        terminal.type("hi\r")
        terminal.wait_for("w2")
        assert not terminal.modes[3] & termios.ECHO
        terminal.press(signal.SIGTERM)
        assert terminal.wait_for_end() == 128 + signal.SIGTERM
        assert terminal.modes == before
        assert terminal.raw.rindex(b"\x1b[?2004l") > terminal.raw.rindex(b"\x1b[?2004h")


# -- typing ahead ----------------------------------------------------------------------------------


def test_what_is_typed_during_an_answer_is_the_next_question(tmp_path: Path) -> None:
    model = "scripted:" + " ".join(f"w{number}" for number in range(25)) + "?delay=0.02"
    with Terminal("chat", model, "--quiet", "--plain", home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        terminal.type("hi\r")
        terminal.wait_for("w2")
        pasting = b"\x1b[?2004%s"
        assert terminal.raw.rindex(pasting % b"h") > terminal.raw.rindex(pasting % b"l")
        terminal.type(f"héllo 漢字\r{paste('and' + ENTER + 'more')}")
        terminal.wait_for("w24", times=2)
        terminal.wait_for("> and\n… more")
        answer = squeezed(" ".join(f"w{number}" for number in range(25)))
        assert squeezed(terminal.text).count(answer) == 2, "no answer was disturbed"
        terminal.type("\x7f\x7f\x7f\x7f!\r:history\r")
        terminal.wait_for("## You\n\nand\n!")
        assert "## You\n\nhéllo 漢字\n\n##" in terminal.text


# -- what is shown ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [(), ("--plain",)])
def test_two_hundred_lines_in_24_rows_are_shown_once_each(
    tmp_path: Path, how: tuple[str, ...]
) -> None:
    answer = "\n\n".join(f"Line number {n} of it." for n in range(200))
    with Terminal("chat", f"scripted:{answer}?delay=0.0005", *how, home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        terminal.type("hi\r")
        terminal.wait_for("tokens/s")
        terminal.wait_for_prompt()
        for number in range(200):
            assert terminal.lines.count(f"Line number {number} of it.") == 1


WIDE = (
    "表示👍🏽する 漢字とかな、" * 12
    + "und ein langes deutsches Wort: Donaudampfschifffahrt 🇫🇷 end."
)


@pytest.mark.parametrize("how", [(), ("--plain",)])
def test_wide_characters_in_40_columns(tmp_path: Path, how: tuple[str, ...]) -> None:
    with Terminal(
        "chat", f"scripted:{WIDE}?delay=0.005", *how, home=tmp_path, columns=40
    ) as terminal:
        terminal.wait_for_prompt()
        terminal.type("表示して👍\r")
        terminal.wait_for("tokens/s")
        terminal.wait_for_prompt()
        assert squeezed(terminal.text).count(squeezed(WIDE)) == 1
        assert "> 表示して👍" in terminal.text


def test_a_resize_during_the_answer_leaves_no_stale_rows(tmp_path: Path) -> None:
    words = " ".join(f"word{number:03d}" for number in range(120))
    with Terminal("chat", f"scripted:{words}?delay=0.01", home=tmp_path, columns=60) as terminal:
        terminal.wait_for_prompt()
        terminal.type("hi\r")
        terminal.wait_for("word020")
        terminal.resize(90, 24)
        terminal.wait_for("word060")
        terminal.resize(70, 20)
        terminal.wait_for("tokens/s")
        terminal.wait_for_prompt()
        for number in range(120):
            assert terminal.text.count(f"word{number:03d}") == 1


def test_waiting_is_shown_and_gone(tmp_path: Path) -> None:
    model = f"{FOX}?prompt=100&prompt_steps=4&prompt_delay=0.05"
    with Terminal("chat", model, home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        terminal.type("hi\r")
        terminal.wait_for("tokens/s")
        assert b"reading the prompt: 50% of 100 tokens" in terminal.raw
        assert "reading the prompt" not in terminal.text


def test_a_model_cannot_steer_the_terminal(tmp_path: Path) -> None:
    for how in ("--plain", "--quiet"):
        with Terminal("chat", "scripted:before\x1b[2Jafter", how, home=tmp_path) as terminal:
            terminal.wait_for_prompt()
            terminal.type("hi\r")
            terminal.wait_for("before^[[2Jafter")


@pytest.mark.parametrize(
    ("how", "seen"), [("show", "Let me think."), ("fold", "thought for"), ("hide", "")]
)
def test_thoughts_are_shown_folded_or_hidden(tmp_path: Path, how: str, seen: str) -> None:
    thoughts = chunk(reasoning_content="Let me "), chunk(reasoning_content="think.")
    answer = Answer(sse(*thoughts, chunk("Yes."), chunk(finish="stop")))
    with (
        served(answer) as server,
        Terminal("chat", f"{server.url}#m", "--reasoning", how, home=tmp_path) as terminal,
    ):
        terminal.wait_for_prompt()
        terminal.type("hi\r")
        terminal.wait_for("· stop")
        assert seen in terminal.text
        assert ("think" in terminal.text) == (how == "show")
        assert "Yes." in terminal.lines


def test_a_failed_answer_is_told_and_can_be_asked_again(tmp_path: Path) -> None:
    broken = error(400, {"error": {"message": "on \x1b[2Jfire"}})
    with (
        served(broken, Answer(text_stream("Here I am."))) as server,
        Terminal("chat", f"{server.url}#m", home=tmp_path) as terminal,
    ):
        terminal.wait_for_prompt()
        terminal.type("Hello?\r")
        terminal.wait_for("on ^[[2Jfire")
        terminal.wait_for("(:retry asks it again)")
        terminal.wait_for_prompt()
        terminal.type(":retry\r")
        terminal.wait_for("Here I am.")
    assert server.asked[-1].json["messages"] == [{"role": "user", "content": "Hello?"}]


def test_long_pastes_arrive_whole(tmp_path: Path) -> None:
    long = "\n".join(f"line {number} of a long paste" for number in range(800))
    said = tmp_path / "said.json"
    with Terminal("chat", f"{FOX}?delay=0.3", "--quiet", home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        terminal.type(paste(long) + ENTER)
        terminal.wait_for("The quick")
        terminal.type(paste(long.replace("long", "second")) + ENTER)  # during the answer
        terminal.wait_for("brown fox", times=2)
        terminal.wait_for_prompt()
        terminal.type(f":save {said}\r")
        terminal.wait_for("saved to")
    first, _, second, _ = json.loads(said.read_text())["messages"]
    assert first["content"] == long
    assert second["content"] == long.replace("long", "second")


def test_no_color_means_none(tmp_path: Path) -> None:
    with Terminal("chat", FOX, home=tmp_path, env={"NO_COLOR": "1"}) as terminal:
        terminal.wait_for_prompt()
        terminal.type("hi\r")
        terminal.wait_for("4 tokens")
        terminal.wait_for_prompt()
        assert not re.search(rb"\x1b\[[\d;]*[349]\d[m;]", terminal.raw)


def test_a_dumb_terminal_gets_no_escape_codes(tmp_path: Path) -> None:
    with Terminal("chat", FOX, home=tmp_path, env={"TERM": "dumb"}) as terminal:
        terminal.wait_until(lambda: terminal.line == ">", "the prompt")
        terminal.type("hi\r")
        terminal.wait_for("4 tokens")
        terminal.type(CTRL_C)
        terminal.wait_for("Ctrl-C once more leaves")
        terminal.type(CTRL_C)
        assert terminal.wait_for_end() == 0
        assert b"\x1b" not in terminal.raw


# -- what was typed before -------------------------------------------------------------------------


def test_what_was_typed_is_kept_for_the_user_only(tmp_path: Path) -> None:
    for _ in range(2):
        with Terminal("chat", FOX, home=tmp_path) as terminal:
            terminal.wait_for_prompt()
            terminal.type("my question\r")
            terminal.wait_for("4 tokens")
            terminal.wait_for_prompt()
            terminal.type(CTRL_D)
            terminal.wait_for_end()
    (file,) = tmp_path.rglob("chat_history")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.chmod(0o644)
    with Terminal("chat", FOX, home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, "also one that was open to others"
        terminal.type(UP)
        terminal.wait_until(lambda: terminal.line == "> my question", "the question before")


def test_a_long_history_is_shortened(tmp_path: Path) -> None:
    file = tmp_path / ".local/state/bourn/chat_history"
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"\n# then\n+question {n}\n+of two lines\n" for n in range(40_000)))
    with Terminal("chat", FOX, home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        assert 400_000 < file.stat().st_size < 600_000
        assert file.read_text().startswith("\n# then\n+question ")
        terminal.type(UP)
        terminal.wait_for("> question 39999\n… of two lines")


def test_nothing_is_kept_where_that_is_wanted(tmp_path: Path) -> None:
    with Terminal("chat", FOX, "--no-keep", home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        terminal.type("my question\r")
        terminal.wait_for("4 tokens")
        terminal.wait_for_prompt()
        terminal.type(UP)
        terminal.wait_until(lambda: terminal.line == "> my question", "the question before")
        terminal.type(f"{CTRL_C}:quit\r")
        terminal.wait_for_end()
    assert list(tmp_path.rglob("*")) == []


def test_a_conversation_is_gone_on_with(tmp_path: Path) -> None:
    with Terminal("chat", FOX, home=tmp_path) as terminal:
        terminal.wait_for_prompt()
        terminal.type("my question\r")
        terminal.wait_for("4 tokens")
        terminal.wait_for_prompt()
        terminal.type(CTRL_D)
        terminal.wait_for_end()
    with Terminal("chat", "-c", home=tmp_path) as terminal:
        terminal.wait_for("going on with “my question”, 1 turn so far")
        terminal.wait_for_prompt()
        terminal.type(":history\r")
        terminal.wait_for("## You\n\nmy question")
