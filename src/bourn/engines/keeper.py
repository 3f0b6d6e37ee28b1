"""Keeps a server running between its users, and ends it when nobody has used it for a while.

    python keeper.py DOOR FOLDER SECONDS -- PROGRAM ARGUMENT…   (stdin: what PROGRAM is fed)

DOOR is the descriptor of a listening unix socket in FOLDER. Whoever is connected there is a user of
the server; the kernel hangs up for those who are killed. A user is told, in lines of JSON, what the
server writes to stderr, and at last how it ended. PROGRAM must end when its stdin closes, so that
it does not outlive us. Standard library only: it must start at once and weigh little.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

PATIENCE = 2.0  # seconds for an end of its own will, then SIGKILL
TICK = 1.0  # seconds between two looks at the clock and at the folder
LINES = 40  # of stderr, for those who come later
LINE = 1000  # bytes of each

USE = b"use"
STOP = b"stop"
"""What a user may send, each at once and whole; or a number: seconds without use that end it."""


def keeping(door: int, folder: Path, seconds: float, command: Sequence[str]) -> tuple[str, ...]:
    """The command that keeps `command`."""
    told = (str(door), str(folder), str(seconds))
    return (sys.executable, "-I", "-S", __file__, *told, "--", *command)


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Let nobody else of this user begin, find or end a keeper meanwhile."""
    import fcntl  # not everywhere

    with (home / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Keeper:
    """One server, and those who use it."""

    def __init__(
        self, door: socket.socket, folder: Path, seconds: float, server: subprocess.Popen[bytes]
    ) -> None:
        assert server.stderr is not None
        self._door = door
        self._folder = folder
        self._inode = folder.stat().st_ino
        self._seconds = seconds
        self._server = server
        self._said = server.stderr.fileno()
        self._line = b""  # not whole yet
        self._lines: deque[bytes] = deque(maxlen=LINES)
        self._users: set[socket.socket] = set()
        self._used = time.monotonic()
        self._stopped = False
        self._events = selectors.DefaultSelector()
        self._events.register(door, selectors.EVENT_READ, self._enter)
        self._events.register(self._said, selectors.EVENT_READ, self._hear)

    def stop(self, *_: object) -> None:
        self._stopped = True

    def run(self) -> None:
        with suppress(FileNotFoundError):  # all folders are gone: nobody will find us any more
            while not self._left():
                pass
        self._end()

    def _left(self) -> bool:
        """Keep until it is over; whether it still is when nobody can come in any more."""
        while not self._over:
            self._turn(TICK if self._users else min(TICK, self._spare))
        with locked(self._folder.parent):
            self._turn(0)  # somebody may have come meanwhile
            if self._over:
                self._door.close()
                if self._at_home:
                    shutil.rmtree(self._folder, ignore_errors=True)
        return self._over

    @property
    def _over(self) -> bool:
        if self._stopped or self._server.poll() is not None or not self._at_home:
            return True
        return not self._users and self._spare <= 0

    @property
    def _spare(self) -> float:
        """Seconds that are left where nobody uses it."""
        return self._used + self._seconds - time.monotonic()

    @property
    def _at_home(self) -> bool:
        """Whether we can be found: our folder is there, and not another keeper's since."""
        try:
            return self._folder.stat().st_ino == self._inode
        except OSError:
            return False

    def _turn(self, seconds: float) -> None:
        for key, _ in self._events.select(seconds):
            key.data()

    def _enter(self) -> None:
        with suppress(BlockingIOError):
            while True:
                user, _ = self._door.accept()
                user.settimeout(0)
                self._users.add(user)
                self._events.register(user, selectors.EVENT_READ, partial(self._obey, user))
                for line in self._lines:
                    _tell(user, line)

    def _obey(self, user: socket.socket) -> None:
        try:
            told = user.recv(64)
        except OSError:
            told = b""
        if told == STOP:
            self._stopped = True
        elif not told:
            self._events.unregister(user)
            self._users.discard(user)
            self._used = time.monotonic()
            user.close()
        elif told != USE:
            self._seconds = float(told)

    def _hear(self) -> None:
        part = os.read(self._said, 65536)
        if not part:
            self._events.unregister(self._said)
            with suppress(subprocess.TimeoutExpired):
                self._server.wait(TICK)
        *lines, self._line = (self._line + part).split(b"\n")
        self._line = self._line[:LINE]
        for line in lines:
            self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        self._lines.append(_written("said", line[:LINE].decode(errors="replace")))
        for user in self._users:
            _tell(user, self._lines[-1])

    def _end(self) -> None:
        died = self._server.poll() is not None
        if self._line:
            self._pass_on(self._line)
        assert self._server.stdin is not None
        self._server.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._server.wait(PATIENCE)
        with suppress(ProcessLookupError, PermissionError):  # all gone; macOS says the latter
            os.killpg(self._server.pid, signal.SIGKILL)
        code = self._server.wait()
        for user in self._users:
            _tell(user, _written("ended", code if died else None))
            user.close()


def _written(key: str, told: str | int | None) -> bytes:
    return json.dumps({key: told}).encode() + b"\n"


def _tell(user: socket.socket, line: bytes) -> None:
    with suppress(OSError):  # gone, or too slow to be waited for
        user.send(line)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    door, folder, seconds, _, *command = sys.argv[1:]
    listener = socket.socket(fileno=int(door))
    listener.settimeout(0)
    server = subprocess.Popen(  # noqa: S603 (the command is ours, or the user's own choice)
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    assert server.stdin is not None
    keeper = Keeper(listener, Path(folder), float(seconds), server)
    signal.signal(signal.SIGTERM, keeper.stop)
    with suppress(OSError):  # dead already, which is noticed elsewhere
        server.stdin.write(sys.stdin.buffer.read())
    keeper.run()


if __name__ == "__main__":
    main()
