from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bourn import conversations
from bourn.chat import Chat
from bourn.conversations import Conversations, Entry, new_id
from bourn.errors import InvalidRequest, StoreFailed

TALK = Chat("Be brief.").ask("What is a bourn?").answered("A small stream.", model="smollm2")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "conversations.db"


@pytest.fixture
def kept(path: Path) -> Conversations:
    return Conversations(path)


def test_what_is_saved_is_loaded_back(kept: Conversations, path: Path) -> None:
    kept.save("a", TALK)
    assert Conversations(path).load("a") == TALK


def test_saving_again_replaces(kept: Conversations) -> None:
    kept.save("a", TALK)
    kept.save("a", TALK.ask("And an anabranch?"))
    assert kept.load("a") == TALK.ask("And an anabranch?")
    assert [(entry.id, entry.turns) for entry in kept.list()] == [("a", 2)]


def test_any_text_can_be_saved(kept: Conversations) -> None:
    chat = Chat().ask("\0 \ud800 漢字 '; DROP TABLE conversations").answered("x", model="m\ud800")
    kept.save("'", chat)
    assert kept.load("'") == chat
    assert [entry.model for entry in kept.list()] == ["m?"]


def test_settings_are_kept_with_a_conversation(kept: Conversations, path: Path) -> None:
    kept.save("a", TALK, {"model": "smollm2", "temperature": 0.5})
    assert kept.settings("a") == {"model": "smollm2", "temperature": 0.5}
    kept.save("a", TALK)
    assert kept.settings("a") == kept.settings("unknown") == {}
    write(path, "UPDATE conversations SET settings = '{'")
    with pytest.raises(StoreFailed, match="settings of conversation `a`"):
        kept.settings("a")
    assert kept.load("a") == TALK


def test_an_unknown_id_is_told(kept: Conversations) -> None:
    with pytest.raises(InvalidRequest, match="no conversation `b`"):
        kept.load("b")


def test_each_id_is_new() -> None:
    assert len({new_id() for _ in range(100)}) == 100


# -- whose they are, and what they are called ------------------------------------------------------


def test_each_owner_has_its_own(path: Path) -> None:
    ann, bob, terminal = (Conversations(path, owner) for owner in ("ann", "bob", ""))
    ann.save("a", TALK, {"seed": 7})
    bob.save("b", TALK.ask("And bob's?"))
    assert [entry.id for entry in ann.list()] == ["a"]
    assert [entry.id for entry in bob.search("bourn")] == ["b"]
    assert terminal.list() == terminal.search("bourn") == ()
    assert terminal.last() is None
    for stranger in (bob, terminal, Conversations(path, "an%")):
        with pytest.raises(InvalidRequest, match="no conversation `a`"):
            stranger.load("a")
        with pytest.raises(InvalidRequest, match="no conversation `a`"):
            stranger.save("a", Chat().ask("mine now"))
        with pytest.raises(InvalidRequest, match="no conversation `a`"):
            stranger.rename("a", "mine now")
        with pytest.raises(InvalidRequest, match="no conversation `a`"):
            stranger.entry("a")
        assert stranger.settings("a") == {}
        assert not stranger.delete("a")
    assert ann.load("a") == TALK
    assert ann.settings("a") == {"seed": 7}


def test_a_name_that_was_given_stays(kept: Conversations) -> None:
    kept.save("a", TALK)
    before = kept.entry("a")
    assert before == kept.last()
    kept.rename("a", "  Little\n streams \x07 " + "x" * 100)
    name = kept.entry("a").title
    assert name.startswith("Little streams x")
    assert len(name) <= 60
    kept.rename("a", "Little streams \ud800")
    kept.save("a", TALK.ask("And an anabranch?"))
    assert kept.entry("a").title == kept.list()[0].title == "Little streams"
    assert [entry.id for entry in kept.search("LITTLE bourn")] == ["a"]
    assert kept.load("a").title == "What is a bourn?"
    kept.rename("a", " ")
    assert kept.entry("a").title == "What is a bourn?"
    with pytest.raises(InvalidRequest, match="no conversation `b`"):
        kept.rename("b", "x")


# -- finding ---------------------------------------------------------------------------------------


