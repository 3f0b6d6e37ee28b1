"""How far a batch is, on stderr: a bar that goes away at the end; nothing where nobody looks."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from bourn.cli.show import knows_escapes

if TYPE_CHECKING:
    from rich.progress import Progress

    from bourn.batch import Tally


class Bar:
    """To be used in a `with` block. shown: False where it would be written into the answers."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown and knows_escapes(sys.stderr)
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        if self._shown:
            self._progress = _progress()
            self._task = self._progress.add_task("", total=None, told="")
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def expect(self, lines: IO[bytes]) -> None:
        """Find out how many there will be, where it is a file, and do not wait for it."""
        name = lines.name  # a number, for stdin
        if self._progress is not None and isinstance(name, str) and Path(name).is_file():
            # a daemon: to be counted is no reason to stay
            threading.Thread(target=self._count, args=(Path(name),), daemon=True).start()

    def _count(self, path: Path) -> None:
        from bourn.batch import count_lines

        assert self._progress is not None
        self._progress.update(self._task, total=count_lines(path))

    def show(self, tally: Tally) -> None:
        """Show where it is."""
        if self._progress is not None:
            told = f"{tally.tokens / tally.seconds:.1f} tokens/s"
            if tally.failed:
                told += f" · {tally.failed} failed"
            self._progress.update(self._task, completed=tally.done, told=told)


def _progress() -> Progress:
    from rich.console import Console  # only where a bar is shown
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
