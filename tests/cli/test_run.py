"""`bourn run`, as a process of its own: what goes where, and the exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FOX = "The quick brown fox"
SLOW = "scripted:" + " ".join(f"w{n}" for n in range(500)) + "?delay=0.02"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An empty home, and no settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BOURN_")}
    return kept | {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def bourn(
    *arguments: str, env: dict[str, str], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "bourn", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, env=env, timeout=15, check=False
    )


def test_the_answer_alone_is_on_stdout(env: dict[str, str]) -> None:
    told = bourn("run", "-m", f"scripted:{FOX}", "hello", env=env)
    assert (told.returncode, told.stdout, told.stderr) == (0, FOX.encode(), b"")


def test_words_and_stdin_make_the_question_and_stats_go_to_stderr(env: dict[str, str]) -> None:
    told = bourn("run", "-m", f"scripted:{FOX}", "--stats", "Say:", "-", env=env, stdin=b"text")
    assert told.stdout == FOX.encode()
    for word in ("4 tokens", "first after", "instant", "tokens/s", "queue", "seed", "stop"):
        assert word in told.stderr.decode()


def test_piped_text_alone_is_the_question(env: dict[str, str]) -> None:
    assert bourn("run", "-m", "scripted:yes", env=env, stdin=b"really?").stdout == b"yes"


def test_broken_utf8_on_stdin_is_replaced_and_told(env: dict[str, str]) -> None:
    told = bourn("run", "-m", "scripted:yes", env=env, stdin=b"caf\xe9")
    assert (told.returncode, told.stdout) == (0, b"yes")
    assert b"not all UTF-8" in told.stderr


def test_no_question_is_a_wrong_use(env: dict[str, str]) -> None:
    told = bourn("run", "-m", "scripted:yes", env=env, stdin=b" \n")
    assert told.returncode == 2
    assert b"no question" in told.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--temperature", "-1"),
        ("--temperature", "nan"),
        ("--max-new-tokens", "0"),
        ("--no-such-flag",),
        ("--stop", ""),
    ],
)
def test_wrong_flags_exit_with_2(arguments: tuple[str, ...], env: dict[str, str]) -> None:
    told = bourn("run", "-m", "scripted:yes", *arguments, "hello", env=env)
    assert told.returncode == 2
    assert told.stdout == b""
    assert told.stderr


def test_json_lines_join_to_the_text_of_done(env: dict[str, str]) -> None:
    told = bourn("run", "-m", f"scripted:{FOX}?prompt_steps=2", "--json", "hello", env=env)
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line["type"] for line in lines][:3] == ["start", "progress", "progress"]
    done = lines[-1]
    assert done["type"] == "done"
    assert "".join(line["text"] for line in lines if line["type"] == "delta") == done["text"] == FOX
    assert (done["finish_reason"], done["state"]) == ("stop", "complete")
    assert done["usage"]["completion_tokens"] == done["metrics"]["tokens"] == 4
    assert done["seed"] == lines[0]["seed"]
    assert done["metrics"]["ttft_ms"] > 0


def test_a_failure_after_text_keeps_the_text_and_exits_with_1(env: dict[str, str]) -> None:
    told = bourn("run", "-m", f"scripted:{FOX}?fail_at=2", "hello", env=env)
    assert (told.returncode, told.stdout) == (1, b"The quick ")
    assert b"the script says: fail here" in told.stderr
    told = bourn("run", "-m", f"scripted:{FOX}?fail_at=2", "--json", "hello", env=env)
    done = json.loads(told.stdout.splitlines()[-1])
    assert (told.returncode, done["type"], done["state"]) == (1, "done", "failed")
    assert (done["text"], done["finish_reason"]) == ("The quick ", None)
    assert done["error"]["message"] == "the script says: fail here"


def test_no_stream_and_output_file(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "answer.md"
    told = bourn("run", "-m", f"scripted:{FOX}", "--no-stream", "-o", str(file), "hello", env=env)
    assert (told.returncode, told.stdout, file.read_text()) == (0, b"", FOX)
    told = bourn("run", "-m", f"scripted:{FOX}", "-o", str(tmp_path), "hello", env=env)
    assert told.returncode == 2
    assert b"cannot write" in told.stderr


def test_stop_and_limit(env: dict[str, str]) -> None:
    model = f"scripted:{FOX}"
    told = bourn("run", "-m", model, "--stop", "fox", "--stop", "k br", "hello", env=env)
    assert told.stdout == b"The quic"
    assert bourn("run", "-m", model, "--max-new-tokens", "2", "hi", env=env).stdout == b"The quick "


def test_an_unknown_model_says_what_forms_there_are(env: dict[str, str]) -> None:
    told = bourn("run", "-m", "smolm2", "hello", env=env)
    assert told.returncode == 1
    assert b"smollm2" in told.stderr


def test_a_console_that_lacks_a_character_shows_a_question_mark(env: dict[str, str]) -> None:
    env |= {"PYTHONIOENCODING": "cp1252"}
    told = bourn("run", "-m", "scripted:hi 💬 there", "hello", env=env)
    assert (told.returncode, told.stdout) == (0, b"hi ? there")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_ctrl_c_stops_the_answer_and_keeps_what_came(env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "bourn", "run", "-m", SLOW, "--stats", "hello"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.read(3)
        process.send_signal(signal.SIGINT)
        rest, told = process.stdout.read(), process.stderr.read()
        assert process.wait(10) == 130
    assert (first + rest).decode().startswith("w0 ")
    assert "cancelled" in told.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes on Windows")
def test_a_closed_pipe_ends_it_quietly(env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "bourn", "run", "-m", SLOW, "hello"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(3)
        process.stdout.close()
        began = time.monotonic()
        assert process.wait(10) == 0
        assert process.stderr.read() == b""
    assert time.monotonic() - began < 5, "the 500 words would take 10 seconds"
