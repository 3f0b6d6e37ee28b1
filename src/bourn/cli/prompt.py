"""The input line. It knows no session and no model.

One that can be edited where stdin and stdout are terminals that know escape sequences, a plain one
everywhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TextIO

from bourn.cli.show import knows_escapes, say
from bourn.cli.typed import unfinished

PROMPT, MORE = "> ", "… "

Completions = Callable[[str], tuple[str, ...]]
"""The whole texts that a text may be completed to."""


class Prompt(Protocol):
    @property
    def prefills(self) -> bool:
        """Whether a text can be put in the line to be changed there."""
        ...

    def read(self, begun: str = "") -> str:
        """What is typed next, of one line or of several; `begun` is there already.

        Raises:
            EOFError: there is no more, or the user leaves: Ctrl-D, or Ctrl-C twice where nothing
                is typed.
        """
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


class PlainPrompt:
    """Lines of stdin. `prompts`: a person types them, who is asked for them on stderr."""

    prefills = False

    def __init__(self, stdin: TextIO, *, prompts: bool) -> None:
        self._lines = stdin.buffer
        self._prompts = prompts

    def read(self, begun: str = "") -> str:
        text = begun.rstrip("\n") or self._first_line()
        while unfinished(text):
            try:
                text = f"{text}\n{self._line(MORE)}"
            except EOFError:
                break
        return text

    def close(self) -> None:
        """Nothing was changed."""

    def _first_line(self) -> str:
        """A terminal clears a line by itself at Ctrl-C; one that follows at once leaves.

        Raises:
            KeyboardInterrupt: nobody types here.
        """
        try:
            return self._line(PROMPT)
        except KeyboardInterrupt:
            if not self._prompts:
                raise
        say("\nCtrl-C once more leaves, as Ctrl-D does")
        try:
            return self._line(PROMPT)
        except KeyboardInterrupt:
            raise EOFError from None

    def _line(self, prompt: str) -> str:
        if self._prompts:
            sys.stderr.write(prompt)
            sys.stderr.flush()
        line = self._lines.readline()
        if not line:
            raise EOFError
        line = line.rstrip(b"\r\n")
        try:
            return line.decode()
        except UnicodeDecodeError:
            say("bourn: that line is not all UTF-8; the broken bytes were replaced")
            return line.decode(errors="replace")


def prompt_for(
    environ: Mapping[str, str], history: Path | None, completions: Completions
) -> Prompt:
    """The prompt that suits stdin and stdout.

    history: the file of what was typed before; None keeps it in memory.
    """
    if can_edit(environ):
        from bourn.cli.line import LinePrompt  # prompt_toolkit, which a pipe has no use for

        return LinePrompt(history, completions)
    return PlainPrompt(sys.stdin, prompts=sys.stdin.isatty())


def can_edit(environ: Mapping[str, str]) -> bool:
    """Whether stdin and stdout are terminals on which a line can be edited."""
    return sys.stdin.isatty() and knows_escapes(sys.stdout, environ)
