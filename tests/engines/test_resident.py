"""Residents: shared by those who want the same, ended in time, and nobody else's."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from bourn.engines import resident
from bourn.engines.launch import Launch
from bourn.engines.llamacpp import LlamaCpp
from bourn.engines.resident import DOOR, Lease, Resident, Sharing, homes, stop_all
from bourn.errors import EngineCrashed, LoadFailed, SettingsError
from bourn.messages import messages_of
from bourn.types import DEFAULT_SAMPLING, Request
from tests.support.played_server import written_to

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs unix sockets")

UNTIL_EOF = "import os, sys; print(os.getpid(), file=sys.stderr, flush=True); sys.stdin.read()"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where residents are, with a short path; none is left after the test, nor found before it."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as short:
        Path(short, "tmp").mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        monkeypatch.setattr(tempfile, "tempdir", f"{short}/tmp")
        monkeypatch.setattr(resident, "_SHORT", f"{short}/tmp")
        yield Path(short, "bourn")
        stop_all()


def eventually(fact: Callable[[], object], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if fact():
            return True
        time.sleep(0.01)
    return False


def alive(pid: int) -> bool:
    about = Path(f"/proc/{pid}/stat")
    try:
        os.kill(pid, 0)
        return not about.exists() or about.read_text().split(") ")[1][0] != "Z"
    except (ProcessLookupError, FileNotFoundError):  # it may end at any moment
        return False


def program(text: str) -> Callable[[], Launch]:
    command = (sys.executable, "-I", "-S", "-c", text)
    return lambda: Launch(command, dict(os.environ), b"fed\n")


def never() -> Launch:
    raise AssertionError("it is there: nothing is to be launched")


def wanted(keep_alive: float | None, facts: object = "x") -> Resident:
    found = Sharing(keep_alive).resident(facts)
    assert found is not None
    return found


def begun(keep_alive: float = 60, text: str = UNTIL_EOF, facts: object = "x") -> Lease:
    return wanted(keep_alive, facts).lease("server", program(text))


def pid_of(lease: Lease) -> int:
    """The process id that the server has said."""
    assert eventually(lambda: lease.last_words)
    return int(lease.last_words[0])


def keeper_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


# -- the use of one --------------------------------------------------------------------------------


def test_it_outlives_its_first_user_and_serves_the_next() -> None:
    first = begun()
    pid = pid_of(first)
    first.end()
    assert first.dead
    assert first.ended
    second = wanted(None).lease("server", never)
    assert pid_of(second) == pid  # who comes later is told what was said before
    assert alive(pid)
    second.end()


def test_it_ends_when_its_time_is_over(home: Path) -> None:
    lease = begun(keep_alive=0.1)
    pid = pid_of(lease)
    time.sleep(0.5)  # in use it stays
    assert alive(pid)
    lease.end()
    assert eventually(lambda: not alive(pid))
    assert eventually(lambda: [each.name for each in home.iterdir()] == ["lock"])


def test_zero_has_it_end_after_the_last_use() -> None:
    first, pid = (lease := begun(), pid_of(lease))
    second = wanted(0).lease("server", never)
    second.end()
    time.sleep(0.1)
    assert alive(pid)
    first.end()
    assert eventually(lambda: not alive(pid))


def test_without_a_time_none_is_begun(home: Path) -> None:
    assert Sharing(None).resident("x") is None
    assert Sharing(0).resident("x") is None
    assert not home.exists()
    begun().end()
    assert Sharing(None).resident("x") is not None
    assert Sharing(None).resident("other") is None


def test_what_is_told_and_what_is_fed() -> None:
    text = "import sys; print(sys.stdin.readline(), 'x' * 5000, file=sys.stderr); sys.stdin.read()"
    lease = begun(text=text)
    assert eventually(lambda: len(lease.last_words) == 2)
    assert lease.last_words[0] == "fed"
    assert len(lease.last_words[1]) == 1000
    lease.end()


def test_its_death_is_told_with_its_last_words() -> None:
    lease = begun(text="import sys; sys.stderr.write('no such tensor'); sys.exit(1)")
    assert eventually(lambda: lease.dead)
    assert lease.exit_text == "server ended with exit code 1"
    assert lease.last_words == ("no such tensor",)
    assert not lease.ended
    again = begun()
    assert alive(pid_of(again))
    again.end()


def test_many_at_once_begin_one() -> None:
    leases: list[Lease] = []
    threads = [threading.Thread(target=lambda: leases.append(begun())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({pid_of(lease) for lease in leases}) == 1
    for lease in leases:
        lease.end()


# -- ends ------------------------------------------------------------------------------------------


def test_all_are_stopped_at_once(home: Path) -> None:
    leases = [begun(), begun(facts="y")]
    pids = [pid_of(lease) for lease in leases]
    assert stop_all() == 2
    assert not any(map(alive, pids))
    assert eventually(lambda: all(lease.dead for lease in leases))
    assert leases[0].exit_text == "server is gone"
    assert [each.name for each in home.iterdir()] == ["lock"]
    assert stop_all() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_killed_keeper_leaves_no_server_and_is_no_obstacle(home: Path) -> None:
    lease = begun()
    pid = pid_of(lease)
    os.kill(keeper_of(pid), signal.SIGKILL)
    assert eventually(lambda: lease.dead and not alive(pid))
    (folder,) = (each for each in home.iterdir() if each.is_dir())
    assert (folder / DOOR).exists()
    other = begun(facts="y")
    assert not folder.exists()  # swept by the next to begin
    again = begun()
    assert pid_of(again) not in (pid, pid_of(other))
    again.end()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_keeper_ends_in_order_on_sigterm(home: Path) -> None:
    lease = begun()
    pid = pid_of(lease)
    os.kill(keeper_of(pid), signal.SIGTERM)
    assert eventually(lambda: lease.dead and not alive(pid))
    assert [each.name for each in home.iterdir()] == ["lock"]


def test_it_ends_when_nobody_can_find_it_any_more(home: Path) -> None:
    lost = begun()
    pid = pid_of(lost)
    shutil.rmtree(home)
    found = begun()  # in a folder of the same name
    assert eventually(lambda: lost.dead and not alive(pid))
    assert alive(pid_of(found))
    other = wanted(None).lease("server", never)
    assert pid_of(other) == pid_of(found)
    other.end()
    found.end()


def test_what_does_not_run_is_an_error_and_leaves_nothing(home: Path) -> None:
    def launch() -> Launch:
        raise LoadFailed("no such server")

    with pytest.raises(LoadFailed, match="no such server"):
        wanted(60).lease("server", launch)
    assert [each.name for each in home.iterdir()] == ["lock"]


# -- nobody else's ---------------------------------------------------------------------------------


def test_the_folders_are_private(home: Path) -> None:
    lease = begun()
    for folder in (home, next(each for each in home.iterdir() if each.is_dir())):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    lease.end()


def test_a_folder_that_others_can_enter_is_not_trusted(home: Path) -> None:
    begun().end()
    home.chmod(0o711)
    assert Sharing(None).resident("x") is None
    other = Path(tempfile.gettempdir(), f"bourn-{os.getuid()}")
    assert wanted(60).folder.parent == other
    home.chmod(0o700)


def test_a_link_and_a_strangers_folder_are_not_trusted(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    home.symlink_to(tmp_path)
    assert home not in homes()
    home.unlink()
    home.mkdir(mode=0o700)
    assert home in homes()
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert home not in homes()


def test_a_folder_that_others_can_replace_is_not_trusted(home: Path) -> None:
    home.mkdir(mode=0o700)
    for mode, trusted in ((0o777, False), (0o1777, True)):
        home.parent.chmod(mode)
        assert (home in homes()) is trusted


def test_a_path_too_long_for_a_socket_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    assert wanted(60).folder.is_relative_to(tempfile.gettempdir())


def test_no_place_and_no_unix_sockets_are_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "_places", lambda: iter([home / "not" / "there"]))
    with pytest.raises(SettingsError, match="no folder"):
        Sharing(60).resident("x")
    monkeypatch.undo()
    monkeypatch.delattr(socket, "AF_UNIX")
    with pytest.raises(SettingsError, match="unix sockets"):
        Sharing(60).resident("x")
    assert Sharing(None).resident("x") is None
    assert stop_all() == 0


# -- the engine ------------------------------------------------------------------------------------


Make = Callable[..., LlamaCpp]


@pytest_asyncio.fixture
async def make(tmp_path: Path) -> AsyncGenerator[Make, None]:
    gguf = tmp_path / "tiny.gguf"
    gguf.write_bytes(b"GGUF")
    server = written_to(tmp_path / "llama-server")
    made: list[LlamaCpp] = []

    def one(keep_alive: float | None, window: int = 512) -> LlamaCpp:
        sharing = Sharing(keep_alive)
        made.append(LlamaCpp(gguf, llama_server=server, window=window, sharing=sharing))
        return made[-1]

    yield one
    for engine in made:
        await engine.aclose()


async def read(engine: LlamaCpp, text: str) -> str:
    asked = Request(messages=messages_of(text), sampling=replace(DEFAULT_SAMPLING, seed=1))
    async with aclosing(engine.generate(asked)) as pieces:
        return "".join([piece.text async for piece in pieces])


def server_of(engine: LlamaCpp) -> int:
    life = engine.spawn().spawn()
    assert eventually(lambda: len(life.last_words) > 1)
    return int(life.last_words[1])


async def test_engines_share_one_server_with_the_same_settings(make: Make) -> None:
    first = make(60)
    assert await read(first, "hello") == "one two"
    pid = server_of(first)
    await first.aclose()
    second, other = make(None), make(None, window=1024)
    assert await read(second, "hello") == "one two"
    assert await read(other, "hello") == "one two"
    assert server_of(second) == pid != server_of(other)
    assert (await second.start()).window == 512
    await second.aclose()
    assert alive(pid)


async def test_a_crash_is_told_to_all_who_wait_and_it_begins_anew(make: Make) -> None:
    first, second = make(60), make(60)
    await asyncio.gather(first.start(), second.start())
    pid, waiting = server_of(first), second.spawn().spawn()
    with pytest.raises(EngineCrashed, match="llama-server was killed by signal 6") as caught:
        await read(first, "crash")
    assert caught.value.last_words[-1] == "assertion failed"
    await asyncio.wait_for(waiting.died(), 10)
    assert await read(second, "again") == "one two"
    assert await read(first, "again") == "one two"
    assert server_of(first) == server_of(second) != pid


async def test_one_that_was_stopped_begins_anew_for_who_uses_it_still(make: Make) -> None:
    make(60).spawn()
    user = make(None)
    assert await read(user, "hello") == "one two"
    life = user.spawn().spawn()
    assert await asyncio.to_thread(stop_all) == 1
    await asyncio.wait_for(life.died(), 10)
    assert await read(user, "hello") == "one two"
    pid = server_of(user)
    await user.aclose()
    assert eventually(lambda: not alive(pid))  # nobody said that it should stay
