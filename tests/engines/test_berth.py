"""Where children listen: private, short enough, and swept."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bourn.engines.berth import LONGEST, Berth, new_berth, sweep

needs_unix = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no unix sockets")


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short folder for temporary files, empty."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        yield Path(short)


def a_dead_pid() -> int:
    done = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    done.wait()
    return done.pid


@needs_unix
def test_private_and_removed(base: Path) -> None:
    berth = new_berth()
    assert berth.path is not None
    folder = berth.path.parent
    assert folder.parent == base
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert berth.host == str(berth.path)
    berth.remove()
    berth.remove()
    assert not folder.exists()


@needs_unix
def test_a_stale_socket_is_cleared(base: Path) -> None:
    berth = new_berth()
    assert berth.path is not None
    for _ in range(2):
        berth.clear()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(berth.path))
        assert berth.path.exists()
    berth.remove()


@needs_unix
def test_a_long_temporary_folder_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    berth = new_berth()
    assert len(os.fsencode(berth.host)) <= LONGEST
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(berth.host)
    berth.remove()


@needs_unix
def test_only_what_dead_owners_left_is_swept(base: Path) -> None:
    dead = base / f"bourn-{a_dead_pid()}-abcdefgh"
    ours = base / f"bourn-{os.getpid()}-abcdefgh"
    other = base / "bourn-cache-of-something"
    for folder in (dead, ours, other):
        folder.mkdir()
    sweep(base)
    assert [f for f in (dead, ours, other) if f.exists()] == [ours, other]


@needs_unix
def test_a_socket_that_answers_is_left_alone(base: Path) -> None:
    folder = base / f"bourn-{a_dead_pid()}-abcdefgh"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s.sock"))
        listener.listen()
        sweep(base)
        assert folder.exists()
    sweep(base)
    assert not folder.exists()


@needs_unix
def test_a_link_is_not_followed(base: Path) -> None:
    target = base / "target"
    target.mkdir()
    (base / f"bourn-{a_dead_pid()}-abcdefgh").symlink_to(target)
    sweep(base)
    assert target.exists()


def test_without_unix_sockets_a_port_and_a_secret() -> None:
    berth = new_berth(unix=False)
    assert berth.path is None
    assert berth.base_url == f"http://127.0.0.1:{berth.port}/v1"
    assert len(berth.key) >= 32
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", berth.port))
    berth.clear()
    berth.remove()


def test_another_process_does_not_remove_it(base: Path) -> None:
    folder = base / "bourn-x"
    folder.mkdir()
    Berth(path=folder / "s.sock", owner=os.getpid() + 1).remove()
    assert folder.exists()
