from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from bourn.databases import Layout, advice, bring_up_to_date, make, version
from bourn.errors import StoreFailed

FIRST = Layout(77, (("CREATE TABLE plants (name TEXT)",),))
SECOND = FIRST._replace(steps=(*FIRST.steps, ("ALTER TABLE plants ADD COLUMN height REAL",)))


def opened(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None))


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_it_is_made_for_its_user_only_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "new" / "plants.db"
    before = os.umask(0)
    try:
        make(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o640)
    path.write_text("mine")
    make(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.read_text() == "mine"


def test_each_step_is_done_once(tmp_path: Path) -> None:
    with opened(tmp_path / "plants.db") as file:
        for layout in (FIRST, FIRST, SECOND, SECOND):
            bring_up_to_date(file, tmp_path, layout)
            assert version(file, tmp_path, layout) == len(layout.steps)
        file.execute("INSERT INTO plants VALUES ('oak', 20)")


def test_a_step_that_fails_leaves_nothing_half_done(tmp_path: Path) -> None:
    broken = SECOND._replace(steps=(*SECOND.steps, ("CREATE TABLE plants (name TEXT)",)))
    with opened(tmp_path / "plants.db") as file, pytest.raises(sqlite3.Error):
        bring_up_to_date(file, tmp_path, broken)
    with opened(tmp_path / "plants.db") as file:
        assert version(file, tmp_path, broken) == 0
        assert file.execute("SELECT * FROM sqlite_master").fetchall() == []


def test_what_is_not_ours_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "plants.db") as file:
        bring_up_to_date(file, tmp_path, SECOND)
        with pytest.raises(StoreFailed, match="newer bourn") as caught:
            bring_up_to_date(file, tmp_path, FIRST)
        assert caught.value.hint
        with pytest.raises(StoreFailed, match="another program") as caught:
            bring_up_to_date(file, tmp_path, SECOND._replace(application_id=78))
        assert caught.value.hint


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (sqlite3.SQLITE_CORRUPT, "move x.db away"),
        (sqlite3.SQLITE_BUSY, "try again"),
        (sqlite3.SQLITE_FULL, "make room"),
        (sqlite3.SQLITE_READONLY, "writable"),
    ],
)
def test_there_is_advice_for_each_failure(code: int, said: str) -> None:
    error = sqlite3.OperationalError("failed")
    error.sqlite_errorcode = code
    assert said in advice(error, Path("x.db"))
