"""Where a child listens: a unix socket that nobody else can reach, or a port with a secret.

A socket lies in a folder of mode 0700, since servers create it readable for all. The folder's name
holds the process id of its owner, so that what a killed owner left behind is found and removed.
It knows nothing of who listens, nor of what is said.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PREFIX = "bourn-"
SOCKET = "s.sock"
LONGEST = 100  # bytes: a socket's path may hold 103 on macOS, 107 on Linux


@dataclass(frozen=True, slots=True)
class Berth:
    """A unix socket at `path`; or, where path is None, 127.0.0.1 at `port`, guarded by `key`.

    `owner` is the process that made it, the only one whose `remove` does anything: a fork of it
    does not take the folder away.
    """

    path: Path | None = None
    port: int = 0
    key: str = field(default="", repr=False)
    owner: int = 0

    @property
    def host(self) -> str:
        """What a llama.cpp server is told to listen on."""
        return "127.0.0.1" if self.path is None else str(self.path)

    @property
    def base_url(self) -> str:
        """What `Remote` is told to connect to."""
        return f"http://127.0.0.1:{self.port}/v1" if self.path is None else f"unix:{self.path}"

    def clear(self) -> None:
        """Remove the socket of an earlier listener: a stale one makes the next bind fail."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Give the folder back. Idempotent."""
        if self.path is not None and self.owner == os.getpid():
            shutil.rmtree(self.path.parent, ignore_errors=True)


def new_berth(*, unix: bool = hasattr(socket, "AF_UNIX")) -> Berth:
    """A berth of one's own.

    Raises:
        OSError: there is no folder for temporary files that can be written.
    """
    if unix:
        return Berth(path=_private_folder() / SOCKET, owner=os.getpid())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Berth(port=probe.getsockname()[1], key=secrets.token_urlsafe(32))


def _private_folder() -> Path:
    prefix = f"{PREFIX}{os.getpid()}-"
    base = next(_short_enough(f"{prefix}12345678/{SOCKET}"), "/tmp")  # noqa: S108 (0700 within)
    sweep(Path(base))
    return Path(tempfile.mkdtemp(prefix=prefix, dir=base))


def _short_enough(name: str) -> Iterator[str]:
    for base in (tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR")):
        if base and len(os.fsencode(f"{base}/{name}")) <= LONGEST and os.access(base, os.W_OK):
            yield base


def sweep(base: Path) -> None:
    """Remove the folders of owners that are dead: those of this user, where nobody answers."""
    for folder in base.glob(f"{PREFIX}*-*"):
        with suppress(OSError):  # somebody else was quicker
            if _is_stale(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_stale(folder: Path) -> bool:
    pid = folder.name.removeprefix(PREFIX).partition("-")[0]
    ours = not folder.is_symlink() and folder.is_dir() and folder.stat().st_uid == os.getuid()
    # an owner in another container has a process id that means nothing here: so knock as well
    return ours and pid.isdecimal() and not _runs(int(pid)) and not _answers(folder / SOCKET)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as knock:
        knock.settimeout(1)
        return knock.connect_ex(str(path)) == 0
