"""Where conversations are kept: one SQLite file in the user's data folder, readable by nobody else.

Each call opens the file and closes it again (under a millisecond), so that any thread and any
number of processes may use it. A conversation is one row, written whole in one transaction: of two
who write the same one the last wins, of two who write different ones neither waits long.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bourn.chat import Chat
from bourn.databases import Layout, advice, bring_up_to_date, make
from bourn.errors import InvalidRequest, StoreFailed

_OURS = 0x626F7572  # "bour", SQLite's `application_id`: what tells this file from any other

_STEPS = (
    (
        "CREATE TABLE conversations ("
        "id TEXT PRIMARY KEY, title TEXT NOT NULL, model TEXT, turns INTEGER NOT NULL,"
        "changed REAL NOT NULL, chat TEXT NOT NULL)",
        "CREATE INDEX conversations_changed ON conversations (changed)",
    ),
    ("ALTER TABLE conversations ADD COLUMN settings TEXT NOT NULL DEFAULT '{}'",),
    (
        "ALTER TABLE conversations ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE conversations ADD COLUMN name TEXT",
        "DROP INDEX conversations_changed",
        "CREATE INDEX conversations_of_owner ON conversations (owner, changed)",
    ),
)
_LAYOUT = Layout(_OURS, _STEPS)

_ENTRY = "SELECT id, COALESCE(name, title), model, turns, changed"
_OF = "FROM conversations WHERE owner = ?"

_WAIT = 5.0
"""Seconds to wait for another process that writes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a list shows of a conversation.

    title: the name that its owner gave it, else the first words of it. model: the one that answered
    last, where known.
    """

    id: str
    title: str
    model: str | None
    turns: int
    changed: datetime


class Conversations:
    """The conversations of one owner in one file, which is made when it is first needed.

    path: None is `conversations.db` in the user's data folder for bourn. owner: whose they are, and
    who sees nobody else's; "" is who sits at the terminal.

    Every method raises `StoreFailed`, with what to do, where the file cannot be used: it is no
    SQLite file, another program's, damaged, of a newer bourn, not writable, or busy for too long.
    Such a file is left as it is.
    """

    def __init__(self, path: Path | None = None, owner: str = "") -> None:
        self.path = default_path() if path is None else path
        self.owner = owner

    def save(
        self,
        id: str,  # noqa: A002
        chat: Chat,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Keep a conversation, in the place of what was kept under that id.

        settings: with which to go on with it, by the names of the fields of `Settings`; of JSON.

        Raises:
            InvalidRequest: that id is somebody else's.
        """
        with self._opened() as file:
            saved = file.execute(
                "INSERT INTO conversations"
                " (id, owner, title, model, turns, changed, chat, settings)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
                " title = excluded.title, model = excluded.model, turns = excluded.turns,"
                " changed = excluded.changed, chat = excluded.chat, settings = excluded.settings"
                " WHERE owner = excluded.owner",
                (
                    id,
                    self.owner,
                    chat.title,
                    _storable(chat.model),
                    len(chat.turns),
                    time.time(),
                    chat.to_json(),
                    json.dumps(dict(settings)),
                ),
            )
        if not saved.rowcount:
            raise _unknown(id)

    def load(self, id: str) -> Chat:  # noqa: A002
        """The conversation that was saved.

        Raises:
            InvalidRequest: there is none of that id.
        """
        (told,) = self._row("SELECT chat", id)
        try:
            return Chat.from_json(told)
        except InvalidRequest as error:
            raise StoreFailed(
                f"conversation `{id}` cannot be read: {error}", hint=error.hint
            ) from error

    def settings(self, id: str) -> dict[str, object]:  # noqa: A002
        """The settings that were saved with a conversation; none where there is none."""
        with self._opened() as file:
            row = file.execute(f"SELECT settings {_OF} AND id = ?", (self.owner, id)).fetchone()
        try:
            told: dict[str, object] = json.loads(row[0]) if row else {}
        except ValueError as error:
            raise StoreFailed(
                f"the settings of conversation `{id}` cannot be read: {error}",
                hint="choose the model and the settings anew",
            ) from error
        return told

    def entry(self, id: str) -> Entry:  # noqa: A002
        """What a list shows of one.

        Raises:
            InvalidRequest: there is none of that id.
        """
        return _entry(*self._row(_ENTRY, id))

    def last(self) -> Entry | None:
        """The conversation that was changed last, if there is one."""
        return next(iter(self.list(1)), None)

    def list(self, limit: int | None = 20) -> tuple[Entry, ...]:
        """What there is, the last changed first; None is all of it."""
        rows = f"{_ENTRY} {_OF} ORDER BY changed DESC LIMIT ?"
        with self._opened() as file:
            found = file.execute(rows, (self.owner, -1 if limit is None else limit))
            return tuple(_entry(*row) for row in found)

    def search(self, words: str, limit: int | None = 20) -> tuple[Entry, ...]:
        """Those in which each of the words was said, in small letters or capitals; as `list`.

        Words of the name that was given to a conversation count as said in it.
        """
        folded = words.casefold().split()
        rows = f"{_ENTRY}, name, chat {_OF} ORDER BY changed DESC"
        with self._opened() as file:
            found = (
                _entry(*row)
                for *row, name, chat in file.execute(rows, (self.owner,))
                if _said(chat, _not_in(name, folded))
            )
            return tuple(islice(found, limit))

    def rename(self, id: str, title: str) -> None:  # noqa: A002
        """Give it a name, which stays whatever is said in it; an empty one takes it back.

        Raises:
            InvalidRequest: there is none of that id.
        """
        name = Chat().ask(title).title or None  # in one line, and no longer than another title
        with self._opened() as file:
            renamed = file.execute(
                "UPDATE conversations SET name = ? WHERE owner = ? AND id = ?",
                (name, self.owner, id),
            )
        if not renamed.rowcount:
            raise _unknown(id)

    def delete(self, id: str) -> bool:  # noqa: A002
        """Forget a conversation, its bytes in the file too; whether there was one."""
        with self._opened() as file:
            file.execute("PRAGMA secure_delete = ON")
            gone = file.execute(f"DELETE {_OF} AND id = ?", (self.owner, id))
            return gone.rowcount > 0

    def _row(self, columns: str, id: str) -> tuple[Any, ...]:  # noqa: A002
        with self._opened() as file:
            row = file.execute(f"{columns} {_OF} AND id = ?", (self.owner, id)).fetchone()
        if row is None:
            raise _unknown(id)
        found: tuple[Any, ...] = row
        return found

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            make(self.path)
            with closing(sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)) as file:
                bring_up_to_date(file, self.path, _LAYOUT)
                yield file
        except sqlite3.Error as error:
            raise StoreFailed(f"{self.path}: {error}", hint=advice(error, self.path)) from error
        except OSError as error:
            raise StoreFailed(
                f"cannot keep conversations in {self.path}: {error.strerror}",
                hint="make that file and its folder writable for you, or name another one",
            ) from error


