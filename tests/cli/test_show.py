"""What a terminal shows besides the answer: how far loading is, and nothing of the libraries."""

from __future__ import annotations

import io
import os
import subprocess
import sys

from bourn.cli.show import Status


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_how_much_is_loaded_is_shown_while_somebody_waits_for_it() -> None:
    terminal = Terminal()
    status = Status(terminal)
    status.loading(1, 4)
    assert terminal.getvalue() == ""
    status.show("loading m …")
    status.loading(1, 4)
    assert terminal.getvalue().endswith("\rloading: 25% of the weights")
    status.clear()
    cleared = terminal.getvalue()
    status.loading(2, 4)
    assert terminal.getvalue() == cleared


WARNS = """
import os, warnings
from bourn.cli import hush_libraries
hush_libraries()
warnings.warn("of no use to a reader")
print(os.environ["TRANSFORMERS_VERBOSITY"])
"""


def warned(*options: str, **environ: str) -> tuple[str, bool]:
    """The verbosity of transformers, and whether a warning was shown."""
    kept = {name: os.environ[name] for name in os.environ if name != "TRANSFORMERS_VERBOSITY"}
    done = subprocess.run(
        [sys.executable, *options, "-c", WARNS],
        capture_output=True,
        text=True,
        check=True,
        env=kept | environ,
    )
    return done.stdout.strip(), "of no use" in done.stderr


def test_libraries_warn_those_only_who_ask() -> None:
    assert warned() == ("error", False)
    assert warned("-W", "default", TRANSFORMERS_VERBOSITY="info") == ("info", True)
