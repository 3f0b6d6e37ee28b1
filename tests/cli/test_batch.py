"""`bourn batch`, as a process of its own: what goes where, how it ends, and how it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.background import served
from tests.support.openai_server import Answer, text_stream
from tests.support.terminal import CTRL_C, Terminal

FOX = "scripted:The quick brown fox"
SLOW = "scripted:a b c d?delay=0.1"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An empty home, and no settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BOURN_")}
    return kept | {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "bourn", "batch", *map(str, arguments)]


def bourn(
    *arguments: str | Path, env: dict[str, str], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(*arguments), input=stdin, capture_output=True, env=env, timeout=20, check=False
    )


def written(path: Path, *lines: dict[str, Any] | str) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(text + "\n" for text in texts))
    return path


def read(out: Path | bytes) -> dict[Any, dict[str, Any]]:
    """The lines by their ids."""
    data = out if isinstance(out, bytes) else out.read_bytes()
    told = [json.loads(line) for line in data.splitlines()]
    by_id = {line["id"]: line for line in told}
    assert len(by_id) == len(told)
    return by_id


def test_each_line_is_answered(env: dict[str, str], tmp_path: Path) -> None:
    asked = written(
        tmp_path / "in.jsonl", {"prompt": "a"}, {"id": "b", "prompt": "b", "max_new_tokens": 2}
    )
    out = tmp_path / "out.jsonl"
    told = bourn(asked, "-o", out, "-m", FOX, "--stop", "fox", env=env)
    assert (told.returncode, told.stdout) == (0, b"")
    lines = read(out)
    assert {id_: line["text"] for id_, line in lines.items()} == {
        1: "The quick brown ",
        "b": "The quick ",
    }
    assert lines["b"]["finish_reason"] == "length"
    assert b"2 answered, 0 failed" in told.stderr


def test_from_a_pipe_into_a_pipe(env: dict[str, str]) -> None:
    asked = b'{"prompt": "a"}\n\n{"prompt": "b"}'
    told = bourn("-", "-m", FOX, env=env, stdin=asked)
    assert told.returncode == 0
    assert read(told.stdout).keys() == {1, 3}


def test_a_line_that_fails_is_told_and_tried_again(env: dict[str, str], tmp_path: Path) -> None:
    asked = written(tmp_path / "in.jsonl", {"prompt": "a"}, "oops", {"prompt": "a", "tmp": 1})
    out = tmp_path / "out.jsonl"
    told = bourn(asked, "-o", out, "-m", FOX, env=env)
    assert told.returncode == 1
    assert b"1 answered, 2 failed" in told.stderr
    assert [("error" in line) for line in read(out).values()].count(True) == 2
    first = read(out)[1]
    written(asked, {"prompt": "a"}, {"prompt": "b"}, {"prompt": "c"})
    told = bourn(asked, "-o", out, "-m", FOX, env=env)
    assert told.returncode == 0
    assert b"2 answered, 0 failed, 1 were answered before" in told.stderr
    assert read(out).keys() == {1, 2, 3}
    assert read(out)[1] == first, "what was answered is not answered anew"


def test_a_model_that_cannot_be_loaded_fails_as_a_whole(
    env: dict[str, str], tmp_path: Path
) -> None:
    asked = written(tmp_path / "in.jsonl", {"prompt": "a"})
    out = tmp_path / "out.jsonl"
    told = bourn(asked, "-o", out, "-m", str(tmp_path / "no.gguf"), env=env)
    assert told.returncode == 1
    assert b"no.gguf" in told.stderr
    assert out.read_bytes() == b""
    assert bourn(asked, "-o", out, "-m", FOX, env=env).returncode == 0


def test_wrong_uses_exit_with_2(env: dict[str, str], tmp_path: Path) -> None:
    asked = written(tmp_path / "in.jsonl", {"prompt": "a"})
    notes = written(tmp_path / "notes", "Milk, bread.")
    for arguments, words in (
        ((tmp_path / "no.jsonl", "-m", FOX), b"cannot read"),
        ((asked, "-o", asked, "-m", FOX), b"overwrite the questions"),
        ((asked, "-o", notes, "-m", FOX), b"no result of a batch"),
        ((asked, "--slots", "2", "-m", "http://127.0.0.1:9/v1"), b"--slots"),
    ):
        told = bourn(*arguments, env=env)
        assert (told.returncode, told.stdout) == (2, b""), arguments
        assert words in told.stderr
    assert notes.read_text() == "Milk, bread.\n"


def test_an_endpoint_answers_too(env: dict[str, str], tmp_path: Path) -> None:
    asked = written(tmp_path / "in.jsonl", *({"prompt": str(n)} for n in range(6)))
    with served(Answer(text_stream("Hello."))) as server:
        told = bourn(asked, "-m", server.url, "--parallel", "3", env=env)
        assert sorted(each.json["messages"][0]["content"] for each in server.asked) == [*"012345"]
    assert told.returncode == 0, told.stderr
    assert {line["text"] for line in read(told.stdout).values()} == {"Hello."}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(
    env: dict[str, str], tmp_path: Path
) -> None:
    asked = written(tmp_path / "in.jsonl", *({"prompt": str(n)} for n in range(200)))
    out = tmp_path / "out.jsonl"
    begun = command(asked, "-o", out, "-m", SLOW, "--parallel", "2")
    with subprocess.Popen(begun, stderr=subprocess.PIPE, env=env) as process:
        assert process.stderr is not None
        _wait_for_lines(out, 2)
        other = bourn(asked, "-o", out, "-m", FOX, env=env)
        assert other.returncode == 2
        assert b"another run is writing" in other.stderr
        process.send_signal(signal.SIGINT)
        told = process.stderr.read().decode()
        assert process.wait(10) == 130
    assert "the same command goes on from there" in told
    done = read(out)
    assert 2 <= len(done) < 200
    assert f"stopped; {len(done)} answered" in told
    assert bourn(asked, "-o", out, "-m", FOX, env=env).returncode == 0
    whole = read(out)
    assert whole.keys() == set(range(1, 201))
    assert {id_: whole[id_] for id_ in done} == done
    left = sorted(each.name for each in tmp_path.iterdir() if "jsonl" in each.name)
    assert left == ["in.jsonl", "out.jsonl"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_killed_it_goes_on_where_it_ended(env: dict[str, str], tmp_path: Path) -> None:
    asked = written(tmp_path / "in.jsonl", *({"prompt": str(n)} for n in range(100)))
    out = tmp_path / "out.jsonl"
    begun = command(asked, "-o", out, "-m", SLOW, "--parallel", "2")
    with subprocess.Popen(begun, env=env) as process:
        _wait_for_lines(out, 3)
        process.kill()
    with out.open("ab") as file:
        file.write(b'{"id": 100, "text": "half a li')
    told = bourn(asked, "-o", out, "-m", FOX, env=env)
    assert told.returncode == 0, told.stderr
    assert read(out).keys() == set(range(1, 101))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_ctrl_c_while_the_pipe_is_silent(env: dict[str, str]) -> None:
    with subprocess.Popen(
        command("-", "-m", FOX),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"prompt": "a"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1, "it comes before the next is asked"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes on Windows")
def test_a_closed_pipe_ends_it_quietly(env: dict[str, str], tmp_path: Path) -> None:
    asked = written(tmp_path / "in.jsonl", *({"prompt": str(n)} for n in range(200)))
    with subprocess.Popen(
        command(asked, "-m", SLOW),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(10) == 0
        assert process.stderr.read() == b""


def _wait_for_lines(path: Path, count: int) -> None:
    deadline = time.monotonic() + 15
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline, "it writes nothing"
        time.sleep(0.01)


@pytest.mark.terminal
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such terminal on Windows")
def test_a_bar_shows_how_far_it_is_and_goes_away(tmp_path: Path) -> None:
    asked = written(
        tmp_path / "in.jsonl", "oops", *({"prompt": str(n)} for n in range(30)), {"prompt": 5}
    )
    out = tmp_path / "out.jsonl"
    arguments = ("batch", str(asked), "-o", str(out), "-m", SLOW, "--parallel", "3")
    with Terminal(*arguments, home=tmp_path) as terminal:
        terminal.wait_until(
            lambda: any("/32" in line and "tokens/s · 1 failed" in line for line in terminal.lines),
            "the bar",
        )
        terminal.type(CTRL_C)
        assert terminal.wait_for_end() == 130
        assert "bourn: stopped;" in terminal.text
        assert "/32" not in terminal.text