def test_the_list_begins_with_the_last_changed(kept: Conversations) -> None:
    assert kept.list() == ()
    assert kept.last() is None
    kept.save("a", TALK)
    kept.save("b", Chat().ask("Other?"))
    kept.save("a", TALK)
    first, second = kept.list()
    assert (first.id, second.id) == ("a", "b")
    assert kept.last() == first
    assert kept.list(1) == (first,)
    assert kept.list(None) == (first, second)
    assert first == Entry("a", "What is a bourn?", "smollm2", 1, first.changed)
    assert second.model is None
    assert timedelta(0) <= datetime.now(UTC) - first.changed < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("bourn", ["b", "a"]),
        ("BOURN Stream", ["a"]),
        ('"quoted"\n', ["b"]),
        ("straße", ["b"]),
        ("STRASSE", ["b"]),
        ("漢", ["c"]),
        ("user", []),
        ("messages", []),
        ("", ["c", "b", "a"]),
    ],
)
def test_search_by_what_was_said(kept: Conversations, words: str, found: list[str]) -> None:
    kept.save("a", TALK)
    kept.save("b", Chat().ask('A "quoted" bourn\nin a Straße'))
    kept.save("c", Chat().ask("half \ud800 of 漢字"))
    assert [entry.id for entry in kept.search(words)] == found
    assert len(kept.search(words, 1)) == min(len(found), 1)


def test_what_is_deleted_is_gone_from_the_disk_too(kept: Conversations, path: Path) -> None:
    kept.save("a", Chat().ask("a secret " * 2000))
    kept.save("b", TALK)
    assert kept.delete("a")
    assert not kept.delete("a")
    assert [entry.id for entry in kept.list()] == ["b"]
    assert not any(b"secret" in each.read_bytes() for each in path.parent.iterdir())


# -- the file --------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_nobody_else_can_read_it(kept: Conversations, path: Path) -> None:
    before = os.umask(0)
    try:
        kept.save("a", TALK)
        with closing(sqlite3.connect(path)) as file:
            file.execute("SELECT * FROM conversations").fetchone()
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(modes) == 3, "the file, and what SQLite keeps beside it"
    assert set(modes.values()) == {0o600}


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_folder_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    Conversations(tmp_path / "mine.db").save("a", TALK)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_it_is_in_the_user_s_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    found = Conversations().path
    assert found.name == "conversations.db"
    assert found == conversations.default_path()
    if sys.platform == "linux":
        assert found == tmp_path / "bourn" / "conversations.db"


def test_a_file_that_is_taken_away_is_made_anew(kept: Conversations, path: Path) -> None:
    kept.save("a", TALK)
    path.unlink()
    assert kept.list() == ()
    kept.save("a", TALK)
    assert kept.load("a") == TALK


