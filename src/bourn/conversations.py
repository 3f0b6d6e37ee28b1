"""Where conversations are kept: one SQLite file in the user's data folder, readable by nobody else.

Each call opens the file and closes it again (under a millisecond), so that any thread and any
number of processes may use it. A conversation is one row, written whole in one transaction: of two
who write the same one the last wins, of two who write different ones neither waits long.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from bourn.chat import Chat
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
)
"""What makes each version of the file from the one before it. Only ever appended to."""

_ENTRY = "SELECT id, title, model, turns, changed"

_WAIT = 5.0
"""Seconds to wait for another process that writes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a list shows of a conversation. `model`: the one that answered last, where known."""

    id: str
    title: str
    model: str | None
    turns: int
    changed: datetime


class Conversations:
    """The conversations in one file, which is made when it is first needed.

    path: None is `conversations.db` in the user's data folder for bourn.

    Every method raises `StoreFailed`, with what to do, where the file cannot be used: it is no
    SQLite file, another program's, damaged, of a newer bourn, not writable, or busy for too long.
    Such a file is left as it is.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = default_path() if path is None else path

    def save(
        self,
        id: str,  # noqa: A002
        chat: Chat,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Keep a conversation, in the place of what was kept under that id.

        settings: with which to go on with it, by the names of the fields of `Settings`; of JSON.
        """
        with self._opened() as file:
            file.execute(
                "INSERT INTO conversations (id, title, model, turns, changed, chat, settings)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
                " title = excluded.title, model = excluded.model, turns = excluded.turns,"
                " changed = excluded.changed, chat = excluded.chat, settings = excluded.settings",
                (
                    id,
                    chat.title,
                    _storable(chat.model),
                    len(chat.turns),
                    time.time(),
                    chat.to_json(),
                    json.dumps(dict(settings)),
                ),
            )

    def load(self, id: str) -> Chat:  # noqa: A002
        """The conversation that was saved.

        Raises:
            InvalidRequest: there is none of that id.
        """
        with self._opened() as file:
            row = file.execute("SELECT chat FROM conversations WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise InvalidRequest(f"there is no conversation `{id}`", hint="list those there are")
        try:
            return Chat.from_json(row[0])
        except InvalidRequest as error:
            raise StoreFailed(
                f"conversation `{id}` cannot be read: {error}", hint=error.hint
            ) from error

    def settings(self, id: str) -> dict[str, object]:  # noqa: A002
        """The settings that were saved with a conversation; none where there is none."""
        with self._opened() as file:
            row = file.execute("SELECT settings FROM conversations WHERE id = ?", (id,)).fetchone()
        try:
            told: dict[str, object] = json.loads(row[0]) if row else {}
        except ValueError as error:
            raise StoreFailed(
                f"the settings of conversation `{id}` cannot be read: {error}",
                hint="choose the model and the settings anew",
            ) from error
        return told

    def last(self) -> Entry | None:
        """The conversation that was changed last, if there is one."""
        return next(iter(self.list(1)), None)

    def list(self, limit: int | None = 20) -> tuple[Entry, ...]:
        """What there is, the last changed first; None is all of it."""
        rows = f"{_ENTRY} FROM conversations ORDER BY changed DESC LIMIT ?"
        with self._opened() as file:
            return tuple(
                _entry(*row) for row in file.execute(rows, (-1 if limit is None else limit,))
            )

    def search(self, words: str, limit: int | None = 20) -> tuple[Entry, ...]:
        """Those in which each of the words was said, in small letters or capitals; as `list`."""
        folded = words.casefold().split()
        rows = f"{_ENTRY}, chat FROM conversations ORDER BY changed DESC"
        with self._opened() as file:
            found = (_entry(*row) for *row, chat in file.execute(rows) if _said(chat, folded))
            return tuple(islice(found, limit))

    def delete(self, id: str) -> bool:  # noqa: A002
        """Forget a conversation, its bytes in the file too; whether there was one."""
        with self._opened() as file:
            file.execute("PRAGMA secure_delete = ON")
            return file.execute("DELETE FROM conversations WHERE id = ?", (id,)).rowcount > 0

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            _make(self.path)
            with closing(sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)) as file:
                _bring_up_to_date(file, self.path)
                yield file
        except sqlite3.Error as error:
            raise StoreFailed(f"{self.path}: {error}", hint=_hint(error, self.path)) from error
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


_making = threading.Lock()


def _make(path: Path) -> None:
    """The folder and the file, for the user only; those that are there stay as they are."""
    # SQLite's locks on a file are lost when any other handle of this process to it is closed: so
    # it is not opened here once it is there, nor used by another thread before this is closed
    with _making:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another process was first
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _bring_up_to_date(file: sqlite3.Connection, path: Path) -> None:
    file.execute("BEGIN")  # so that what is asked of the file is of one moment
    done = _version(file, path)
    file.execute("COMMIT")
    if done == len(_STEPS):
        return
    with suppress(sqlite3.OperationalError):  # busy, without waiting: another process does it
        file.execute("PRAGMA journal_mode = WAL")
    file.execute("BEGIN IMMEDIATE")
    for step in _STEPS[_version(file, path) :]:  # asked anew: another process may have been first
        for statement in step:
            file.execute(statement)
    file.execute(f"PRAGMA application_id = {_OURS}")
    file.execute(f"PRAGMA user_version = {len(_STEPS)}")
    file.execute("COMMIT")


def _version(file: sqlite3.Connection, path: Path) -> int:
    """How many steps were done in the file. An empty one is as good as ours.

    Raises:
        StoreFailed: it is another program's, or a newer bourn's.
    """
    ours = file.execute("PRAGMA application_id").fetchone()[0] == _OURS
    version: int = file.execute("PRAGMA user_version").fetchone()[0]
    if not ours and file.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise StoreFailed(f"{path} belongs to another program", hint="name another file")
    if version > len(_STEPS):
        raise StoreFailed(
            f"{path} was written by a newer bourn (version {version} of the file, this bourn knows "
            f"{len(_STEPS)})",
            hint="upgrade bourn, or name another file",
        )
    return version


def _entry(id: str, title: str, model: str | None, turns: int, changed: float) -> Entry:  # noqa: A002
    return Entry(id, title, model, turns, datetime.fromtimestamp(changed, UTC))


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


def _hint(error: sqlite3.Error, path: Path) -> str:
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return (
                f"move {path} away, and a new one is begun; sqlite3's `.recover` may save the old"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "another program is writing to it; try again"
        case sqlite3.SQLITE_FULL:
            return "make room on that disk"
    return "see that the file and its folder are writable for you"
