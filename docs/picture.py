"""Draw docs/terminal.svg: a real talk with the bundled model, as the terminal showed it.

Run by `make picture`. Each row of the screen is drawn once for each text it had, visible for as
long as that was there. A viewer that does not animate shows the last screen.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

import pexpect
import pyte

COLUMNS, ROWS = 92, 22
LETTER, LINE, MARGIN, BAR = 8.43, 19, 16, 36
PAUSE = 2.5  # seconds for which the last screen stays
COLOURS = {"default": "#e6edf3", "cyan": "#79c0ff", "green": "#7ee787", "brown": "#e3b341"}
QUESTIONS = ("Explain in two short sentences why rivers wind.", "Now tell it as a story.")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a row showed, from one moment to another; `until` None is to the end."""

    row: int
    text: str
    since: float
    until: float | None = None


class Recorder:
    """The program in a pseudo-terminal, and every text that its rows had."""

    def __init__(self, command: list[str]) -> None:
        self.shown: list[Shown] = []
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.Stream(self._screen)
        self._rows: dict[int, tuple[str, float]] = {}
        self._program = pexpect.spawn(
            command[0], command[1:], dimensions=(ROWS, COLUMNS), encoding="utf-8", timeout=60
        )
        self._began = time.monotonic()

    def until(self, words: str, *, letters: int = 0, seconds: float = 20) -> None:
        """Watch until the screen shows these words, or so many new letters have come."""
        seen, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                said = self._program.read_nonblocking(4096, timeout=0.2)
            except pexpect.TIMEOUT:
                said = ""
            except pexpect.EOF:
                break
            self._stream.feed(said)
            self._look()
            seen += len(said)
            if (words and words in self._words()) or (letters and seen > letters):
                break

    def _words(self) -> str:
        """All that the screen shows, however it was wrapped."""
        return " ".join(" ".join(self._screen.display).split())

    def type(self, text: str) -> None:
        for letter in text:
            self._program.send(letter)
            self.until("", letters=1, seconds=0.3)
            time.sleep(0.03)

    def press(self, control: str) -> None:
        self._program.sendcontrol(control)

    def end(self) -> float:
        now = time.monotonic() - self._began
        self.shown += [Shown(row, text, since) for row, (text, since) in self._rows.items()]
        self._program.close(force=True)
        return now

    def _look(self) -> None:
        now = time.monotonic() - self._began
        for row in range(ROWS):
            text = self._row(row)
            before, since = self._rows.get(row, ("", now))
            if text != before:
                if before:
                    self.shown.append(Shown(row, before, since, now))
                self._rows[row] = (text, now)

    def _row(self, row: int) -> str:
        cells = [self._screen.buffer[row][column] for column in range(COLUMNS)]
        if not "".join(cell.data for cell in cells).strip():
            return ""
        styled = groupby(cells, key=lambda cell: (cell.fg, cell.bold))
        return "".join(
            _span("".join(cell.data for cell in group), colour, bold=bold)
            for (colour, bold), group in styled
        ).rstrip()


def _span(text: str, colour: str, *, bold: bool) -> str:
    style = f' fill="{COLOURS.get(colour, COLOURS["default"])}"' if colour != "default" else ""
    style += ' font-weight="bold"' if bold else ""
    return f"<tspan{style}>{escape(text)}</tspan>" if style else escape(text)


def draw(shown: list[Shown], seconds: float) -> str:
    width, height = COLUMNS * LETTER + 2 * MARGIN, BAR + ROWS * LINE + MARGIN
    dots = "".join(
        f'<circle cx="{20 + 18 * number}" cy="18" r="6" fill="{colour}"/>'
        for number, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" role="img" aria-label="bourn chat in a terminal">'
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>{dots}'
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
        f'font-size="14" fill="{COLOURS["default"]}" xml:space="preserve">'
        + "\n".join(_text(one, seconds + PAUSE) for one in shown if one.text)
        + "</g></svg>\n"
    )


def _text(one: Shown, cycle: float) -> str:
    """A row, there for a part of the cycle; without animation only if it is to the end."""
    hidden = "" if one.until is None else ' visibility="hidden"'
    times, values = [0.0, one.since / cycle], ["hidden", "visible"]
    if one.until is not None:
        times.append(one.until / cycle)
        values.append("hidden")
    animate = (
        f'<animate attributeName="visibility" dur="{cycle:.2f}s" repeatCount="indefinite" '
        f'calcMode="discrete" keyTimes="{";".join(f"{t:.5f}" for t in times)}" '
        f'values="{";".join(values)}"/>'
    )
    y = BAR + (one.row + 1) * LINE - 4
    return f'<text x="{MARGIN}" y="{y}"{hidden}>{one.text}{animate}</text>'


def record() -> tuple[list[Shown], float]:
    bourn = str(Path(sys.executable).with_name("bourn"))
    talk = Recorder([bourn, "chat", "--no-keep", "--seed", "5", "--max-new-tokens", "120"])
    talk.until(":help")
    talk.type(QUESTIONS[0] + "\r")
    talk.until("seed 5")
    talk.type(QUESTIONS[1] + "\r")
    talk.until("", letters=300, seconds=6)
    talk.press("c")
    talk.until(":continue goes on")
    talk.until("", letters=1, seconds=0.3)
    return talk.shown, talk.end()


if __name__ == "__main__":
    Path(__file__).with_name("terminal.svg").write_text(draw(*record()), encoding="utf-8")
