"""Beginning a talk: which conversation, with which settings, on what terminal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bourn.cli.ask import opened
from bourn.cli.commands import turns
from bourn.cli.completion import completions
from bourn.cli.keyboard import Keyboard
from bourn.cli.neutral import neutral
from bourn.cli.prompt import can_edit, prompt_for
from bourn.cli.session import Session
from bourn.cli.show import Status, say
from bourn.cli.talk import Looks, Talk
from bourn.cli.tuning import resumed
from bourn.conversations import Conversations
from bourn.engines import engine_for
from bourn.errors import InvalidRequest
from bourn.settings import Settings, given

if TYPE_CHECKING:
    from bourn.sync import Model

KEYS = "Ctrl-C stops an answer, Ctrl-D leaves, :help tells the rest"


def session(
    flags: Mapping[str, Any],
    conversation: str | None,
    *,
    go_on: bool,
    keep: bool,
    fold_system: bool = False,
) -> Session:
    """The conversation that is begun, or gone on with, and the settings for it."""
    store = Conversations()
    kept = store if keep else None
    if not go_on and conversation is None:
        return Session(Settings.load(flags), _loaded, store=kept, fold_system=fold_system)
    id_ = conversation or _last(store)
    chat = store.load(id_)
    settings = Settings.load(resumed(store.settings(id_), flags))
    settings = replace(settings, called_for=frozenset(given(flags)))  # what was kept is not
    if flags["system"] is not None:
        chat = chat.with_system(flags["system"])
    return Session(settings, _loaded, chat=chat, id=id_, store=kept, fold_system=fold_system)


def _last(store: Conversations) -> str:
    entry = store.last()
    if entry is None:
        raise InvalidRequest("there is no conversation to go on with", hint="bourn chat begins one")
    return entry.id


def _loaded(settings: Settings) -> AbstractContextManager[Model]:
    status = Status()
    return opened(engine_for(settings, status.loading), settings, status)


def talk(session: Session, looks: Looks, first: str | None, *, keep: bool) -> int:
    """Load the model, and talk until somebody leaves. The exit status."""
    _end_in_order()
    with ExitStack() as stack:
        loading = session.loading()  # while the rest is made ready
        keyboard = stack.enter_context(Keyboard(sys.stdin, edited=can_edit(os.environ)))
        prompt = prompt_for(os.environ, _history_file() if keep else None, completions)
        stack.callback(prompt.close)
        stack.callback(session.close)
        session.hold(loading)
        _greet(session)
        return Talk(session, prompt, keyboard, looks).run(first)


def _greet(session: Session) -> None:
    if sys.stdin.isatty():
        say(neutral(f"{session.info.name} · {KEYS}"))
    if session.chat.turns or session.pending:
        title = (session.pending or session.chat).title
        say(f"going on with “{title}”, {turns(session.chat)} so far")


def _history_file() -> Path:
    from platformdirs import user_state_path  # only where it is asked

    return user_state_path("bourn") / "chat_history"


def _end_in_order() -> None:
    """Let a hang-up, or a polite kill, leave the terminal as it was and end the model."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # there is no hang-up on Windows
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, leave)


# -- the list --------------------------------------------------------------------------------------


def list_conversations() -> None:
    """Show what is kept, the last changed first."""
    entries = Conversations().list(limit=None)
    if not entries:
        say("no conversation is kept yet")
    for entry in entries:
        changed = entry.changed.astimezone().strftime("%Y-%m-%d %H:%M")
        model = neutral(entry.model or "?")
        print(f"{entry.id}  {changed}  {entry.turns:3d}  {model:20}  {entry.title}")
