"""How reasoning is shown."""

from __future__ import annotations

import io

from bourn.cli.thinking import Reasoning, Thinking
from bourn.types import Channel, Delta
from tests.support.emulator import Emulator


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def think(how: Reasoning, *, styled: bool = True) -> Emulator:
    """Three tokens of reasoning in 3 seconds, and what comes after them."""
    out, clock = Emulator(), Clock()
    thinking = Thinking(how, out, styled=styled, clock=clock)
    for text in ("Let me ", "see.\x1b[2J", "\nYes."):
        clock.now += 1
        thinking.event(Delta(text, Channel.REASONING, tokens=1))
    clock.now += 0.25
    thinking.end()
    thinking.end()
    out.write("The answer.")
    return out


def test_it_is_shown_dim() -> None:
    out = think("show")
    assert out.lines == ["Let me see.^[[2J", "Yes.", "", "The answer."]
    assert out.written.startswith("\x1b[2mLet me \x1b[0m")


def test_it_folds_into_a_line() -> None:
    out = think("fold")
    assert out.lines == ["thought for 2.2 s, 3 tokens", "The answer."]
    assert any("thinking … 1.0 s, 2 tokens" in frame for frame in out.frames)


def test_it_can_be_hidden() -> None:
    assert think("hide").lines == ["The answer."]


def test_without_styles_nothing_is_written_over() -> None:
    out = think("fold", styled=False)
    assert out.written == "thought for 2.2 s, 3 tokens\nThe answer."
    assert "\x1b" not in think("show", styled=False).written


def test_a_file_gets_none_of_it() -> None:
    file = io.StringIO()
    thinking = Thinking("show", file)
    thinking.event(Delta("hm", Channel.REASONING))
    thinking.end()
    assert file.getvalue() == ""


def test_it_takes_the_first_choice_only() -> None:
    assert Thinking.takes(Delta("a", Channel.REASONING))
    assert not Thinking.takes(Delta("a"))
    assert not Thinking.takes(Delta("", Channel.REASONING))
    assert not Thinking.takes(Delta("a", Channel.REASONING, choice=1))
