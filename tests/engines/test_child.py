"""The supervisor, with children that are tiny Python programs."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bourn.engines.child import Child
from bourn.engines.life import in_words
from bourn.errors import LoadFailed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sessions and signals")

UNTIL_EOF = "import sys; sys.stdin.read()"
DEAF = (
    "import signal, sys, time; signal.signal(15, signal.SIG_IGN);"
    "print('deaf', file=sys.stderr, flush=True); time.sleep(60)"
)


def program(text: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", text, *arguments]


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        os.kill(pid, 0)
        return not stat.exists() or stat.read_text().split(") ")[1][0] != "Z"
    except (ProcessLookupError, FileNotFoundError):  # it may end at any moment
        return False


def eventually(fact: Callable[[], object], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if fact():
            return True
        time.sleep(0.01)
    return False


async def yes() -> bool:
    return True


async def no() -> bool:
    return False


@pytest.fixture
def ended() -> Iterator[list[Child]]:
    """Children to be ended after the test, however it goes."""
    children: list[Child] = []
    yield children
    for child in children:
        child.terminate()


def test_feed_and_last_words(ended: list[Child]) -> None:
    child = Child(
        program("import sys; sys.stderr.write('heard ' + sys.stdin.readline()); sys.exit(3)"),
        name="echo",
        feed=b"secret\n",
    )
    ended.append(child)
    life = child.spawn()
    assert eventually(lambda: life.dead)
    assert life.last_words == ("heard secret",)
    assert life.exit_text == "echo ended with exit code 3"
    assert not child.alive


def test_last_words_are_bounded(ended: list[Child]) -> None:
    text = "import sys\nfor i in range(1000): print(i, 'x' * 5000, file=sys.stderr)"
    child = Child(program(text))
    ended.append(child)
    life = child.spawn()
    assert eventually(lambda: life.dead)
    assert [line.split()[0] for line in life.last_words] == [str(i) for i in range(960, 1000)]
    assert max(map(len, life.last_words)) <= 1000


def test_end_is_quick_when_the_child_reads_its_stdin(ended: list[Child]) -> None:
    child = Child(program(UNTIL_EOF))
    life = child.spawn()
    child.terminate()
    assert life.dead
    assert life.returncode == 0
    child.terminate()


def test_a_deaf_child_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bourn.engines.life.PATIENCE", 0.2)
    monkeypatch.setattr("bourn.engines.life.INSISTENCE", 0.2)
    child = Child(program(DEAF))
    life = child.spawn()
    assert eventually(lambda: life.last_words)  # it is deaf
    child.terminate()
    assert eventually(lambda: life.dead)
    assert life.returncode == -signal.SIGKILL


def test_what_the_child_started_goes_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    text = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "open(sys.argv[1], 'w').write(str(p.pid))"
    )
    child = Child(program(text, str(note)))
    life = child.spawn()
    assert eventually(lambda: life.dead)
    assert eventually(lambda: not alive(int(note.read_text())))
    child.terminate()


def test_many_starts_leave_nothing_behind() -> None:
    def counts() -> tuple[int, int]:
        return threading.active_count(), len(list(Path("/dev/fd").iterdir()))

    before = counts()
    for _ in range(20):
        child = Child(program(UNTIL_EOF))
        child.spawn()
        child.terminate()
    assert eventually(lambda: counts() == before), (before, counts())


def test_a_forgotten_child_is_ended() -> None:
    child = Child(program(UNTIL_EOF))
    life = child.spawn()
    del child
    gc.collect()
    assert eventually(lambda: life.dead)


PARENT = """
import os, sys, time
from bourn.engines.child import Child
child = Child([sys.executable, "-I", "-S", "-c", sys.argv[1]])
print(child.spawn().pid, flush=True)
exec(sys.argv[2])
"""


def parent(then: str, text: str = UNTIL_EOF) -> tuple[subprocess.Popen[str], int]:
    started = subprocess.Popen(
        [sys.executable, "-c", PARENT, text, then], stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    return started, int(started.stdout.readline())


def test_no_orphan_when_the_parent_is_killed() -> None:
    started, pid = parent("time.sleep(60)")
    with started:
        assert alive(pid)
        started.kill()
    assert eventually(lambda: not alive(pid))


def test_no_orphan_when_the_parent_just_ends() -> None:
    started, pid = parent("pass", text=DEAF)
    with started:
        pass
    assert started.returncode == 0
    assert eventually(lambda: not alive(pid))


def test_a_fork_of_the_parent_does_not_end_the_child() -> None:
    then = (
        "pid = os.fork()\n"
        "if not pid: child.terminate(); sys.exit()\n"
        "os.waitpid(pid, 0); sys.exit(0 if child.alive else 1)"
    )
    started, pid = parent(then)
    with started:
        pass
    assert started.returncode == 0
    assert eventually(lambda: not alive(pid))


def test_ctrl_c_in_the_terminal_does_not_reach_it(ended: list[Child]) -> None:
    child = Child(program(UNTIL_EOF))
    ended.append(child)
    life = child.spawn()
    assert os.getsid(life.pid) == os.getpgid(life.pid) == life.pid != os.getsid(0)


async def test_ready_when_the_check_says_so(ended: list[Child]) -> None:
    child = Child(program(UNTIL_EOF))
    ended.append(child)
    asked: list[bool] = []

    async def third_time() -> bool:
        asked.append(child.alive)
        return len(asked) == 3

    life = await child.start(third_time)
    assert asked == [True, True, True]
    assert await child.start(no) is life  # known to be ready: not asked again


async def test_death_ends_the_wait_at_once() -> None:
    text = "import sys, time; time.sleep(0.2); sys.exit('no such model')"
    child = Child(program(text), name="loader")

    async def hang() -> bool:
        await asyncio.sleep(60)
        return False

    with pytest.raises(LoadFailed, match=r"loader ended with exit code 1\n  no such model"):
        await asyncio.wait_for(child.start(hang), 10)


async def test_a_death_before_anybody_waited_is_told_once() -> None:
    child = Child(program("import sys; sys.exit('bad file')"))
    life = child.spawn()
    await life.died()
    with pytest.raises(LoadFailed, match="bad file"):
        await child.start(yes)
    assert child.life is life
    with pytest.raises(LoadFailed, match="bad file"):
        await child.start(no)
    assert child.life is not life


async def test_waiting_can_be_cancelled(ended: list[Child]) -> None:
    child = Child(program(UNTIL_EOF))
    ended.append(child)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(child.start(no), 0.1)
    assert child.alive
    await child.start(yes)


async def test_callbacks_and_waiters_hear_of_a_kill(ended: list[Child]) -> None:
    child = Child(program(UNTIL_EOF))
    ended.append(child)
    life = await child.start(yes)
    heard: list[str] = []
    life.on_death(lambda: heard.append("first"))
    life.on_death(lambda: heard.append("taken back"))()
    waiter = asyncio.create_task(life.died())
    os.kill(life.pid, signal.SIGKILL)
    await asyncio.wait_for(waiter, 10)
    life.on_death(lambda: heard.append("late"))
    assert heard == ["first", "late"]
    assert "signal 9 (SIGKILL)" in life.exit_text


async def test_started_anew_after_a_death(ended: list[Child]) -> None:
    prepared: list[int] = []
    child = Child(program(UNTIL_EOF), prepare=lambda: prepared.append(1))
    ended.append(child)
    first = await child.start(yes)
    os.kill(first.pid, signal.SIGKILL)
    await first.died()
    assert child.pause == 0
    second = await child.start(yes)
    assert second.pid != first.pid
    assert len(prepared) == 2


async def test_two_at_once_start_one_process(ended: list[Child]) -> None:
    child = Child(program(UNTIL_EOF))
    ended.append(child)
    first, second = await asyncio.gather(child.start(yes), child.start(yes))
    assert first is second


async def test_repeated_deaths_wait_longer_and_longer() -> None:
    child = Child(program("import sys; sys.exit(1)"))
    waits = []
    for _ in range(8):
        life = child.spawn()
        assert eventually(lambda: life.dead)  # noqa: B023 (called at once)
        waits.append(child.pause)
    expected = [0, 0.5, 1, 2, 4, 8, 16, 30]
    assert all(e - 0.4 < w <= e for w, e in zip(waits, expected, strict=True)), waits
    child.succeeded()
    assert child.pause == 0


async def test_the_wait_is_kept_by_the_next_start() -> None:
    child = Child(program("import sys; sys.exit(1)"))
    for _ in range(2):
        with pytest.raises(LoadFailed):
            await child.start(no)
    began = time.monotonic()
    with pytest.raises(LoadFailed):
        await child.start(no)
    assert time.monotonic() - began > 0.3


async def test_an_end_that_was_asked_for_is_no_death() -> None:
    child = Child(program(UNTIL_EOF))
    for _ in range(4):
        await child.start(yes)
        child.terminate()
    assert child.deaths == 0
    assert child.pause == 0


def test_no_such_program() -> None:
    with pytest.raises(LoadFailed, match="cannot be started"):
        Child(["/nowhere/llama-server"]).spawn()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended with exit code 0"),
        (3221225477, "ended with exit code 0xc0000005"),
        (-signal.SIGSEGV, "was killed by signal 11 (SIGSEGV)"),
        (-signal.SIGKILL, "out of memory"),
        (-signal.SIGILL, "lacks an instruction"),
        (-99, "signal 99 (unknown)"),
    ],
)
def test_ends_in_words(code: int, words: str) -> None:
    assert words in in_words(code)
