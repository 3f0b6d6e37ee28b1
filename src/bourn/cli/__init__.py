"""The command line: one file per command; each parses, calls, prints."""

from __future__ import annotations

import os
import sys
import warnings


def main() -> None:
    from bourn.cli.app import app_for

    hush_libraries()
    app_for(sys.argv[1:])()


def hush_libraries() -> None:
    """What libraries warn of is for those who program with them; whoever asks still hears it."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
