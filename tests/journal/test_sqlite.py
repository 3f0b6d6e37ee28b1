from __future__ import annotations

import asyncio
import gc
import logging
import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bourn.errors import BournError, EngineCrashed, Interrupted, QueueFull, StoreFailed
from bourn.journal import file as journal_file
from bourn.journal import sqlite as journal_sqlite
from bourn.journal.base import Journal, Kept, Label
from bourn.journal.shelf import Limits, Shelf
from bourn.journal.sqlite import SqliteJournals
from bourn.types import Delta, Done, Event, Finished, FinishReason, State, Usage

DURABLE = Label("ann", key="k", created=5.0, durable=True)
A, B, END = Delta("a", tokens=1), Delta("b", tokens=1), Done("complete", Usage(3, 2))
FINISHED = Finished(FinishReason.STOP)
LONG: list[Event] = [*(Delta(f"{n} ", tokens=1) for n in range(600)), END]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "journals.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteJournals]:
    store = SqliteJournals(path)
    assert await store.start() == []
    yield store
    await store.aclose()


async def opened(path: Path) -> tuple[SqliteJournals, list[Kept]]:
    store = SqliteJournals(path)
    return store, await store.start()


async def read(journal: Journal | None, after: int = 0) -> list[Event]:
    assert journal is not None
    events: list[Event] = []
    while page := await journal.read(after + len(events)):
        events += page
        if isinstance(events[-1], Done):
            break
    return events


def bytes_of(path: Path) -> bytes:
    return path.read_bytes()


def size_of(path: Path) -> int:
    return path.stat().st_size


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def lost(event: Event) -> BournError:
    assert isinstance(event, Done)
    assert event.state == "lost"
    assert isinstance(event.error, BournError)
    return event.error


# -- another run -----------------------------------------------------------------------------------


async def test_what_ended_is_read_again_after_a_restart(store: SqliteJournals, path: Path) -> None:
    before = time.time()
    await store.create("x", DURABLE).append(A, B, FINISHED, END)
    await store.aclose()
    again, kept = await opened(path)
    (told,) = kept
    assert (told.id, told.label, told.state) == ("x", DURABLE, "complete")
    assert told.reasons == (FinishReason.STOP,)
    assert before <= told.finished <= time.time()
    journal = again.open("x")
    assert journal is not None
    assert journal.label == DURABLE
    assert journal.size == told.size > 0
    assert await read(journal) == [A, B, FINISHED, END]
    assert await read(journal, 2) == [FINISHED, END]
    assert await journal.read(4) == ()
    await again.aclose()


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("failed", EngineCrashed("it died", last_words=("no memory",), hint="a smaller one")),
        ("failed", QueueFull("too many", retry_after=2.5)),
        ("blocked", None),
        ("cancelled", None),
    ],
)
async def test_each_end_is_the_same_after_a_restart(
    store: SqliteJournals, path: Path, state: State, error: BournError | None
) -> None:
    await store.create("x", DURABLE).append(A, Done(state, Usage(1, 1), error=error))
    await store.aclose()
    again, kept = await opened(path)
    assert [each.state for each in kept] == [state]
    done = (await read(again.open("x")))[-1]
    assert isinstance(done, Done)
    assert (done.state, done.usage) == (state, Usage(1, 1))
    assert type(done.error) is type(error)
    if error is not None:
        assert vars(done.error) == vars(error)
    await again.aclose()


async def test_what_was_live_is_lost_and_its_text_is_kept(
    store: SqliteJournals, path: Path
) -> None:
    await store.create("x", DURABLE).append(A, B)
    await store.aclose()
    for _ in range(2):  # and stays as it was found
        again, (kept,) = await opened(path)
        assert (kept.id, kept.state, kept.reasons) == ("x", "lost", ())
        *text, end = await read(again.open("x"))
        assert text == [A, B]
        error = lost(end)
        assert isinstance(error, Interrupted)
        assert error.hint
        await again.aclose()


async def test_they_are_told_in_the_order_in_which_they_ended(
    store: SqliteJournals, path: Path
) -> None:
    for name in "abc":
        await store.create(name, DURABLE).append(A)
    for name in "cab":
        journal = store.open(name)
        assert journal is not None
        await journal.append(END)
        await store.flush()
    await store.aclose()
    again, kept = await opened(path)
    assert [each.id for each in kept] == ["c", "a", "b"]
    await again.create("d", DURABLE).append(B, END)
    await again.flush()
    assert await read(again.open("c")) == [A, END], "no row is taken twice"
    await again.aclose()


# -- what is written, and when ---------------------------------------------------------------------


