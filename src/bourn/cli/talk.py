"""The talk on a terminal, or through a pipe: read, ask or do, show; until somebody leaves."""

from __future__ import annotations

import os
import sys
import textwrap
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from bourn.chat import Chat
from bourn.cli import commands
from bourn.cli.ask import Interrupt, Writer, writer_for
from bourn.cli.clipboard import copy
from bourn.cli.editor import edit, editor_of
from bourn.cli.effects import Ask, ClearScreen, Copy, Edit, Effect, Leave, Say, Type
from bourn.cli.keyboard import Keyboard
from bourn.cli.markdown import terminal_size
from bourn.cli.neutral import neutral
from bourn.cli.prompt import Prompt
from bourn.cli.session import Attempt, Session
from bourn.cli.show import (
    FAILED,
    INTERRUPTED,
    Status,
    is_styled,
    knows_escapes,
    say,
    stats_line,
    tell_error,
)
from bourn.cli.thinking import Reasoning
from bourn.cli.typed import parse
from bourn.errors import BournError, InvalidRequest, StoreFailed
from bourn.stream import Answer
from bourn.types import FinishReason

if TYPE_CHECKING:
    from bourn.sync import Stream

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


@dataclass(frozen=True, slots=True)
class Looks:
    """plain: no Markdown. quiet: no numbers. reasoning: shown, folded into a line, or hidden."""

    plain: bool = False
    quiet: bool = False
    reasoning: Reasoning = "show"

    def writer(self, out: TextIO) -> Writer:
        return writer_for(out, plain=self.plain, reasoning=self.reasoning, ends_line=True)


class Talk:
    """`run` it once. The session's model is open."""

    def __init__(self, session: Session, prompt: Prompt, keyboard: Keyboard, looks: Looks) -> None:
        self._session = session
        self._prompt = prompt
        self._keyboard = keyboard
        self._looks = looks
        self._typed = sys.stdin.isatty()
        self._begun = ""  # what the next line begins with
        self._failed = False
        self._status: int | None = None

    def run(self, first: str | None = None) -> int:
        """The exit status. A pipe's is 1 where an answer failed, since nobody was there to see."""
        if first is not None:
            say(f"> {first}")
            self._ask(self._session.chat.ask(first))
        while self._status is None:
            try:
                self._take(self._read())
            except EOFError:
                self._leave()
            except KeyboardInterrupt:  # in a terminal it came too late for an answer
                if not self._typed:
                    self._status = INTERRUPTED
        return self._status

    def _read(self) -> str:
        begun, self._begun = self._begun, ""
        return self._prompt.read(begun)

    def _leave(self) -> None:
        self._status = FAILED if self._failed and not self._typed else 0

    def _take(self, typed: str) -> None:
        """Do what was typed. What fails is told, and the talk goes on."""
        try:
            match parse(typed):
                case "":
                    say("Nothing was typed; :help tells what can be.")
                case str(question):
                    self._ask(self._session.chat.ask(question))
                case call:
                    self._finish(commands.run(self._session, call))
        except BournError as error:
            tell_error(error)

    def _finish(self, effect: Effect) -> None:
        match effect:
            case Say(text):
                say(neutral(text))
            case Ask(chat, notice):
                if notice:
                    say(notice)
                self._ask(chat)
            case Type(text):
                self._begun = text
            case Edit(text):
                self._edit(text)
            case Copy(text):
                self._copy(text)
            case ClearScreen():
                if knows_escapes(sys.stdout):
                    sys.stdout.write(_CLEAR)
                    sys.stdout.flush()
            case Leave():
                self._leave()

    # -- answers -----------------------------------------------------------------------------------

    def _ask(self, chat: Chat) -> None:
        try:
            stream = self._answer(chat)
        except BournError as error:
            self._failed = True
            tell_error(error)
            if self._session.pending is not None:
                aside("(:retry asks it again)")
        except KeyboardInterrupt:
            aside("(stopped; :retry asks it again)")
        else:
            self._tell_end(stream)

    def _answer(self, chat: Chat) -> Answer:
        """Have the chat answered, and show it.

        Raises:
            BournError: why it failed. KeyboardInterrupt: it had not begun.
        """
        self._keyboard.hush()
        attempt: Attempt | None = self._session.begin(chat)
        while attempt is not None:
            stream = attempt.stream
            if attempt.notice:
                aside(f"({attempt.notice})")
            with stream, Interrupt(stream):
                with suppress(KeyboardInterrupt):  # pressed twice: its end is not waited for
                    self._show(stream)
                attempt = self._taken_in(attempt)
        return stream

    def _show(self, stream: Stream) -> None:
        status = Status()
        writer = self._looks.writer(sys.stdout)
        try:
            for event in stream.events():
                status.event(event)
                writer.event(event)
        finally:
            status.clear()
            writer.end(stream)

    def _taken_in(self, attempt: Attempt) -> Attempt | None:
        try:
            return self._session.end(attempt)
        except StoreFailed as error:
            tell_error(error)
            aside("(conversations are not kept from here on)")
            return None

    def _tell_end(self, stream: Answer) -> None:
        if stream.finish_reason in (None, FinishReason.CANCELLED):
            way = ":continue goes on" if stream.text else ":retry asks it again"
            aside(f"(stopped; {way})")
        elif stream.finish_reason is FinishReason.LENGTH:
            aside("(cut by the limit of tokens; :continue goes on)")
        elif not stream.text:
            aside("(the answer is empty)")
        if not self._looks.quiet:
            aside(stats_line(stream))

    # -- what commands leave to do -----------------------------------------------------------------

    def _edit(self, text: str) -> None:
        editor = editor_of(os.environ)
        if editor is not None and self._typed:
            with self._keyboard.lent():
                edited = edit(text, editor)
            if edited in ("", text.rstrip()):
                say("nothing was changed; :retry asks it again")
            else:
                self._ask(self._session.reworded(edited))
        elif self._prompt.prefills:
            self._begun = f":edit {text}"
        else:
            raise InvalidRequest("there is no $EDITOR to open", hint="say :edit TEXT")

    def _copy(self, text: str) -> None:
        terminal = sys.stdout if knows_escapes(sys.stdout) else None
        ways = copy(text, terminal, os.environ)
        if not ways:
            raise InvalidRequest("there is no clipboard here", hint=":save FILE writes a file")
        say(f"copied, through {' and '.join(ways)}")


def aside(text: str) -> None:
    """Something beside the answer, on stderr; dim, and within the width, on a terminal."""
    if sys.stderr.isatty():
        columns, _ = terminal_size(sys.stderr)
        text = textwrap.fill(text, max(columns - 1, 10), break_on_hyphens=False)
    if is_styled(sys.stderr):
        text = f"\x1b[2m{text}\x1b[0m"
    say(text)
