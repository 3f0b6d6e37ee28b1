"""What a streamed Markdown answer costs: bourn's writer, and rich's Live drawn at each token.

    python -m bench.markdown

Processor time and what is written to the terminal, for one answer of some 5 kB in about 1,300
pieces, 80 columns by 24 lines. Both draw at every piece; the row between is what `bourn run` does
at 50 tokens a second, since it draws at most 30 times in one (nobody waits here).
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown

from bench.pairs import row
from bourn.cli.markdown import DRAWS_PER_SECOND, MarkdownWriter
from bourn.cli.thinking import Thinking
from bourn.stream import Answer
from bourn.types import Delta

COLUMNS, LINES = 80, 24
PIECE = 4  # characters, as a token of English has
SPEED = 50.0  # tokens a second

SECTION = """## Part {n}: how a stream is read

A stream is read **as it comes**: each piece is shown at once, and *nothing* is shown twice. Where \
a reader leaves, the generation ends with it, see [the notes](https://example.org/notes/{n}).

- the engine yields `Piece`s, one for each step
- the pipeline finds **stop strings** and channels
  - what may still become a marker is held back
  - everything else goes on without delay
- the journal keeps events, so that a second reader costs nothing

```python
def read(stream: Stream, *, limit: int = {n}) -> str:
    \"\"\"All of it, or as much as was asked for.\"\"\"
    parts = [delta.text for delta in stream.events()]
    return "".join(parts)[:limit]  # a comment
```

| reader   | waits for | share |
|----------|:---------:|------:|
| terminal | a token   |  0.{n}7 |
| browser  | an event  |  0.{n}3 |

> What is **certain** is shown; what is not, waits for the next token.

1. First, the prompt is read, in parts, so that others are not kept waiting.
2. Then the first token comes, and the clock for it stops.
3. At the end a line tells how fast it was.

"""
TEXT = "# Streams\n\n" + "".join(SECTION.format(n=n) for n in range(1, 6))


class Screen(io.StringIO):
    """Counts what is written to it."""

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a console's is never None
        return "utf-8"

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Cost:
    seconds: float
    bytes: int


def pieces() -> list[str]:
    return [TEXT[start : start + PIECE] for start in range(0, len(TEXT), PIECE)]


def live(out: Screen) -> None:
    console = Console(file=out, force_terminal=True, width=COLUMNS, height=LINES)
    text = ""
    with Live(console=console, auto_refresh=False) as shown:
        for piece in pieces():
            text += piece
            shown.update(Markdown(text), refresh=True)


def each(out: Screen) -> None:
    _write(out, pieces())


def joined(out: Screen) -> None:
    told, due = [""], 0.0
    for piece in pieces():
        told[-1] += piece
        due += DRAWS_PER_SECOND / SPEED
        if due >= 1:
            due -= 1
            told.append("")
    _write(out, told)


def _write(out: Screen, told: list[str]) -> None:
    writer = MarkdownWriter(
        out, Thinking("hide"), draws_per_second=float("inf"), size=lambda: (COLUMNS, LINES)
    )
    for piece in told:
        writer.event(Delta(piece))
    writer.end(Answer("bench"))


def measure(write: Callable[[Screen], None]) -> Cost:
    out = Screen()
    began = time.process_time()
    write(out)
    return Cost(time.process_time() - began, len(out.getvalue().encode()))


def main() -> None:
    print(f"{len(TEXT.encode()):,} bytes of Markdown in {len(pieces()):,} pieces")
    for name, write, rounds in (
        ("bourn, drawn at each piece", each, 5),
        (f"bourn, at {SPEED:g} tokens a second", joined, 5),
        ("rich Live, drawn at each piece", live, 1),
    ):
        costs = [measure(write) for _ in range(rounds)]
        print(row(name, [cost.seconds for cost in costs], "s of processor"))
        print(f"    {costs[0].bytes:,} bytes written")


if __name__ == "__main__":
    main()
