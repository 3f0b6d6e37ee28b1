"""The clipboard: through a program where there is one, and through the terminal itself (OSC 52).

Both, since the terminal may be on another machine than this program, and not all terminals take it.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

_PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("WSL_DISTRO_NAME", ("clip.exe",)),
)
_OF_PLATFORM = {"darwin": ("pbcopy",), "win32": ("clip",)}

_PATIENCE = 5.0  # seconds


def copy(text: str, terminal: TextIO | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Copy; by which ways it went. terminal: one that knows escape sequences."""
    ways = []
    program = _program(environ)
    if program is not None and _run(program, text):
        ways.append(Path(program[0]).stem)
    if terminal is not None:
        terminal.write(osc52(text))
        terminal.flush()
        ways.append("the terminal")
    return tuple(ways)


def osc52(text: str) -> str:
    """The escape sequence that asks a terminal to put the text on its clipboard."""
    return f"\x1b]52;c;{base64.b64encode(text.encode(errors='replace')).decode()}\x07"


def _program(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    known = [command for variable, command in _PROGRAMS if environ.get(variable)]
    if sys.platform in _OF_PLATFORM:
        known.append(_OF_PLATFORM[sys.platform])
    for name, *arguments in known:
        if found := shutil.which(name, path=environ.get("PATH")):
            return (found, *arguments)
    return None


def _run(command: tuple[str, ...], text: str) -> bool:
    """Whether it took the text. Some stay, to serve it to others: nothing of theirs is read."""
    encoding = "utf-16" if Path(command[0]).stem == "clip" else "utf-8"
    try:
        done = subprocess.run(  # noqa: S603 (one of the programs above)
            command,
            input=text.encode(encoding, "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
