"""Journals that outlive the process: in memory while they are live, in a SQLite file for later.

What is appended can be read at once, from memory. A thread writes it down, all that came within a
few milliseconds in one commit; once its end is in the file a journal is read from there, and takes
no memory. Only journals whose label says `durable` are written.

A disk that fills up or breaks later fails no generation: journals stay in memory then, the log says
so once, and what is there is written when it can be. Nor does a file that was damaged: it is left
for its owner to save.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from bourn.databases import advice
from bourn.errors import StoreFailed
from bourn.journal.base import Kept, Label
from bourn.journal.file import Entry, JournalFile, Part, Written
from bourn.journal.memory import MemoryJournal
from bourn.types import Done, Event

logger = logging.getLogger("bourn.journal")

T = TypeVar("T")

_GROUP = 0.02
"""Seconds for which events are gathered before they are written."""

_PATIENCE = 30.0
"""Seconds after which writing is tried again."""


class SqliteJournal(MemoryJournal):
    """One that is written down.

    row: its own in the file. written: how many of its events are there. released: whether it is
    read from there. wanted: whether more of it is to be written.
    """

    __slots__ = ("_store", "released", "row", "wanted", "written")

    def __init__(self, id: str, label: Label, store: SqliteJournals, row: int) -> None:  # noqa: A002
        super().__init__(id, label)
        self._store = store
        self.row = row
        self.written = 0
        self.released = False
        self.wanted = True

    @property
    def head(self) -> int:
        return self.written if self.released else len(self._events)

    @property
    def subscribed(self) -> bool:
        return bool(self._wakes)

    async def append(self, *events: Event) -> None:
        await super().append(*events)
        if events:
            self._store.grown(self)

    async def read(self, after: int = 0) -> Sequence[Event]:
        if not self.released:
            return self._events[after:]
        return await self._store.page(self, after) if after < self.written else ()

    def part(self) -> Part:
        """What is not written yet."""
        label = None if self.written else self.label
        return Part(self.row, self.id, label, self._events, self.written, len(self._events))

    def release(self, head: int, size: int) -> None:
        """It has ended, and is read from the file from now on, where it takes `size` bytes."""
        self._ended = self.released = True
        self.written, self._size = head, size
        self._events = []

    def recall(self, events: list[Event]) -> None:
        """It is read from memory again."""
        self._events, self.released = events, False


class SqliteJournals:
    """Journals in one file, which this process has for itself between `start` and `aclose`.

    path: the file; it is made where there is none, readable by its user only.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = JournalFile(path)
        self._thread = ThreadPoolExecutor(1, "bourn-journals")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False  # or never opened: all goes on in memory
        self._journals: dict[str, MemoryJournal] = {}
        self._rows = itertools.count(1)
        self._grown: dict[SqliteJournal, None] = {}  # in the order in which they did
        self._gone: dict[int, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[Written] | None = None
        self._ailing = False

    async def start(self) -> list[Kept]:
        """Open the file; see `Journals.start`. One that is damaged is left as it is.

        Raises:
            StoreFailed: it cannot be opened or made, is no database of ours, or is used by another
                process.
        """
        self._loop = asyncio.get_running_loop()
        try:
            entries = await self._in_thread(self._file.open)
        except (sqlite3.Error, OSError, ValueError) as error:
            self._let_go()
            if not _is_damage(error):
                hint = f"{_hint(error, self.path)}; or name another file"
                raise StoreFailed(f"{self.path} cannot be used: {error}", hint=hint) from error
            self._complain(error)
            return []
        except StoreFailed:
            self._let_go()
            raise
        for entry in entries:
            self._restore(entry)
        self._rows = itertools.count(1 + max((entry.row for entry in entries), default=0))
        return [entry.kept for entry in entries]

    def create(self, id: str, label: Label = Label()) -> MemoryJournal:  # noqa: A002, B008 (frozen)
        """See `Journals.create`.

        Raises:
            StoreFailed: `start` was not awaited.
        """
        if self._loop is None:
            raise StoreFailed(f"{self.path} is not open", hint="await `start` first")
        if label.durable and not self._closed:
            journal: MemoryJournal = SqliteJournal(id, label, self, next(self._rows))
        else:
            journal = MemoryJournal(id, label)
        self._journals[id] = journal
        return journal

    def open(self, id: str) -> MemoryJournal | None:  # noqa: A002
        return self._journals.get(id)

    async def delete(self, id: str) -> None:  # noqa: A002
        journal = self._journals.pop(id, None)
        if not isinstance(journal, SqliteJournal):
            return
        journal.wanted = False
        self._grown.pop(journal, None)
        try:
            if journal.released and journal.subscribed:
                journal.recall(await self._all(journal))
        finally:
            if journal.written:
                self._gone[journal.row] = None
                self._soon()

    async def flush(self) -> bool:
        """Wait until what was appended is in the file; False where it cannot be written now."""
        while self._writing is not None or self._grown or self._gone:
            writing = self._writing or self._write()
            await asyncio.wait({writing})
            if self._ailing:
                return False
        return not self._closed

    async def aclose(self) -> None:
        """Write what is there and let go of the file. What is appended later stays in memory."""
        if self._loop is not None and not self._closed:
            await self.flush()
            closing = self._in_thread(self._file.close)
            self._let_go()
            await closing

    # -- for its journals --------------------------------------------------------------------------

    def grown(self, journal: SqliteJournal) -> None:
        """There is something to write of it."""
        if journal.wanted and not self._closed:
            self._grown[journal] = None
            self._soon()

    async def page(self, journal: SqliteJournal, after: int) -> Sequence[Event]:
        """The next events of a journal that is in the file; its end is `lost` if they are not."""
        try:
            if self._closed:
                raise ValueError("the file is closed")
            return await self._in_thread(partial(self._file.page, journal.row, after))
        except (sqlite3.Error, ValueError) as error:
            hint = "ask again for a new answer; the file of journals is damaged"
            return (Done("lost", error=StoreFailed(f"{self.path}: {error}", hint=hint)),)

    # -- inside ------------------------------------------------------------------------------------

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        assert self._loop is not None
        return self._loop.run_in_executor(self._thread, work)

    def _let_go(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._thread.shutdown(wait=False)  # what was given to it before is done

    def _restore(self, entry: Entry) -> None:
        kept = entry.kept
        journal = SqliteJournal(kept.id, kept.label, self, entry.row)
        journal.release(entry.head, kept.size)
        self._journals[kept.id] = journal

    async def _all(self, journal: SqliteJournal) -> list[Event]:
        events: list[Event] = []
        while not (events and isinstance(events[-1], Done)):
            events += await self.page(journal, len(events))
        return events

    def _soon(self, delay: float = _GROUP) -> None:
        assert self._loop is not None
        if self._timer is None and self._writing is None and not self._closed:
            self._timer = self._loop.call_later(delay, self._write)

    def _write(self) -> asyncio.Future[Written]:
        """Give the thread all there is to write. One commit at a time: the next one is larger."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        parts = {journal: journal.part() for journal in self._grown}
        gone = tuple(self._gone)
        self._grown.clear()
        self._gone.clear()
        self._writing = self._in_thread(partial(self._file.write, tuple(parts.values()), gone))
        self._writing.add_done_callback(partial(self._wrote, parts, gone))
        return self._writing

    def _wrote(
        self,
        parts: dict[SqliteJournal, Part],
        gone: Sequence[int],
        writing: asyncio.Future[Written],
    ) -> None:
        self._writing = None
        if (error := writing.exception()) is not None:
            self._grown = {j: None for j in parts if j.wanted} | self._grown
            self._gone |= dict.fromkeys(gone)
            self._complain(error)
            self._soon(_PATIENCE)
            return
        if self._ailing:
            self._ailing = False
            logger.info("%s: journals are written again", self.path)
        written = writing.result()
        for journal, part in parts.items():
            self._settle(journal, part, written)
        if self._grown or self._gone:
            self._soon()

    def _settle(self, journal: SqliteJournal, part: Part, written: Written) -> None:
        if (refused := written.refused.get(part.row)) is not None:
            journal.wanted = False
            self._grown.pop(journal, None)
            logger.warning("a journal is kept in memory only: %s", refused)
            return
        journal.written = part.upto
        if not journal.wanted:  # it was deleted in the meantime
            self._gone[part.row] = None
        elif (size := written.sizes.get(part.row)) is not None:
            journal.release(part.upto, size)

    def _complain(self, error: BaseException) -> None:
        """Say once that nothing can be written, until it can be."""
        if not self._ailing:
            hint = _hint(error, self.path)
            logger.warning("%s: journals are kept in memory only: %s (%s)", self.path, error, hint)
        self._ailing = True


def _is_damage(error: BaseException) -> bool:
    """Whether the file is a database, but what is in it cannot be read."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, ValueError) or code == sqlite3.SQLITE_CORRUPT


def _hint(error: BaseException, path: Path) -> str:
    return advice(error, path) if isinstance(error, sqlite3.Error | OSError) else ""