async def test_only_durable_ones_are_written(store: SqliteJournals, path: Path) -> None:
    passing = store.create("passing")
    await passing.append(Delta("a secret"), END)
    await store.create("x", DURABLE).append(A, END)
    await store.aclose()
    assert await read(passing) == [Delta("a secret"), END]
    assert not any(b"secret" in each.read_bytes() for each in path.parent.iterdir())
    again, kept = await opened(path)
    assert [each.id for each in kept] == ["x"]
    await again.aclose()


async def test_it_is_written_by_itself_soon(store: SqliteJournals) -> None:
    journal = store.create("x", DURABLE)
    await journal.append(*LONG)
    while journal._events:
        await asyncio.sleep(0.01)
    assert await read(journal) == LONG, "from the file"


async def test_what_comes_while_it_writes_is_written_next(store: SqliteJournals) -> None:
    journal = store.create("x", DURABLE)
    await journal.append(A)
    store._write()
    await journal.append(B, END)
    while journal._events:
        await asyncio.sleep(0.01)
    assert await read(journal) == [A, B, END]


async def test_what_comes_together_is_written_together(store: SqliteJournals) -> None:
    commits: list[str] = []
    store._thread.submit(
        lambda: store._file._file.set_trace_callback(
            lambda told: commits.append(told) if told == "COMMIT" else None
        )
    ).result()
    for name in "abcdefgh":
        journal = store.create(name, DURABLE)
        for _ in range(20):
            await journal.append(A)
    await store.flush()
    assert len(commits) == 1


async def test_writing_the_same_again_does_no_harm(store: SqliteJournals) -> None:
    journal = store.create("x", DURABLE)
    await journal.append(A)
    await store.flush()
    assert isinstance(journal, journal_sqlite.SqliteJournal)
    journal.written = 0
    await journal.append(B, END)
    assert await store.flush()
    assert await read(journal) == [A, B, END]


async def test_one_deleted_before_it_was_written_never_is(
    store: SqliteJournals, path: Path
) -> None:
    await store.create("x", DURABLE).append(Delta("a secret"))
    await store.delete("x")
    assert await store.flush()
    assert not any(b"secret" in each.read_bytes() for each in path.parent.iterdir())


async def test_one_deleted_while_it_is_written_is_gone(store: SqliteJournals, path: Path) -> None:
    await store.create("x", DURABLE).append(A, END)
    writing = store._write()
    await store.delete("x")
    await writing
    await store.aclose()
    again, kept = await opened(path)
    assert kept == []
    await again.aclose()


async def test_what_is_deleted_is_gone_from_the_disk_too(store: SqliteJournals, path: Path) -> None:
    await store.create("x", DURABLE).append(Delta("a secret " * 2000), END)
    await store.create("y", DURABLE).append(A, END)
    await store.flush()
    await store.delete("x")
    await store.aclose()
    assert not any(b"secret" in each.read_bytes() for each in path.parent.iterdir())
    again, kept = await opened(path)
    assert [each.id for each in kept] == ["y"]
    await again.aclose()


@pytest.mark.parametrize(
    "odd",
    [Delta(b"bytes"), Done("failed", None), "no event"],  # type: ignore[arg-type]
    ids=str,
)
async def test_one_that_cannot_be_written_holds_up_no_other(
    store: SqliteJournals, caplog: pytest.LogCaptureFixture, odd: Event
) -> None:
    broken, whole = store.create("x", DURABLE), store.create("y", DURABLE)
    await broken.append(A, odd)
    await whole.append(A, END)
    assert await store.flush()
    if not broken.ended:
        await broken.append(B)
        assert await store.flush(), "it is not tried again"
    assert (await read(broken))[:2] == [A, odd]
    assert await read(whole) == [A, END]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    await store.delete("x")
    assert await store.flush()


async def test_durable_ones_want_an_open_file(path: Path) -> None:
    with pytest.raises(StoreFailed, match="is not open"):
        SqliteJournals(path).create("x", DURABLE)


async def test_after_the_end_it_goes_on_in_memory(store: SqliteJournals, path: Path) -> None:
    journal, ended = store.create("x", DURABLE), store.create("y", DURABLE)
    await ended.append(A, END)
    await journal.append(A)
    await store.aclose()
    await store.aclose()
    await journal.append(B, END)
    assert not await store.flush()
    assert await read(journal) == [A, B, END]
    assert isinstance(lost((await read(ended))[-1]), StoreFailed)
    await store.create("z", DURABLE).append(A)
    await store.delete("z")
    await store.delete("y")


async def test_ten_thousand_come_and_go(store: SqliteJournals, path: Path) -> None:
    shelf = Shelf(Limits(count=200, owner_count=200))
    largest = 0
    for number in range(10_000):
        journal = store.create(f"{number}", DURABLE)
        await journal.append(A, END)
        for going in shelf.add(Kept(journal.id, DURABLE, "complete", journal.size, 0.0)):
            await store.delete(going)
        if number % 100 == 0:
            await store.flush()
            largest = max(largest, *(each.stat().st_size for each in path.parent.iterdir()))
    await store.flush()
    assert largest < 8 * 2**20
    assert size_of(path) < 2**20
    assert len(store._journals) == 200
    alive = sum(issubclass(type(each), journal_sqlite.SqliteJournal) for each in gc.get_objects())
    assert alive < 250


