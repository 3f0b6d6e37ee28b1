"""Draw docs/terminal.svg from a real run: what it printed, appearing when it was printed.

Run by `make picture`. A viewer that does not animate shows the finished screen.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from html import escape
from pathlib import Path

COMMAND = [
    "bourn", "run", "--stats", "--seed", "3", "--max-new-tokens", "90",
    "Explain in two short paragraphs why rivers wind.",
]  # fmt: skip
COLUMNS = 96
LETTER, LINE, MARGIN, BAR = 8.43, 20, 16, 36
Shown = tuple[float, str]


def record(command: list[str]) -> list[Shown]:
    """Run it in a pseudo-terminal: (seconds, text) of each read."""
    parent, child = pty.openpty()
    env = os.environ | {"COLUMNS": str(COLUMNS), "TERM": "dumb", "PYTHONWARNINGS": "ignore"}
    program = [str(Path(sys.executable).parent / command[0]), *command[1:]]
    began = time.monotonic()
    with subprocess.Popen(program, stdin=child, stdout=child, stderr=child, env=env) as process:
        os.close(child)
        seen = []
        while True:
            try:
                said = os.read(parent, 65536)
            except OSError:  # the other end is closed
                break
            seen.append((time.monotonic() - began, said.decode(errors="replace")))
        if process.wait() != 0:
            raise SystemExit("".join(text for _, text in seen))
    return seen


def screen(seen: list[Shown]) -> list[list[Shown]]:
    """Lines of stretches; a carriage return clears the line, as the status line means it to."""
    lines: list[list[Shown]] = [[]]
    column = 0
    for moment, text in seen:
        for letter in text.replace("\r\n", "\n"):
            if letter == "\r":
                lines[-1] = []
                column = 0
            elif letter == "\n" or column == COLUMNS:
                lines.append([])
                column = 0
            if letter not in "\r\n":
                _put(lines[-1], moment, letter)
                column += 1
    return [line for line in lines if "".join(text for _, text in line).strip() or line is not lines[-1]]


def _put(line: list[Shown], moment: float, letter: str) -> None:
    if line and line[-1][0] == moment:
        line[-1] = (moment, line[-1][1] + letter)
    else:
        line.append((moment, letter))


def draw(prompt: str, lines: list[list[Shown]]) -> str:
    width = COLUMNS * LETTER + 2 * MARGIN
    height = BAR + (len(lines) + 1) * LINE + MARGIN
    body = [_line(0, f'<tspan fill="#7ee787">$</tspan> {escape(prompt)}')]
    body += [_line(row, "".join(map(_stretch, line))) for row, line in enumerate(lines, 1)]
    dots = "".join(
        f'<circle cx="{20 + 18 * n}" cy="18" r="6" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" role="img" aria-label="bourn in a terminal">'
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>{dots}'
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
        'font-size="14" fill="#e6edf3" xml:space="preserve">' + "".join(body) + "</g></svg>\n"
    )


def _line(row: int, inside: str) -> str:
    return f'<text x="{MARGIN}" y="{BAR + (row + 1) * LINE - 6}">{inside}</text>'


def _stretch(shown: Shown) -> str:
    moment, text = shown
    hide = f'<set attributeName="visibility" to="hidden" begin="0s" dur="{moment:.2f}s"/>'
    return f"<tspan>{escape(text)}{hide}</tspan>"


if __name__ == "__main__":
    asked = " ".join(f'"{word}"' if " " in word else word for word in COMMAND)
    Path(__file__).with_name("terminal.svg").write_text(draw(asked, screen(record(COMMAND))))
