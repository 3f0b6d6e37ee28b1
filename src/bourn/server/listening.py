"""Where the server listens: bound before anything is loaded, so that what is wrong is told at once.

It knows sockets and addresses, and no HTTP.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from bourn.errors import SettingsError

BACKLOG = 2048
"""Connections that wait while the server is being made ready, or is busy."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that listens. url: how clients name it. path: of a unix socket."""

    socket: socket.socket
    url: str
    path: Path | None = None

    def close(self) -> None:
        """Listen no more, and remove what is on disk. Idempotent."""
        self.socket.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def listen(host: str, port: int) -> Listener:
    """Listen at an address; port 0 takes any that is free.

    Raises:
        SettingsError: it is taken, not ours to take, or no address of this machine.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        what = f"cannot listen at {_shown(host, port)}: {_why(error)}"
        raise SettingsError(what, hint=_hint(error)) from None
    return Listener(listening, f"http://{_shown(host, listening.getsockname()[1])}")


def listen_unix(path: Path) -> Listener:
    """Listen at a unix socket that only this user can connect to.

    Raises:
        SettingsError: something else is there, or it cannot be made.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise SettingsError("this system has no unix sockets", hint="listen at a port: --port")
    path = path.absolute()
    listening = socket.socket(socket.AF_UNIX)
    try:
        _clear(path)
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise SettingsError(
            f"cannot listen at {path}: {_why(error)}", hint="name another --uds"
        ) from None
    return Listener(listening, f"unix:{path}", path)


def is_private(host: str) -> bool:
    """Whether only programs of this machine can reach that address."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return False


def _clear(path: Path) -> None:
    """Remove what a server that was killed has left; nothing else."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise FileExistsError(errno.EEXIST, "there is a file of that name")
    with socket.socket(socket.AF_UNIX) as knock:
        knock.settimeout(1)
        if knock.connect_ex(str(path)) == 0:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    path.unlink()


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why(error: OSError) -> str:
    if error.errno is not None and error.errno > 0 and not isinstance(error, FileExistsError):
        return os.strerror(error.errno)  # without what Python adds
    return error.strerror or str(error)


def _hint(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program listens there: name another --port, or 0 for any that is free"
    if error.errno == errno.EACCES:
        return "ports below 1024 are the administrator's: name another --port"
    return "see --host and --port"
