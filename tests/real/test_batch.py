"""`bourn batch` with the real model: several at once, ended and gone on with."""

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

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

LINES: list[dict[str, Any]] = [
    {"prompt": f"What is {n} plus {n}?", "temperature": 0, "max_new_tokens": 8} for n in range(4)
]
MORE: list[dict[str, Any]] = [
    {"id": "raw", "prompt": "The capital of France is", "raw": True, "max_new_tokens": 4},
    {"id": "two", "prompt": "Say hi.", "n": 2, "logprobs": 1, "max_new_tokens": 3},
    {"id": "stop", "prompt": "Count: 1, 2, 3, 4, 5.", "stop": ",", "max_new_tokens": 16},
    {"id": "long", "prompt": "word " * 5000},
    {
        "custom_id": "wire",
        "body": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3},
    },
]


def command(model: Path, asked: Path, out: Path, *more: str) -> list[str]:
    given = ("-m", model, "-o", out, "--cpu-only", *more)
    return [sys.executable, "-m", "bourn", "batch", str(asked), *map(str, given)]


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read(out: Path) -> dict[Any, dict[str, Any]]:
    told = [json.loads(line) for line in out.read_bytes().splitlines()]
    return {line.get("custom_id", line.get("id")): line for line in told}


def test_lines_of_every_kind(smollm2: Path, tmp_path: Path) -> None:
    asked, out = written(tmp_path / "in.jsonl", LINES + MORE), tmp_path / "out.jsonl"
    done = subprocess.run(
        command(smollm2, asked, out),
        capture_output=True,
        text=True,
        env=os.environ | {"HOME": str(tmp_path)},
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, "one of them is too long"
    assert "8 answered, 1 failed" in done.stderr
    lines = read(out)
    assert lines.keys() == {*range(1, 5), "raw", "two", "stop", "long", "wire"}
    assert all(lines[n]["text"] for n in range(1, 5))
    assert lines["raw"]["usage"]["completion_tokens"] == 4
    assert len(lines["two"]["choices"]) == 2
    assert len(lines["two"]["logprobs"]) == 3
    assert "," not in lines["stop"]["text"]
    assert lines["long"]["error"]["code"] == "context_length_exceeded"
    assert lines["wire"]["response"]["body"]["usage"]["completion_tokens"] == 3


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_it_goes_on_where_it_was_ended(smollm2: Path, tmp_path: Path) -> None:
    long = [line | {"max_new_tokens": 48, "ignore_eos": True} for line in LINES]
    asked, out = written(tmp_path / "in.jsonl", LINES + long * 2), tmp_path / "out.jsonl"
    env = os.environ | {"HOME": str(tmp_path)}
    begun = command(smollm2, asked, out, "--slots", "2")
    with subprocess.Popen(begun, stderr=subprocess.PIPE, env=env) as process:
        deadline = time.monotonic() + 120
        while not out.exists() or out.read_bytes().count(b"\n") < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    before = read(out)
    assert 2 <= len(before) < 12
    done = subprocess.run(begun, capture_output=True, text=True, env=env, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(before)} were answered before" in done.stderr
    lines = read(out)
    assert lines.keys() == set(range(1, 13))
    assert {id_: lines[id_] for id_ in before} == before
