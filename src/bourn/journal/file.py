"""The SQLite file in which journals are kept: its tables, and one transaction for many events.

Everything here blocks and belongs to one thread. Nothing here knows an event loop or a reader.

The file is locked for as long as it is open, so that two processes never write one journal. It is a
write-ahead log that is synced at checkpoints only: what was committed outlives the process, however
that ends, and all but the last moments outlive the machine.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bourn.databases import Layout, bring_up_to_date, make, version
from bourn.errors import Interrupted, StoreFailed
from bourn.journal.base import Kept, Label
from bourn.journal.codec import decode, encode
from bourn.types import Done, Event, Finished, FinishReason, State
from bourn.values import codec

LAYOUT = Layout(
    0x626F756A,  # "bouj"
    (
        (
            # `state` and what follows it are of those that have ended
            "CREATE TABLE journals (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
            "label TEXT NOT NULL, state TEXT, finished REAL, reasons TEXT, head INTEGER,"
            "size INTEGER)",
            "CREATE TABLE events (row INTEGER NOT NULL, number INTEGER NOT NULL,"
            "event TEXT NOT NULL, PRIMARY KEY (row, number)) WITHOUT ROWID",
        ),
    ),
)

PAGE = 256
"""Events that are read at a time."""

_WAIT = 2.0
"""Seconds for which another process may still hold the file: one that is just ending."""

_LARGEST_LOG = 8 * 2**20
"""Bytes of the write-ahead log that stay when it is not needed."""

_SHRINK = 512
"""Free pages that the file holds for what comes; and as many are given back at a time."""

_END = (
    "UPDATE journals SET state = ?, finished = ?, reasons = ?,"
    " head = (SELECT max(number) FROM events WHERE events.row = journals.row),"
    " size = (SELECT sum(length(event)) + 16 * count(*) FROM events"
    "  WHERE events.row = journals.row)"
)

_label = codec(Label)


class Entry(NamedTuple):
    """A journal that has ended. row: its own in the file. head: the number of its last event."""

    row: int
    head: int
    kept: Kept


class Part(NamedTuple):
    """What is to be written of a journal: those of its events from `first` up to before `upto`.

    label: None where the journal is in the file already. events: all of them; the list may grow.
    """

    row: int
    id: str
    label: Label | None
    events: Sequence[Event]
    first: int
    upto: int


@dataclass(slots=True)
class Written:
    """sizes: in bytes, of the journals that have ended, by row. refused: what cannot be written."""

    sizes: dict[int, int] = field(default_factory=dict)
    refused: dict[int, Exception] = field(default_factory=dict)


class JournalFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: sqlite3.Connection | None = None

    def open(self) -> list[Entry]:
        """Make or open the file, and end what was live; what is in it, the first to end first.

        Raises:
            StoreFailed: it is another program's, a newer bourn's, or used by another process.
            sqlite3.Error, OSError, ValueError: it is damaged, or cannot be written.
        """
        until = time.monotonic() + _WAIT
        while True:
            try:
                return self._try_to_open()
            except sqlite3.Error as error:
                if not _is_busy(error):
                    raise
                if time.monotonic() > until:
                    raise StoreFailed(
                        f"{self.path} is used by another process",
                        hint="stop the other bourn, or give each one a file of its own",
                    ) from error
            # two who begin at once may hold up each other: they let go, and come back apart
            time.sleep(random.uniform(0.01, 0.1))  # noqa: S311 (no secret)

    def _try_to_open(self) -> list[Entry]:
        make(self.path)
        self._opened = sqlite3.connect(self.path, timeout=0.0, isolation_level=None)
        try:
            self._prepare(self._opened)
            self._end_the_lost()
            return self._entries()
        except BaseException:  # an interrupt too must leave no half a transaction
            self.close()
            raise

    def close(self) -> None:
        """Idempotent."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def write(self, parts: Iterable[Part], gone: Collection[int]) -> Written:
        """All of it, or nothing where it raises. A journal that cannot be put in JSON is left out.

        gone: rows of journals to forget.

        Raises:
            sqlite3.Error: it is not written.
        """
        written = Written()
        ready = [(part, texts) for part in parts if (texts := _texts(part, written)) is not None]
        with self._transaction() as file:
            for row in gone:
                file.execute("DELETE FROM events WHERE row = ?", (row,))
                file.execute("DELETE FROM journals WHERE row = ?", (row,))
            for part, texts in ready:
                _insert(file, part, texts)
                end = part.events[part.upto - 1]
                if isinstance(end, Done):
                    written.sizes[part.row] = _end(file, part, end)
        if gone:
            self._shrink()
        return written

    def page(self, row: int, after: int) -> list[Event]:
        """The next events of a journal, at least one.

        Raises:
            sqlite3.Error, ValueError: they cannot be read, or are not there.
        """
        found = self._file.execute(
            "SELECT number, event FROM events WHERE row = ? AND number > ? ORDER BY number LIMIT ?",
            (row, after, PAGE),
        ).fetchall()
        if not found or found[-1][0] != after + len(found):
            raise ValueError(f"events after number {after} are missing")
        return [decode(text) for _, text in found]

    @property
    def _file(self) -> sqlite3.Connection:
        if self._opened is None:
            raise sqlite3.ProgrammingError("the file is closed")
        return self._opened

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        file = self._file
        file.execute("BEGIN IMMEDIATE")
        try:
            yield file
            file.execute("COMMIT")
        except BaseException:  # an interrupt too must leave no half a transaction
            if file.in_transaction:  # a full disk may have ended it
                file.execute("ROLLBACK")
            raise

    def _prepare(self, file: sqlite3.Connection) -> None:
        for setting in (
            "locking_mode = EXCLUSIVE",  # before all: no shared memory then, and the lock stays
            "auto_vacuum = INCREMENTAL",  # before the first table
            "secure_delete = ON",  # what is forgotten is gone from the file
            f"journal_size_limit = {_LARGEST_LOG}",
            "synchronous = NORMAL",
        ):
            file.execute(f"PRAGMA {setting}")
        version(file, self.path, LAYOUT)  # refuses what is not ours before anything is written
        file.execute("PRAGMA journal_mode = WAL")
        bring_up_to_date(file, self.path, LAYOUT)
        file.execute("BEGIN EXCLUSIVE")  # the lock is ours from here on
        file.execute("COMMIT")

    def _end_the_lost(self) -> None:
        error = Interrupted(
            "the answer broke off: bourn ended while it was being made",
            hint="what came before is kept; ask again for a whole answer",
        )
        with self._transaction() as file:
            file.execute(
                "INSERT INTO events SELECT row, 1 + (SELECT coalesce(max(number), 0) FROM events"
                " WHERE events.row = journals.row), ? FROM journals WHERE state IS NULL",
                (encode(Done("lost", error=error)),),
            )
            file.execute(f"{_END} WHERE state IS NULL", ("lost", time.time(), "[]"))

    def _entries(self) -> list[Entry]:
        rows = self._file.execute(
            "SELECT row, head, id, label, state, size, finished, reasons FROM journals"
            " ORDER BY finished, row"
        )
        return [Entry(row, head, _kept(*rest)) for row, head, *rest in rows]

    def _shrink(self) -> None:
        """Give back some of what is free, where it is much: pages are reused before that."""
        with suppress(sqlite3.Error):  # what was to be written is written
            free: int = self._file.execute("PRAGMA freelist_count").fetchone()[0]
            if free > 2 * _SHRINK:
                # `execute` takes one step of it, which is one page
                self._file.executescript(f"PRAGMA incremental_vacuum({_SHRINK})")


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _texts(part: Part, written: Written) -> list[str] | None:
    """The events of a part as they are written; None where they cannot be."""
    try:
        return [encode(event) for event in part.events[part.first : part.upto]]
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        written.refused[part.row] = error
        return None


