"""How servers are started: arguments, environment, processors."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from bourn.engines import launch as launching
from bourn.engines import llamacpp_worker
from bourn.engines.launch import environment, flags_of, launch, server_arguments, usable_cores
from bourn.engines.llamacpp_worker import Config, _notice
from bourn.errors import LoadFailed

CONFIG = Config(model="/m.gguf", host="/tmp/b/s.sock", window=1024, slots=4, threads=3)


def test_our_own_server_gets_its_configuration_by_stdin() -> None:
    how = launch(Config("/m.gguf", "127.0.0.1", 512, 1, 1, port=9, key="secret"))
    assert how.command == (sys.executable, "-P", llamacpp_worker.__file__)
    assert json.loads(how.feed)["key"] == "secret"
    assert how.feed.count(b"\n") == 1
    assert "secret" not in " ".join(how.env.values())


def test_openmp_is_told_not_to_spin() -> None:
    assert environment({"A": "b"}) == {"A": "b", "GOMP_SPINCOUNT": "1000"}


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS"])
def test_unless_the_user_tells_openmp_something(name: str) -> None:
    assert environment({name: "1"}) == {name: "1"}


def test_the_arguments_for_a_server_of_the_users() -> None:
    words = server_arguments(CONFIG, frozenset())
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    assert pairs == {
        "--host": "/tmp/b/s.sock",
        "--model": "/m.gguf",
        "--alias": "m",
        "--ctx-size": "4096",
        "--parallel": "4",
        "--batch-size": "512",
        "--ubatch-size": "512",
        "--threads": "3",
    }


def test_flags_that_come_and_go_are_used_where_known() -> None:
    known = frozenset({"--jinja", "--cache-ram", "--no-kv-unified"})
    words = server_arguments(CONFIG, known)
    assert words[-4:] == ["--jinja", "--no-kv-unified", "--cache-ram", "256"]


def test_more_arguments_where_they_are_wanted() -> None:
    config = Config(
        "/m", "127.0.0.1", 1, 1, -1, port=7, key="k", cpu_only=True, chat_template="{{ x }}"
    )
    words = server_arguments(config, frozenset())
    text = " ".join(words)
    assert "--port 7" in text
    assert "--n-gpu-layers 0" in text
    assert "--chat-template {{ x }}" in text
    assert "--threads" not in words
    assert "k" not in words


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="needs shebangs")
def test_flags_are_read_from_the_help(tmp_path: Path) -> None:
    text = "print('-c,    --ctx-size N\\n--host HOST   (e.g. --not-a_flag)\\n--no-kv-unified')"
    flags = flags_of(script(tmp_path / "server", text))
    assert {"-c", "--ctx-size", "--host", "--no-kv-unified"} <= flags


@pytest.mark.skipif(sys.platform == "win32", reason="needs shebangs")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys; sys.exit('error while loading shared libraries: libcuda')", "libcuda"),
        ("print('hello')", "no llama-server: hello"),
    ],
)
def test_what_is_no_llama_server(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(LoadFailed, match=words):
        flags_of(script(tmp_path / "server", text))


def test_what_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="does not run"):
        flags_of(tmp_path / "nothing")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /sys")
def test_the_cores_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(launching, "_siblings", lambda cpu: str(cpu // 2))
    monkeypatch.setattr(launching, "_quota", lambda: None)
    assert usable_cores() == 2
    monkeypatch.setattr(launching, "_quota", lambda: 1)
    assert usable_cores() == 1


@pytest.mark.parametrize(
    ("text", "quota"),
    [("max 100000", None), ("150000 100000", 2), ("10000 100000", 1), ("", None)],
)
def test_the_quota_of_a_container(tmp_path: Path, text: str, quota: int | None) -> None:
    limits = tmp_path / "cpu.max"
    limits.write_text(text)
    assert launching._quota(limits) == quota
    assert launching._quota(tmp_path / "none") is None


CPU = {"name": "CPU", "type": "ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU"}
GPU = {"name": "CUDA0", "type": "ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_GPU"}


def test_a_gpu_that_lies_idle_is_noticed(tmp_path: Path) -> None:
    node = tmp_path / "nvidia0"
    assert _notice([CPU], cpu_only=False, nodes=(str(node),)) is None
    node.touch()
    told = _notice([CPU], cpu_only=False, nodes=(str(node),))
    assert told is not None
    assert "--llama-server" in told
    assert _notice([CPU], cpu_only=True, nodes=(str(node),)) is None
    assert _notice([CPU, GPU], cpu_only=False, nodes=(str(node),)) is None