async def test_the_file_grows_smaller_again(store: SqliteJournals, path: Path) -> None:
    names = [str(number) for number in range(40)]
    for name in names:
        await store.create(name, DURABLE).append(Delta("x" * 400_000), END)
    await store.flush()
    for name in names:
        await store.delete(name)
        await store.flush()
    await store.aclose()
    assert size_of(path) < 8 * 2**20


# -- a process that dies ---------------------------------------------------------------------------

WRITER = """
import asyncio, sys
from pathlib import Path
from bourn.journal.base import Label
from bourn.journal.sqlite import SqliteJournals
from bourn.types import Delta, Done

async def main():
    store = SqliteJournals(Path(sys.argv[1]))
    await store.start()
    await store.create("ended", Label(durable=True)).append(Delta("a"), Done("complete"))
    journal = store.create("live", Label(durable=True))
    for number in range(1_000_000):
        await journal.append(Delta(f"{number} ", tokens=1))
        print(journal.written, flush=True)
        await asyncio.sleep(0.001)

asyncio.run(main())
"""


@pytest.fixture
def writer(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


async def test_a_killed_process_loses_at_most_its_last_commit(
    writer: subprocess.Popen[bytes], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert writer.stdout is not None
    while int(writer.stdout.readline()) < 100:
        pass
    with monkeypatch.context() as patch:
        patch.setattr(journal_file, "_WAIT", 0.05)
        with pytest.raises(StoreFailed, match="used by another process") as caught:
            await opened(path)
    assert caught.value.hint
    writer.kill()
    written = int(writer.communicate()[0].split()[-1])
    store, kept = await opened(path)
    assert {each.id: each.state for each in kept} == {"ended": "complete", "live": "lost"}
    assert await read(store.open("ended")) == [Delta("a"), Done("complete")]
    *text, end = await read(store.open("live"))
    assert len(text) >= written
    assert text == [Delta(f"{number} ", tokens=1) for number in range(len(text))]
    lost(end)
    await store.aclose()


async def test_one_file_is_for_one_store(
    store: SqliteJournals, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "_WAIT", 0.05)
    with pytest.raises(StoreFailed, match="used by another process"):
        await opened(path)
    await store.create("x", DURABLE).append(A, END)
    assert await store.flush(), "the first goes on"


# -- the file --------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
async def test_nobody_else_can_read_it(path: Path) -> None:
    before = os.umask(0)
    try:
        store, _ = await opened(path)
        await store.create("x", DURABLE).append(A)
        await store.flush()
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert modes == {"journals.db": 0o600, "journals.db-wal": 0o600}
    await store.aclose()


def write(path: Path, *statements: str) -> None:
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as file:
        for statement in statements:
            file.execute(statement)
        file.commit()


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("CREATE TABLE bookmarks (url TEXT)", "belongs to another program"),
        (
            f"PRAGMA application_id = {journal_file.LAYOUT.application_id}",
            r"newer bourn \(version 99",
        ),
    ],
)
async def test_a_file_that_is_not_ours_is_refused(path: Path, statement: str, told: str) -> None:
    write(path, statement, "PRAGMA user_version = 99")
    before = bytes_of(path)
    with pytest.raises(StoreFailed, match=told) as caught:
        await opened(path)
    assert caught.value.hint
    assert bytes_of(path) == before


async def goes_on_in_memory(path: Path, caplog: pytest.LogCaptureFixture) -> str:
    """All works but that nothing is kept; what the log says of it."""
    store, kept = await opened(path)
    assert kept == []
    for name in "ab":
        journal = store.create(name, DURABLE)
        await journal.append(*LONG)
        assert not await store.flush()
        assert await read(store.open(name)) == LONG
        await store.delete(name)
        assert store.open(name) is None
    await store.aclose()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    return record.getMessage()


async def cannot_be_used(path: Path) -> str:
    """What to do about it, as it is told."""
    with pytest.raises(StoreFailed, match="cannot be used") as caught:
        await opened(path)
    assert str(path) in str(caught.value)
    assert "name another file" in caught.value.hint
    return caught.value.hint


async def test_a_file_that_is_no_database(path: Path) -> None:
    put(path, b"my diary\n" * 1000)
    assert "move" in await cannot_be_used(path)
    assert bytes_of(path) == b"my diary\n" * 1000


async def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    assert "writable" in await cannot_be_used(tmp_path / "data" / "journals.db")


async def test_a_folder_in_its_place(path: Path) -> None:
    put(path / "a file in it", b"")
    assert "writable" in await cannot_be_used(path)


