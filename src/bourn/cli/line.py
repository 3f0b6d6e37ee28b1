"""An input line that can be edited, with a history and with completion: prompt_toolkit's."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth, Output

from bourn.cli.markdown import terminal_size
from bourn.cli.prompt import MORE, PROMPT, Completions
from bourn.cli.show import say
from bourn.cli.typed import MARKS, unfinished

HINT = "Ask something, or :help"
AGAIN = "Ctrl-C once more leaves, as Ctrl-D does"

_PASTES_WHOLE, _PASTES_LINES = "\x1b[?2004h", "\x1b[?2004l"


class LinePrompt:
    """history: the file of what was typed, for the user only; None keeps it in memory."""

    prefills = True

    def __init__(self, history: Path | None, completions: Completions) -> None:
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=lambda _width, _line, wrapped: "" if wrapped else MORE,
            placeholder=self._placeholder,
            history=_history(history),
            completer=_Commands(completions),
            complete_while_typing=Condition(lambda: self._text.startswith(MARKS)),
            key_bindings=_keys(completions, self._clear),
            enable_open_in_editor=True,
            enable_suspend=True,
            color_depth=ColorDepth.from_env(),  # which knows NO_COLOR
            input=_input(),
            output=_output(),
        )
        self._session.default_buffer.on_text_changed += self._changed
        self._pressed = False  # Ctrl-C, in an empty line

    @property
    def _text(self) -> str:
        return self._session.default_buffer.text

    def read(self, begun: str = "") -> str:
        self._pressed = False
        try:
            return self._session.prompt(default=begun)
        finally:
            self._write(_PASTES_WHOLE)  # what is pasted during the answer is one text, too

    def close(self) -> None:
        self._write(_PASTES_LINES)

    def _placeholder(self) -> StyleAndTextTuples:
        if self._session.app.is_done:
            return []
        return [("fg:ansibrightblack", AGAIN if self._pressed else HINT)]

    def _changed(self, _: object) -> None:
        self._pressed = False

    def _clear(self, event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        elif self._pressed:
            event.app.exit(exception=EOFError())
        else:
            self._pressed = True

    def _write(self, sequence: str) -> None:
        if sys.platform != "win32":
            self._session.output.write_raw(sequence)
            self._session.output.flush()


def _keys(completions: Completions, clear: Callable[[KeyPressEvent], None]) -> KeyBindings:
    keys = KeyBindings()
    keys.add("c-c")(clear)
    keys.add("<sigint>")(clear)

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if unfinished(buffer.text):
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _next_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add("tab")
    def _complete(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        typed = buffer.document.text_before_cursor
        common = os.path.commonprefix(completions(typed))  # noqa: RUF071 (of letters)
        if len(common) > len(typed):
            buffer.insert_text(common[len(typed) :])
        elif buffer.complete_state:
            buffer.complete_next()
        else:
            buffer.start_completion(insert_common_part=True)

    return keys


class _Commands(Completer):
    def __init__(self, completions: Completions) -> None:
        self._completions = completions

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        for text in self._completions(typed):
            last = re.split(r"(?<=[ /])(?=.)", text)[-1]
            yield Completion(text, start_position=-len(typed), display=last)


# -- what was typed before -------------------------------------------------------------------------

_MOST = 1 << 20  # bytes of the file; what is beyond half of that goes


def _history(path: Path | None) -> History:
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)  # one that was there may be readable by others
        _shorten(path)
    except OSError as error:
        say(f"bourn: cannot keep what is typed in {path}: {error.strerror}")
        return InMemoryHistory()
    return _PrivateHistory(path)


def _shorten(path: Path) -> None:
    if path.stat().st_size > _MOST:
        kept = path.read_bytes()[-_MOST // 2 :]
        path.write_bytes(kept[kept.find(b"\n\n#") + 1 :])  # from the start of an entry


class _PrivateHistory(FileHistory):
    def store_string(self, string: str) -> None:
        with suppress(OSError):  # a full disk does not end a talk
            super().store_string(string)


# -- the terminal ----------------------------------------------------------------------------------


def _input() -> Input | None:
    """The terminal's keys; None is prompt_toolkit's own choice."""
    if sys.platform == "win32":
        return None
    from prompt_toolkit.input.vt100 import Vt100Input
    from prompt_toolkit.key_binding import KeyPress
    from prompt_toolkit.keys import Keys

    class WholeLines(Vt100Input):
        """Text that comes at once with a line feed at its end is a line that a program wrote."""

        def read_keys(self) -> list[KeyPress]:
            keys = super().read_keys()
            if len(keys) > 1 and keys[-1].key is Keys.ControlJ:
                keys[-1] = KeyPress(Keys.ControlM, "\r")
            return keys

    return WholeLines(sys.stdin)


def _output() -> Output | None:
    """The terminal, which is asked nothing: an answer that came late would be taken for typed."""
    if sys.platform == "win32":
        return None
    from prompt_toolkit.output.vt100 import Vt100_Output

    def size() -> Size:
        columns, lines = terminal_size(sys.stdout)
        return Size(rows=lines, columns=columns)

    return Vt100_Output(sys.stdout, size, term=os.environ.get("TERM"), enable_cpr=False)
