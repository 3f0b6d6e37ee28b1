"""The command line: one file per command; each parses, calls, prints."""

from __future__ import annotations

import sys


def main() -> None:
    from bourn.cli.app import app_for

    app_for(sys.argv[1:])()