@pytest.mark.skipif(sys.platform == "win32", reason="has another one")
async def test_the_null_device() -> None:
    await cannot_be_used(Path("/dev/null"))


async def test_an_end_that_was_only_assumed_is_no_reason(store: SqliteJournals, path: Path) -> None:
    assumed = Finished(FinishReason.STOP, assumed=True)
    await store.create("told", DURABLE).append(A, FINISHED, END)
    await store.create("assumed", DURABLE).append(A, FINISHED, assumed, END)
    await store.aclose()
    again, kept = await opened(path)
    assert {each.id: each.reasons for each in kept} == {
        "told": (FinishReason.STOP,),
        "assumed": (),
    }
    assert await read(again.open("assumed")) == [A, FINISHED, assumed, END]
    await again.aclose()


async def test_a_damaged_list(
    store: SqliteJournals, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(50):
        await store.create(str(number), DURABLE).append(*LONG)
    await store.aclose()
    whole = bytes_of(path)
    put(path, whole[:4096] + b"\xa5" * (len(whole) - 4096))
    assert "move" in await goes_on_in_memory(path, caplog)


async def test_damaged_events_end_as_lost(store: SqliteJournals, path: Path) -> None:
    await store.create("x", DURABLE).append(*LONG)
    await store.create("y", DURABLE).append(*LONG)
    await store.create("z", DURABLE).append(*LONG)
    await store.aclose()
    write(
        path,
        "UPDATE events SET event = '[' WHERE row = 1 AND number = 400",
        "DELETE FROM events WHERE row = 2 AND number = 400",
    )
    again, kept = await opened(path)
    assert len(kept) == 3
    for name in "xy":
        *text, end = await read(again.open(name))
        assert text == LONG[: len(text)]
        assert len(text) >= 256
        assert isinstance(lost(end), StoreFailed)
    assert await read(again.open("z")) == LONG
    journal = again.open("x")
    assert journal is not None
    journal.subscribe(lambda: None)
    await again.delete("x")
    lost((await read(journal))[-1])
    await again.aclose()


# -- a disk that fails -----------------------------------------------------------------------------


def tell(store: SqliteJournals, statement: str) -> None:
    """Something to the open file, from its own thread."""
    store._thread.submit(lambda: store._file._file.execute(statement).fetchall()).result()


@pytest.mark.parametrize(
    ("fails", "works", "told"),
    [
        ("PRAGMA max_page_count = 1", "PRAGMA max_page_count = 100000", "make room"),
        ("PRAGMA query_only = ON", "PRAGMA query_only = OFF", "writable"),
    ],
    ids=["full", "read-only"],
)
async def test_a_generation_goes_on_when_the_disk_fails(
    store: SqliteJournals,
    path: Path,
    caplog: pytest.LogCaptureFixture,
    fails: str,
    works: str,
    told: str,
) -> None:
    caplog.set_level(logging.INFO)
    begun, deleted = store.create("begun", DURABLE), store.create("deleted", DURABLE)
    await begun.append(A)
    await deleted.append(A, END)
    assert await store.flush()
    tell(store, fails)
    await begun.append(*LONG)
    other = store.create("other", DURABLE)
    await other.append(B)
    for _ in range(3):
        assert not await store.flush()
    await store.delete("deleted")
    await other.append(END)
    assert not await store.flush()
    assert await read(begun) == [A, *LONG]
    assert await read(other) == [B, END]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert told in record.getMessage()

    tell(store, works)
    assert await store.flush(), "and nothing of it is missing"
    assert [each.levelno for each in caplog.records] == [logging.WARNING, logging.INFO]
    await store.aclose()
    again, kept = await opened(path)
    assert {each.id for each in kept} == {"begun", "other"}
    assert await read(again.open("begun")) == [A, *LONG]
    await again.aclose()


async def test_it_is_tried_again_by_itself(
    store: SqliteJournals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_sqlite, "_PATIENCE", 0.01)
    tell(store, "PRAGMA query_only = ON")
    journal = store.create("x", DURABLE)
    await journal.append(A, END)
    assert not await store.flush()
    tell(store, "PRAGMA query_only = OFF")
    while journal._events:
        await asyncio.sleep(0.01)
    assert await read(journal) == [A, END]


async def test_what_is_gone_meanwhile_is_not_held_for_the_disk(store: SqliteJournals) -> None:
    tell(store, "PRAGMA query_only = ON")
    for number in range(20):
        await store.create(str(number), DURABLE).append(A, END)
        assert not await store.flush()
        await store.delete(str(number))
    await store.create("x", DURABLE).append(A, END)
    writing = store._write()
    await store.delete("x")
    await asyncio.wait({writing})
    assert not store._grown
    assert not store._gone
    tell(store, "PRAGMA query_only = OFF")
