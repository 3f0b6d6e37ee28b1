"""What a command that is being typed may be completed to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from bourn.cli.commands import COMMANDS, path_named
from bourn.cli.tuning import CHANGEABLE
from bourn.cli.typed import MARKS
from bourn.errors import InvalidRequest


def completions(typed: str) -> tuple[str, ...]:
    """What a command may be completed to: its whole text for each possibility."""
    if not typed.startswith(MARKS):
        return ()
    name, space, said = typed[1:].partition(" ")
    if not space:
        return tuple(typed[0] + each.name for each in COMMANDS if each.name.startswith(name))
    found = _VALUES[name](said) if name in _VALUES else ()
    return tuple(f"{typed[0]}{name} {each}" for each in found)


def _changeable(begun: str) -> list[str]:
    return [f"{key}=" for key in CHANGEABLE if key.startswith(begun)]


def _paths(begun: str) -> list[str]:
    folder, slash, name = begun.rpartition("/")
    try:
        there = sorted((path_named(folder + slash) if slash else Path()).iterdir())
    except (OSError, ValueError, InvalidRequest):
        return []
    return [
        f"{folder}{slash}{each.name}{'/' if each.is_dir() else ''}"
        for each in there
        if each.name.startswith(name) and (name or not each.name.startswith("."))
    ]


_VALUES: Mapping[str, Callable[[str], list[str]]] = {
    "conf": _changeable,
    "save": _paths,
    "load": _paths,
}
