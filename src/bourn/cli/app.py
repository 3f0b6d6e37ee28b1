"""`bourn`: the commands, by name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from bourn import __version__

COMMANDS = ("run", "chat", "web", "serve", "batch", "models", "doctor", "bench", "stop")
"""Each is a function in a module of its own, `bourn.cli.NAME`."""


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """The program. Only the command that is named is imported; all of them, where none is."""
    app = typer.Typer(
        name="bourn",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: rich takes longer to import than all of bourn
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in [name for name in COMMANDS if name in arguments[:1]] or COMMANDS:
        app.command()(getattr(import_module(f"bourn.cli.{name}"), name))
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bourn {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Stream text from any language model, stop when it should, and say how fast it was."""
