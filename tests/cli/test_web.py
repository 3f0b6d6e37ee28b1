"""`bourn web`, and `bourn serve --web`: what they say, whom they let in, and how they end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bourn.cli.app import app_for
from bourn.cli.web import PORT, has_display, here
from tests.support.serve import Served, serving

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals"),
    pytest.mark.timeout(120),
]

FOX = "scripted:The quick brown fox"
ASK = {"messages": [{"role": "user", "content": "Hi"}]}
SESSION = "session1234567890"


def answers(server: Served, key: str | None = None) -> str:
    with server.client(key) as client:
        told = client.post("/v1/chat/completions", json=ASK).json()
    return str(told["choices"][0]["message"]["content"])


def test_a_server_with_an_open_page_ends_soon_and_has_told_no_secret(tmp_path: Path) -> None:
    store = str(tmp_path / "c")
    arguments = ("--web", "--api-key", "sk-1", "--verbose", "--conversations", store)
    with serving(FOX, *arguments, home=tmp_path) as server, server.client() as client:
        away = client.get("/", headers={"accept": "text/html"})
        assert (away.status_code, away.headers["location"]) == (303, "/login")
        assert client.post("/login", data={"key": "sk-guessed"}).status_code == 401
        assert client.post("/login", data={"key": "sk-1"}).status_code == 303
        cookie = client.cookies["bourn_login"]
        assert "gradio_config" in client.get("/").text
        assert client.get("/v1/models").status_code == 401
        assert answers(server, "sk-1") == "The quick brown fox"
        with client.stream("GET", f"/gradio_api/heartbeat/{SESSION}") as beat:
            assert next(beat.iter_lines()) == "data: ALIVE"
            began = time.monotonic()
            assert server.end() == 0
            assert time.monotonic() - began < 15  # a running answer would have 30
    assert f"page    {server.url}/" in server.told
    assert "POST /v1/chat/completions 200" in server.told
    assert "a wrong key" in server.told
    for secret in ("sk-1", "sk-guessed", cookie, cookie.rpartition(".")[2], SESSION, "Traceback"):
        assert secret not in server.told


def test_the_page_alone_is_one_command(tmp_path: Path) -> None:
    with serving(FOX, "fast=scripted:Yes", "--no-browser", home=tmp_path, by="web") as server:
        with server.client() as client:
            page = client.get("/")
        assert page.status_code == 200
        assert "gradio_config" in page.text
        assert "bourn_visitor" in page.headers["set-cookie"]
        assert answers(server) == "The quick brown fox"
        assert server.end() == 0
    assert f"page    {server.url}/" in server.told
    assert "models  scripted, fast" in server.told


Refused = Callable[..., tuple[int, str]]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Refused:
    """The exit status, and what is written, in this process, since nothing is begun."""
    monkeypatch.setenv("BOURN_CONFIG", os.devnull)

    def refused(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app_for(arguments), arguments)
        return done.exit_code, " ".join(done.stderr.split())

    return refused


@pytest.mark.parametrize("command", [("web",), ("serve", "--web")], ids=" ".join)
def test_a_page_for_everybody_is_no_accident(command: tuple[str, ...], refused: Refused) -> None:
    status, told = refused(*command, FOX, "--host", "0.0.0.0")
    assert status == 2
    assert "whoever can reach 0.0.0.0 could use this server" in told
    assert "--insecure" in told


def test_what_is_said_of_a_page_that_is_not_wanted_is_refused(refused: Refused) -> None:
    status, told = refused("serve", FOX, "--conversations", "here.db")
    assert status == 2
    assert "--conversations is for the page" in told
    assert "--web" in told


@pytest.mark.parametrize("command", [("web",), ("serve", "--web")], ids=" ".join)
def test_without_gradio_it_is_told_how_to_get_it(
    command: tuple[str, ...], refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(name: str) -> object:
        return None if name == "gradio" else find_spec(name)

    monkeypatch.setattr("bourn.cli.serving.find_spec", without)
    status, told = refused(*command, FOX)
    assert status == 2
    assert "pip install 'bourn[web]'" in told


def test_its_help_says_where_it_is() -> None:
    told = CliRunner().invoke(app_for(["web"]), ["web", "--help"], terminal_width=200).output
    assert f"[default: {PORT};" in told
    assert "[default: 127.0.0.1]" in told


@pytest.mark.parametrize(
    ("environ", "platform", "shown"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"DISPLAY": ""}, "linux", False),
        ({}, "darwin", True),
        ({}, "win32", True),
        ({"SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 22"}, "darwin", False),
    ],
)
def test_a_browser_is_opened_where_it_can_be_seen(
    environ: dict[str, str], platform: str, shown: bool
) -> None:
    assert has_display(environ, platform) is shown


@pytest.mark.parametrize(
    ("url", "opened"),
    [
        ("http://127.0.0.1:7860", "http://127.0.0.1:7860"),
        ("http://0.0.0.0:7860", "http://127.0.0.1:7860"),
        ("http://[::]:7860", "http://[::1]:7860"),
    ],
)
def test_a_browser_is_given_an_address_that_it_can_open(url: str, opened: str) -> None:
    assert here(url) == opened
