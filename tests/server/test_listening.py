"""Where the server listens, and what is told where it cannot."""

from __future__ import annotations

import socket
import stat
import sys
from pathlib import Path

import pytest

from bourn.errors import SettingsError
from bourn.server.listening import is_private, listen, listen_unix

unix = pytest.mark.skipif(sys.platform == "win32", reason="unix sockets")


def answers(where: str | tuple[str, int], family: int = socket.AF_INET) -> bool:
    with socket.socket(family) as knock:
        return knock.connect_ex(where) == 0


def test_a_free_port_is_found_and_told() -> None:
    listener = listen("127.0.0.1", 0)
    port = int(listener.url.removeprefix("http://127.0.0.1:"))
    assert port > 0
    assert answers(("127.0.0.1", port))
    listener.close()
    listener.close()
    assert not answers(("127.0.0.1", port))
    again = listen("127.0.0.1", port)
    again.close()


def test_a_port_that_is_taken_is_told_with_the_flag() -> None:
    first = listen("127.0.0.1", 0)
    port = int(first.url.rpartition(":")[2])
    with pytest.raises(SettingsError, match=r"Address already in use$") as caught:
        listen("127.0.0.1", port)
    assert "--port" in caught.value.hint
    first.close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_that_is_not_ours_is_told(host: str) -> None:
    with pytest.raises(SettingsError, match=f"cannot listen at {host}:8000") as caught:
        listen(host, 8000)
    assert "--host" in caught.value.hint


def test_ipv6_is_written_as_urls_write_it() -> None:
    try:
        listener = listen("::1", 0)
    except SettingsError:
        pytest.skip("no IPv6 here")
    assert listener.url.startswith("http://[::1]:")
    listener.close()


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("host.example", False),
        ("", False),
    ],
)
def test_who_can_reach_an_address(host: str, private: bool) -> None:
    assert is_private(host) is private


@unix
def test_a_unix_socket_is_its_users_alone_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listener = listen_unix(path)
    assert listener.url == f"unix:{path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert answers(str(path), socket.AF_UNIX)
    with pytest.raises(SettingsError, match="Address already in use"):
        listen_unix(path)
    listener.close()
    assert not path.exists()


@unix
def test_what_a_killed_server_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "s"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    listener = listen_unix(path)
    assert answers(str(path), socket.AF_UNIX)
    listener.close()


@unix
def test_a_file_in_its_place_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary")
    with pytest.raises(SettingsError, match="there is a file of that name"):
        listen_unix(path)
    assert path.read_text() == "dear diary"
    with pytest.raises(SettingsError, match="cannot listen"):
        listen_unix(tmp_path / "no" / "folder")
    with pytest.raises(SettingsError, match="too long"):
        listen_unix(tmp_path / ("x" * 200))
