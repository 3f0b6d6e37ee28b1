"""`bourn serve`, as a process of its own: what it says, whom it lets in, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bourn.cli.app import app_for
from tests.support.serve import Served, refused, serving

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

FOX = "scripted:The quick brown fox"
SLOW = "scripted:" + " ".join(f"w{n}" for n in range(500)) + "?delay=0.02"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "my secret question"}]}
CHAT = "/v1/chat/completions"


def answer(server: Served, key: str | None = None, **more: Any) -> str:
    with server.client(key) as client:
        told = client.post(CHAT, json=ASK | more).json()
    return str(told["choices"][0]["message"]["content"])


def test_it_says_where_it_listens_answers_and_ends_in_order(tmp_path: Path) -> None:
    with serving(FOX, "fast=scripted:Yes", home=tmp_path) as server:
        server.ready()
        assert answer(server) == "The quick brown fox"
        assert answer(server, model="fast") == "Yes"
        with server.client() as client:
            assert [each["id"] for each in client.get("/v1/models").json()["data"]] == [
                "scripted",
                "fast",
            ]
            unknown = client.post(CHAT, json=ASK | {"model": "slow"})
            assert unknown.status_code == 404
            assert "there are scripted, fast" in unknown.text
            assert client.get("/docs").status_code == 200
        assert server.end() == 0
    for said in (f"listens at {server.url}", "models  scripted, fast", "none wanted", "is ready"):
        assert said in server.told
    assert "Traceback" not in server.told
    assert "/v1/chat" not in server.told  # no line a request, unless it is asked for


def test_with_keys_nobody_else_is_let_in_and_none_is_ever_shown(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# those of the house\nfrom-file\n")
    file.chmod(0o600)
    arguments = ("--api-key", "from-flag", "--api-key-file", str(file), "--verbose")
    environ = {"BOURN_API_KEYS": "from-environment"}
    with serving(FOX, *arguments, home=tmp_path, environ=environ) as server:
        for key in ("from-flag", "from-file", "from-environment"):
            assert answer(server, key) == "The quick brown fox"
        with server.client("another") as client:
            assert client.post(CHAT, json=ASK).status_code == 401
            assert client.get("/health").status_code == 200
        assert server.end() == 0
    assert "wanted" in server.told
    for secret in ("from-flag", "from-file", "from-environment", "another", "secret question"):
        assert secret not in server.told


def test_a_unix_socket_is_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with serving(FOX, "--uds", str(path), home=tmp_path) as server:
        assert server.url == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert answer(server) == "The quick brown fox"
        assert server.end() == 0
    assert not path.exists()


def test_answers_may_be_kept_in_a_file(tmp_path: Path) -> None:
    store = tmp_path / "answers.sqlite"
    with serving(FOX, "--store", str(store), home=tmp_path) as server:
        assert answer(server) == "The quick brown fox"
        assert server.end() == 0
    assert stat.S_IMODE(store.stat().st_mode) == 0o600


def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    store = tmp_path / "diary.sqlite"
    with sqlite3.connect(store) as file:
        file.execute("CREATE TABLE diary (day, text)")
    file.close()
    done = refused(FOX, "--store", str(store), "--port", "0", home=tmp_path)
    assert done.returncode == 2
    assert f"{store} belongs to another program" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_that_cannot_be_is_told_and_nothing_is_served(tmp_path: Path) -> None:
    done = refused(FOX, "--store", str(tmp_path), "--port", "0", home=tmp_path)
    assert done.returncode == 2
    assert f"--store: {tmp_path} cannot be used" in done.stderr
    assert "name another file" in done.stderr
    assert "listens at" not in done.stderr


def test_the_first_ctrl_c_lets_an_answer_end_and_the_second_does_not(tmp_path: Path) -> None:
    with serving(SLOW, home=tmp_path) as server:
        server.ready()
        told: list[str] = []
        begun = threading.Event()

        def read() -> None:
            with (
                server.client() as client,
                client.stream("POST", CHAT, json=ASK | {"stream": True}) as response,
            ):
                for line in response.iter_lines():
                    told.append(line)
                    begun.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert begun.wait(10)
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert server.process.poll() is None
        assert server.end(signal.SIGINT) == 130
        reader.join(10)
    lines = [line for line in told if line]
    assert "the server was stopped" in lines[-2]
    assert lines[-1] == "data: [DONE]"


Refused = Callable[..., tuple[int, str]]


@pytest.fixture
def refused_here(monkeypatch: pytest.MonkeyPatch) -> Refused:
    """The exit status, and what is written, in this process, since nothing is begun."""
    monkeypatch.setenv("BOURN_CONFIG", os.devnull)

    def refused_here(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app_for(["serve"]), ["serve", *arguments])
        return done.exit_code, " ".join(done.stderr.split())

    return refused_here


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("no-such-model",), 1, "there is no model `no-such-model`"),
        ((FOX, "scripted:again"), 2, "two models are called scripted"),
        ((FOX, "--host", "0.0.0.0"), 2, "whoever can reach 0.0.0.0 could use this server"),
        ((FOX, "--host", "192.0.2.1", "--insecure"), 2, "cannot listen at 192.0.2.1:8000"),
        ((FOX, "--api-key", "two words"), 2, "cannot be sent in a header"),
        ((FOX, "--api-key-file", "/no/such/file"), 2, "cannot be read"),
        ((FOX, "--drain", "soon"), 2, "90s, 5m or 1h"),
        ((FOX, "--cors", "nonsense"), 2, "--cors nonsense is no origin"),
        ((FOX, "--cors", "https://host/path"), 2, "say https://host"),
        (("http://127.0.0.1:9/v1", "--slots", "2"), 2, "--slots is for GGUF files"),
    ],
)
def test_what_is_wrong_is_told_at_once(
    arguments: tuple[str, ...], status: int, told: str, refused_here: Refused
) -> None:
    told_status, stderr = refused_here(*arguments)
    assert told_status == status
    assert told in stderr


def test_a_port_that_is_taken_is_told_before_anything_is_loaded(refused_here: Refused) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, told = refused_here("no-such-model", "--port", port)
    assert status == 2
    assert f"cannot listen at 127.0.0.1:{port}: Address already in use" in told
    assert "--port" in told
