"""`bourn run --keep-alive` with the real model: loaded once, and ended in time whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from bourn.engines import keeper

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes and their folders"),
]

LONG = ("--temperature", "0", "--max-new-tokens", "400", "Tell a long story.")
"""Of all 400 tokens; where the dice fall otherwise it may be one of thirty."""


@pytest.fixture
def home() -> Iterator[Path]:
    """A runtime folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as short:
        yield Path(short)


@pytest.fixture
def env(home: Path, smollm2: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("BOURN_")}
    folders = {"XDG_RUNTIME_DIR": str(home), "XDG_CONFIG_HOME": str(tmp_path)}
    made = kept | folders | {"BOURN_MODEL": str(smollm2), "BOURN_WINDOW": "512"}
    yield made
    bourn("stop", env=made)


def started(*arguments: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bourn", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)


def bourn(*arguments: str, env: dict[str, str]) -> str:
    with started(*arguments, env=env) as process:
        out, told = process.communicate(timeout=40)
    assert process.returncode == 0, told
    return out.decode() + told.decode()


def ask(*flags: str, env: dict[str, str]) -> str:
    shape = ("--max-new-tokens", "8", "--temperature", "0", "--seed", "1")
    return bourn("run", *shape, *flags, "Say hello.", env=env)


def keepers(home: Path) -> list[psutil.Process]:
    """The keepers of residents in this folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if keeper.__file__ in words and any(word.startswith(str(home)) for word in words):
            found.append(process)
    return found


def the_worker(home: Path) -> psutil.Process:
    (only,) = keepers(home)
    (worker,) = only.children()
    return worker


def eventually(fact: Callable[[], object], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if fact():
            return True
        time.sleep(0.02)
    return False


def test_the_second_run_finds_it_loaded(home: Path, env: dict[str, str]) -> None:
    cold = ask("--keep-alive", "1m", env=env)
    worker = the_worker(home)
    assert ask(env=env) == cold != ""
    assert the_worker(home) == worker
    assert ask("--window", "600", env=env) == cold  # another one, of its own, which is not kept
    assert the_worker(home) == worker
    assert bourn("stop", env=env) == "1 stopped\n"
    assert not worker.is_running()


def test_it_ends_by_itself_and_with_zero(home: Path, env: dict[str, str]) -> None:
    ask("--keep-alive", "0.5s", env=env)
    assert eventually(lambda: not keepers(home))
    assert [each.name for each in (home / "bourn").iterdir()] == ["lock"]
    ask("--keep-alive", "1m", env=env)
    worker = the_worker(home)
    ask("--keep-alive", "0", env=env)
    assert eventually(lambda: not keepers(home) and not worker.is_running())


def test_two_at_once_load_it_once(home: Path, env: dict[str, str]) -> None:
    flags = ("run", "--keep-alive", "1m", "--max-new-tokens", "8", "Say hello.")
    both = [started(*flags, env=env) for _ in range(2)]
    for process in both:
        out, told = process.communicate(timeout=40)
        assert (process.returncode, told) == (0, b"")
        assert out
    assert the_worker(home).is_running()


def test_a_killed_keeper_takes_its_model_along(home: Path, env: dict[str, str]) -> None:
    cold = ask("--keep-alive", "1m", env=env)
    (only,), worker = keepers(home), the_worker(home)
    only.kill()
    assert eventually(lambda: not worker.is_running())
    assert any(each.is_dir() for each in (home / "bourn").iterdir())  # it could not tidy up
    assert ask("--keep-alive", "1m", env=env) == cold
    assert the_worker(home) != worker


def test_a_killed_user_does_not_hold_it(home: Path, env: dict[str, str]) -> None:
    with started("run", "--keep-alive", "0.2", *LONG, env=env) as user:
        assert user.stdout is not None
        assert user.stdout.read(1)
        worker = the_worker(home)
        time.sleep(0.5)
        assert worker.is_running()  # in use, whatever its time is
        user.kill()
    assert eventually(lambda: not worker.is_running())


def test_ctrl_c_stops_the_answer_and_keeps_the_model(home: Path, env: dict[str, str]) -> None:
    with started("run", "--keep-alive", "1m", *LONG, env=env) as user:
        assert user.stdout is not None
        assert user.stdout.read(1)
        user.send_signal(signal.SIGINT)
        user.communicate(timeout=20)
    assert user.returncode == 130
    worker = the_worker(home)
    before = sum(worker.cpu_times()[:2])
    time.sleep(0.5)
    assert sum(worker.cpu_times()[:2]) - before < 0.2  # it computes for nobody
    assert ask(env=env)
    assert the_worker(home) == worker
