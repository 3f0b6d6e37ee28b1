"""A foreign program on a leash: it ends when we do, and we end as it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bourn.engines.leash import leashed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")


def leash(text: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        leashed([sys.executable, "-I", "-S", "-c", text, *arguments]),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        os.kill(pid, 0)
        return not stat.exists() or stat.read_text().split(") ")[1][0] != "Z"
    except (ProcessLookupError, FileNotFoundError):  # it may end at any moment
        return False


@pytest.mark.parametrize("gentle", [True, False])
def test_closing_the_pipe_ends_the_program(tmp_path: Path, gentle: bool) -> None:
    note = tmp_path / "pid"
    deaf = "" if gentle else "signal.signal(15, signal.SIG_IGN);"
    text = (
        f"import os, signal, sys, time; {deaf}"
        "open(sys.argv[1] + '.new', 'w').write(str(os.getpid()));"
        "os.rename(sys.argv[1] + '.new', sys.argv[1]); time.sleep(60)"
    )
    with leash(text, str(note)) as held:
        while not note.exists():
            time.sleep(0.01)
        pid = int(note.read_text())
        assert running(pid)
        assert held.stdin is not None
        held.stdin.close()
        held.wait()
    assert not running(pid)


@pytest.mark.parametrize(
    ("text", "returncode"),
    [
        ("import sys; sys.exit(7)", 7),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
    ],
)
def test_it_ends_as_the_program_ends(text: str, returncode: int) -> None:
    with leash(text) as held:
        assert held.wait() == returncode


def test_its_words_come_through_and_its_stdin_is_empty() -> None:
    with leash("import sys; sys.exit('read ' + repr(sys.stdin.read()))") as held:
        assert held.stderr is not None
        assert held.stderr.read() == b"read ''\n"


def test_no_such_program() -> None:
    command = leashed(["/nowhere/llama-server"])
    done = subprocess.run(command, stdin=subprocess.PIPE, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"/nowhere/llama-server cannot be run" in done.stderr