def test_an_empty_file_is_as_good_as_none(kept: Conversations, path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    kept.save("a", TALK)
    assert kept.load("a") == TALK


def write(path: Path, *statements: str) -> None:
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as file:
        for statement in statements:
            file.execute(statement)
        file.commit()


def refused(kept: Conversations, match: str) -> StoreFailed:
    """Every way to use it says so, and the file is left as it is."""
    before = kept.path.read_bytes()
    for act in (lambda: kept.save("a", TALK), lambda: kept.load("a"), kept.last):
        with pytest.raises(StoreFailed, match=match) as caught:
            act()
        assert caught.value.hint
    assert kept.path.read_bytes() == before
    return caught.value


def test_no_sqlite_file(kept: Conversations, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"my diary\n" * 1000)
    assert "move" in refused(kept, "not a database").hint


def test_another_program_s_file(kept: Conversations, path: Path) -> None:
    write(path, "CREATE TABLE bookmarks (url TEXT)", "PRAGMA user_version = 1")
    refused(kept, "belongs to another program")


def test_a_file_of_a_newer_bourn(kept: Conversations, path: Path) -> None:
    kept.save("a", TALK)
    write(path, "PRAGMA user_version = 99")
    assert "upgrade" in refused(kept, r"newer bourn \(version 99").hint


def test_a_file_of_an_older_bourn_is_brought_up_to_date(kept: Conversations, path: Path) -> None:
    first, *_ = conversations._STEPS
    mark = f"PRAGMA application_id = {conversations._OURS}"
    row = ("a", "What is a bourn?", "smollm2", 1, 5.0, TALK.to_json())
    write(path, *first, mark, "PRAGMA user_version = 1")
    with closing(sqlite3.connect(path)) as file:
        file.execute("INSERT INTO conversations VALUES (?, ?, ?, ?, ?, ?)", row)
        file.commit()
    assert kept.load("a") == TALK
    assert kept.settings("a") == {}
    kept.save("b", TALK, {"seed": 7})
    assert kept.settings("b") == {"seed": 7}
    assert [entry.id for entry in kept.list()] == ["b", "a"]
    assert Conversations(path, "ann").list() == ()


def test_a_damaged_file(kept: Conversations, path: Path) -> None:
    for number in range(50):
        kept.save(str(number), TALK.ask("x" * 2000))
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    assert "move" in refused(kept, "malformed").hint


def test_a_damaged_conversation_is_told_and_the_others_are_there(
    kept: Conversations, path: Path
) -> None:
    kept.save("a", TALK)
    kept.save("b", TALK)
    write(
        path, 'UPDATE conversations SET chat = \'{"messages": 5, "x": "bourn"}\' WHERE id = \'a\''
    )
    with pytest.raises(StoreFailed, match="`a` cannot be read: `messages` is 5"):
        kept.load("a")
    assert kept.load("b") == TALK
    assert [entry.id for entry in kept.list()] == ["b", "a"]
    assert [entry.id for entry in kept.search("bourn")] == ["b"]


def test_a_folder_in_its_place(kept: Conversations, path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StoreFailed) as caught:
        kept.save("a", TALK)
    assert str(path) in str(caught.value)


def test_a_file_where_its_folder_should_be(kept: Conversations, path: Path) -> None:
    path.parent.write_text("in the way")
    with pytest.raises(StoreFailed, match="cannot keep conversations") as caught:
        kept.list()
    assert "name another" in caught.value.hint


def test_a_file_that_is_held_for_too_long(
    kept: Conversations, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "_WAIT", 0.05)
    kept.save("a", TALK)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert kept.load("a") == TALK, "reading goes on"
        with pytest.raises(StoreFailed, match="locked") as caught:
            kept.save("a", TALK)
        assert "try again" in caught.value.hint
    kept.save("a", TALK)


def test_a_full_disk(kept: Conversations, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    kept.save("a", TALK)

    def connect(name: Path, timeout: float, isolation_level: None) -> sqlite3.Connection:
        file = real(name, timeout=timeout, isolation_level=isolation_level)
        file.execute("PRAGMA max_page_count = 1")
        return file

    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(StoreFailed, match="full") as caught:
        kept.save("b", TALK.ask("x" * 100_000))
    assert "room on that disk" in caught.value.hint
    monkeypatch.undo()
    assert kept.load("a") == TALK


# -- many at once ----------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from bourn.chat import Chat
from bourn.conversations import Conversations

kept, own = Conversations(Path(sys.argv[1])), sys.argv[2]
chat = Chat()
for number in range(25):
    chat = chat.ask(f"{own} {number}").answered("x" * 500)
    kept.save(own, chat)
    kept.save("shared", chat)
    assert kept.load(own) == chat
"""


def test_processes_may_write_at_the_same_time(kept: Conversations, path: Path) -> None:
    """All of them begin with no file there."""
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, own], stderr=subprocess.PIPE) for own in "abcd"]
    for writer in writers:
        _, told = writer.communicate(timeout=18)
        assert (writer.returncode, told) == (0, b"")
    assert {entry.id: entry.turns for entry in kept.list()} == dict.fromkeys(
        [*"abcd", "shared"], 25
    )
    assert len(kept.load("shared").turns) == 25


def test_threads_may_use_one_at_the_same_time(kept: Conversations) -> None:
    """All of them begin with no file there."""

    def work(own: str) -> Chat:
        chat = Chat()
        for number in range(15):
            chat = chat.ask(str(number))
            kept.save(own, chat)
            assert kept.load(own) == chat
            assert kept.last() is not None
        return chat

    with ThreadPoolExecutor(4) as threads:
        chats = list(threads.map(work, "abcd"))
    assert [kept.load(own) for own in "abcd"] == chats
