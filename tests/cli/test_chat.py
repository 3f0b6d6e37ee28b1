"""`bourn chat` through pipes: what goes where, and the exit status."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bourn.cli.app import app_for
from bourn.conversations import Conversations

FOX = "The quick brown fox"
COUNT = "scripted:" + " ".join(f"w{number}" for number in range(50))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the folders are those of Linux")


class Done(NamedTuple):
    status: int
    out: bytes
    err: bytes


Chat = Callable[..., Done]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, and nothing of whoever runs the tests."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "XDG_DATA_HOME", "XDG_STATE_HOME", "VISUAL"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith("BOURN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def chat(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Iterator[Chat]:
    """The command, in this process: a new one takes half a second to start."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def run(*arguments: str, stdin: str | bytes = b"") -> Done:
        typed = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
        with pytest.raises(SystemExit) as left:
            app_for(["chat"])(["chat", *arguments])
        return Done(int(left.value.code or 0), *capfdbinary.readouterr())

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_as_a_process_of_its_own(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bourn", "chat", f"scripted:{FOX}", "--quiet"],
        input=b"hi\n:quit\nnever\n",
        capture_output=True,
        timeout=15,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{FOX}\n".encode(), b"")


def kept_in(home: Path) -> Conversations:
    return Conversations(home / ".local/share/bourn/conversations.db")


# -- what goes where -------------------------------------------------------------------------------


def test_a_line_a_turn_answers_alone_on_stdout(chat: Chat) -> None:
    done = chat(f"scripted:{FOX}", "--quiet", stdin="hello\nagain\n:quit\nnever\n")
    assert (done.status, done.err) == (0, b"")
    assert done.out.decode() == f"{FOX}\n{FOX}\n"


def test_what_is_no_answer_is_on_stderr_without_escape_codes(chat: Chat) -> None:
    typed = "hi\n\n:help\n:clear\n:history\n:nonsense\n:stats\n"
    done = chat(f"scripted:{FOX}", stdin=typed)
    told = done.err.decode()
    assert done.out.decode() == f"{FOX}\n"
    for words in ("4 tokens", "Nothing was typed", "show these lines", "## You", ":nonsense"):
        assert words in told
    assert b"\x1b" not in done.out + done.err


def test_markdown_is_left_as_it_is(chat: Chat) -> None:
    done = chat("scripted:# A **title**\n", "--quiet", stdin="hi\n")
    assert done.out == b"# A **title**\n"


def test_the_first_question_may_be_given(chat: Chat) -> None:
    done = chat(f"scripted:{FOX}", "--first", "/hello")
    assert (done.status, done.out.decode()) == (0, f"{FOX}\n")
    assert b"> /hello" in done.err
    assert b"4 tokens" in done.err


def test_several_lines_are_one_question(chat: Chat, home: Path) -> None:
    typed = '"""\none\n\n  two\n"""\n:multi-line\n:help\n"""\n """quoted\n:save said.json\n'
    folder = home / "here"
    folder.mkdir()
    done = chat("scripted:yes", "--quiet", stdin=typed.replace("said", f"{folder}/said"))
    assert done.out == b"yes\n" * 3
    messages = json.loads((folder / "said.json").read_text())["messages"]
    assert [each["content"] for each in messages][::2] == ["one\n\n  two", ":help", ' """quoted']


def test_broken_utf8_is_replaced_and_told(chat: Chat) -> None:
    done = chat("scripted:yes", "--quiet", stdin=b"caf\xe9\n")
    assert (done.status, done.out) == (0, b"yes\n")
    assert b"not all UTF-8" in done.err


def test_without_an_editor_edit_takes_the_text(chat: Chat) -> None:
    typed = "one\n:edit\n:edit two\n:history\n"
    done = chat("scripted:yes", "--quiet", stdin=typed)
    assert b"say :edit TEXT" in done.err
    assert b"## You\n\ntwo" in done.err
    assert b"## You\n\none" not in done.err


def test_copy_needs_a_clipboard(chat: Chat) -> None:
    done = chat("scripted:yes", "--quiet", stdin="one\n:copy\n")
    assert b"there is no clipboard here" in done.err


# -- failures --------------------------------------------------------------------------------------


def test_a_failed_answer_is_told_the_chat_goes_on_and_the_exit_status_tells(chat: Chat) -> None:
    done = chat(f"scripted:{FOX}?fail_at=1", stdin="hello\n:retry\n")
    assert done.out == b"The \nThe \n"
    assert done.err.count(b"fail here") == 2
    assert done.status == 1


def test_a_question_that_failed_can_be_asked_again(chat: Chat) -> None:
    done = chat("scripted:no?fail_at=0", stdin="hello\n:model scripted:yes\n:retry\n")
    assert b":retry asks it again" in done.err
    assert done.out == b"yes\n"


def test_a_wrong_command_is_told_and_not_sent(chat: Chat) -> None:
    done = chat("scripted:yes", "--quiet", stdin="/etc/hosts is what?\n /etc/hosts?\n")
    assert (done.status, done.out) == (0, b"yes\n")
    assert b"there is no command /etc/hosts" in done.err


@pytest.mark.parametrize("arguments", [("--temperature", "-1"), ("--reasoning", "loud"), ("-c",)])
def test_wrong_use_exits_with_2(arguments: tuple[str, ...], chat: Chat) -> None:
    done = chat("scripted:yes", *arguments, stdin="hi\n")
    assert (done.status, done.out) == (2, b"")
    assert done.err


def test_an_unknown_model_exits_with_1(chat: Chat) -> None:
    done = chat("smolm2", stdin="hi\n")
    assert done.status == 1
    assert b"smollm2" in done.err


def test_a_limit_that_cuts_an_answer_is_told_and_can_be_gone_on_from(chat: Chat) -> None:
    done = chat(COUNT, "--max-new-tokens", "2", stdin="hi\n:continue\n:history\n")
    assert done.out == b"w0 w1 \nw0 w1 \n"
    assert done.err.count(b"cut by the limit") == 2
    assert b"w0 w1 w0 w1 " in done.err


# -- kept ------------------------------------------------------------------------------------------


def test_conversations_are_kept_listed_and_gone_on_with(chat: Chat, home: Path) -> None:
    assert b"no conversation is kept" in chat("--list").err
    chat("scripted:one", "-s", "Be brief.", "--seed", "7", stdin="First thing\n")
    chat("scripted:two", stdin="Second thing\nand more\n")
    listed = chat("--list").out.decode().splitlines()
    assert [line.split()[3] for line in listed] == ["2", "1"]
    assert listed[0].endswith("Second thing")
    first = listed[1].split()[0]

    done = chat("-c", "--quiet", stdin="third\n:history\n")
    assert done.out == b"two\n", "the model is that of the conversation"
    assert "going on with “Second thing”, 2 turns".encode() in done.err

    done = chat("--conversation", first, stdin="again\n:system\n:conf seed\n")
    assert done.out == b"one\n"
    assert b"system: Be brief." in done.err
    assert b"seed = 7" in done.err
    assert kept_in(home).list()[0].id == first
    assert len(kept_in(home).load(first).turns) == 2


def test_flags_go_before_what_is_kept(chat: Chat) -> None:
    chat("scripted:one", "-s", "Be brief.", "--seed", "7", stdin="hi\n")
    done = chat(
        *("scripted:two", "-c", "--seed", "8", "-s", "Be kind."),
        stdin="more\n:system\n:conf seed\n",
    )
    assert done.out == b"two\n"
    assert b"system: Be kind." in done.err
    assert b"seed = 8" in done.err


def test_keeping_can_be_switched_off(
    chat: Chat, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat("scripted:one", stdin="hi\n")
    chat("scripted:one", "--no-keep", "-c", stdin="secret\n")
    monkeypatch.setenv("BOURN_KEEP", "0")
    chat("scripted:one", stdin="secret\n")
    assert [(entry.title, entry.turns) for entry in kept_in(home).list()] == [("hi", 1)]
    files = [path for path in home.rglob("*") if path.is_file()]
    assert all(b"secret" not in path.read_bytes() for path in files)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_store_that_cannot_be_written_does_not_end_the_talk(chat: Chat, home: Path) -> None:
    folder = home / ".local/share/bourn"
    folder.mkdir(parents=True)
    (folder / "conversations.db").write_text("no database, but 100 bytes long " * 4)
    done = chat("scripted:yes", "--quiet", stdin="one\ntwo\n")
    assert (done.status, done.out) == (0, b"yes\nyes\n")
    assert done.err.count(b"conversations are not kept from here on") == 1