def new_id() -> str:
    """An id for a new conversation: twelve letters and digits."""
    return secrets.token_hex(6)


def default_path() -> Path:
    """Where conversations are kept when nobody names another file."""
    from platformdirs import user_data_path  # only where it is asked

    return user_data_path("bourn") / "conversations.db"


def _unknown(id: str) -> InvalidRequest:  # noqa: A002
    return InvalidRequest(f"there is no conversation `{id}`", hint="list those there are")


def _entry(id: str, title: str, model: str | None, turns: int, changed: float) -> Entry:  # noqa: A002
    return Entry(id, title, model, turns, datetime.fromtimestamp(changed, UTC))


def _not_in(name: str | None, words: list[str]) -> list[str]:
    """Those words that are not in the name."""
    named = (name or "").casefold()
    return [word for word in words if word not in named]


def _said(chat: str, words: list[str]) -> bool:
    """Whether all of the words, which are folded, were said."""
    text = chat.casefold()
    literal = "\\u" not in text  # else what was said may be written in another way
    if literal and not all(json.dumps(word, ensure_ascii=False)[1:-1] in text for word in words):
        return False  # most need not be parsed for this
    try:
        turns = Chat.from_json(chat).turns
    except InvalidRequest:
        return False  # damaged, which `load` tells
    said = "\n".join(message.text for turn in turns for message in turn.messages).casefold()
    return all(word in said for word in words)


def _storable(text: str | None) -> str | None:
    """Without halves of surrogate pairs, which SQLite cannot hold."""
    return text if text is None else text.encode("utf-8", "replace").decode()
