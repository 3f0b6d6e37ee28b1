"""The command line: one file per command; each parses, calls, prints."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import nullcontext

from bourn.cli.mortal import Mortal


def main() -> None:
    serves = sys.argv[1:2] == ["serve"]
    with Mortal() if serves else nullcontext():  # before anything else, that takes its time
        from bourn.cli.app import app_for

        hush_libraries()
        app_for(sys.argv[1:])()


def hush_libraries() -> None:
    """What libraries warn of is for those who program with them; whoever asks still hears it."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