def _insert(file: sqlite3.Connection, part: Part, texts: list[str]) -> None:
    if part.label is not None:
        file.execute(
            "INSERT OR REPLACE INTO journals (row, id, label) VALUES (?, ?, ?)",
            (part.row, part.id, json.dumps(_label.write(part.label))),
        )
    # once more does no harm: a commit that failed may be there all the same
    numbered = ((part.row, number, text) for number, text in enumerate(texts, part.first + 1))
    file.executemany("INSERT OR REPLACE INTO events VALUES (?, ?, ?)", numbered)


def _end(file: sqlite3.Connection, part: Part, done: Done) -> int:
    """Write down that a journal has ended; its size in bytes."""
    ends = [event for event in part.events if isinstance(event, Finished)]
    certain = not any(end.assumed for end in ends)
    reasons = [end.reason.value for end in ends] if certain else []
    values = (done.state, time.time(), json.dumps(reasons), part.row)
    file.execute(f"{_END} WHERE row = ?", values)
    size: int = file.execute("SELECT size FROM journals WHERE row = ?", (part.row,)).fetchone()[0]
    return size


def _kept(id: str, label: str, state: State, size: int, finished: float, reasons: str) -> Kept:  # noqa: A002
    return Kept(
        id,
        _label.read(json.loads(label)),
        state,
        size,
        finished,
        tuple(FinishReason(reason) for reason in json.loads(reasons)),
    )
