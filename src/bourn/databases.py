"""SQLite files of bourn's own: how one is made, told from any other, and brought up to date.

A file that is another program's, or a newer bourn's, is refused and left as it is. Knows nothing of
what a file holds.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bourn.errors import StoreFailed


class Layout(NamedTuple):
    """What tells a kind of file from any other, and the statements that make it.

    steps: what makes each version of it from the one before. Only ever appended to.
    """

    application_id: int
    steps: tuple[tuple[str, ...], ...]


_making = threading.Lock()


def make(path: Path) -> None:
    """The folder and the file, for the user only; those that are there stay as they are."""
    # SQLite's locks on a file are lost when any other handle of this process to it is closed: so
    # it is not opened here once it is there, nor used by another thread before this is closed
    with _making:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another process was first
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def bring_up_to_date(file: sqlite3.Connection, path: Path, layout: Layout) -> None:
    """Do the steps that were not done yet, all or none. In autocommit mode. It gets a WAL then.

    Raises:
        StoreFailed: the file is another program's, or a newer bourn's.
    """
    file.execute("BEGIN")  # so that what is asked of the file is of one moment
    try:
        done = version(file, path, layout)
    finally:
        file.execute("ROLLBACK")
    if done == len(layout.steps):
        return
    with suppress(sqlite3.OperationalError):  # busy, without waiting: another process does it
        file.execute("PRAGMA journal_mode = WAL")
    file.execute("BEGIN IMMEDIATE")
    for step in layout.steps[version(file, path, layout) :]:  # another process may have been first
        for statement in step:
            file.execute(statement)
    file.execute(f"PRAGMA application_id = {layout.application_id}")
    file.execute(f"PRAGMA user_version = {len(layout.steps)}")
    file.execute("COMMIT")


def version(file: sqlite3.Connection, path: Path, layout: Layout) -> int:
    """How many steps were done in the file. An empty one is as good as ours.

    Raises:
        StoreFailed: it is another program's, or a newer bourn's.
    """
    ours = file.execute("PRAGMA application_id").fetchone()[0] == layout.application_id
    done: int = file.execute("PRAGMA user_version").fetchone()[0]
    if not ours and file.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise StoreFailed(f"{path} belongs to another program", hint="name another file")
    if done > len(layout.steps):
        raise StoreFailed(
            f"{path} was written by a newer bourn (version {done} of the file, this bourn knows "
            f"{len(layout.steps)})",
            hint="upgrade bourn, or name another file",
        )
    return done


def advice(error: sqlite3.Error | OSError, path: Path) -> str:
    """What to do about it."""
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
