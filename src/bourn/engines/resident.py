"""Models that stay loaded between programs: where they are, how one is found, begun and ended.

A resident is a server that a keeper (see `keeper`) keeps running, in a folder of the user's own
whose name is a digest of all that makes it what it is: who wants the same model, loaded the same
way, finds it there. Whoever listens at the door of such a folder, with a server at the socket
beside it, is a resident. It knows nothing of models and wires.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from bourn.engines.berth import LONGEST, SOCKET, Berth
from bourn.engines.child import Child
from bourn.engines.keeper import STOP, USE, keeping, locked
from bourn.engines.launch import Launch
from bourn.engines.life import PATIENCE, Life, start_thread
from bourn.errors import SettingsError

DOOR = "door"
_KNOCK_LIMIT = 5.0  # seconds for a keeper to answer the door
_STOP_LIMIT = 10.0  # seconds for one to end
_SHORT = "/tmp"  # noqa: S108 (a folder of mode 0700 within, and looked at)


@dataclass(frozen=True, slots=True)
class Sharing:
    """What the user wants of residents.

    keep_alive: seconds that one stays when nobody uses it any more: it is begun if need be. None,
    and 0, take one that is there; 0 has it end after this use.
    """

    keep_alive: float | None = None

    def resident(self, facts: object) -> Resident | None:
        """The resident that is what `facts` tell, as JSON. None: have a process of your own.

        Raises:
            SettingsError: one is to be begun, and this machine has no place for it.
        """
        name = sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
        if not self.keep_alive:
            there = (home / name for home in homes() if (home / name / DOOR).exists())
            return next((Resident(folder, self.keep_alive) for folder in there), None)
        return Resident(_new_home() / name, self.keep_alive)


@dataclass(frozen=True, slots=True)
class Resident:
    """The one of a folder, there or not."""

    folder: Path
    keep_alive: float | None

    @property
    def berth(self) -> Berth:
        """Where its server listens. It has no owner, so nobody takes it away."""
        return Berth(path=self.folder / SOCKET)

    def lease(self, name: str, launch: Callable[[], Launch]) -> Lease:
        """Use it; begun with `launch` if it is not there.

        Raises:
            OSError, LoadFailed: it cannot be begun.
        """
        with locked(self.folder.parent):
            door = _knock(self.folder) or self._begin(launch())
        door.sendall(USE if self.keep_alive is None else str(self.keep_alive).encode())
        return Lease(door, name)

    def _begin(self, how: Launch) -> socket.socket:
        _sweep(self.folder.parent)
        self.folder.mkdir(mode=0o700)
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(self.folder / DOOR))
                listener.listen()
                self._keep(how, listener.fileno())
            door = _knock(self.folder)
            assert door is not None
        except BaseException:  # an interrupt too must leave nothing behind
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return door

    def _keep(self, how: Launch, door: int) -> None:
        keeper = subprocess.Popen(  # noqa: S603 (the command is ours)
            keeping(door, self.folder, self.keep_alive or 0, how.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=how.env,
            start_new_session=True,
            pass_fds=(door,),
        )
        assert keeper.stdin is not None
        with suppress(OSError), keeper.stdin as feed:  # dead already: the door tells it
            feed.write(how.feed)
        start_thread(keeper.wait)  # it is to leave no zombie, should it end before us


class Tenant(Child):
    """A child that is no child of ours: each life of it is a use of the resident."""

    def __init__(self, resident: Resident, launch: Callable[[], Launch], *, name: str) -> None:
        super().__init__((), name=name)
        self._resident = resident
        self._launch = launch

    def _born(self) -> Life:
        return self._resident.lease(self.name, self._launch)


class Lease(Life):
    """One use of a resident, until we end it or the resident ends."""

    def __init__(self, door: socket.socket, name: str) -> None:
        super().__init__(name)
        self._door = door
        self._reader = start_thread(self._read)

    def end(self) -> None:
        self.kill()
        self._reader.join(PATIENCE)

    def kill(self) -> None:
        if self._owner == os.getpid():
            self.ended = True
            with suppress(OSError):  # hung up already
                self._door.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        code: int | None = None
        with suppress(OSError, ValueError), self._door.makefile("rb") as lines:
            for line in lines:
                told = json.loads(line)
                if "said" in told:
                    self._words.append(told["said"])
                code = told.get("ended", code)
        self._door.close()
        self._mourn(code)


def stop_all() -> int:
    """End every resident of this user, and wait for that. How many there were."""
    count = 0
    for home in homes():
        with locked(home):
            doors = [door for folder in _folders(home) if (door := _knock(folder))]
            _sweep(home)
        for door in doors:
            _stop(door)
        count += len(doors)
    return count


def _stop(door: socket.socket) -> None:
    with suppress(OSError), door:
        door.settimeout(_STOP_LIMIT)
        door.sendall(STOP)
        while door.recv(4096):
            pass


def _knock(folder: Path) -> socket.socket | None:
    """A connection to the keeper in a folder; None where there is none."""
    door = socket.socket(socket.AF_UNIX)
    try:
        door.settimeout(_KNOCK_LIMIT)
        door.connect(str(folder / DOOR))
        door.settimeout(None)
    except (FileNotFoundError, ConnectionRefusedError):
        door.close()
        return None
    except BaseException:  # an interrupt too must not leave it open
        door.close()
        raise
    return door


def _sweep(home: Path) -> None:
    """Remove what keepers left behind that were killed."""
    for folder in _folders(home):
        door = _knock(folder)
        if door is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            door.close()


def _folders(home: Path) -> Sequence[Path]:
    return [each for each in home.iterdir() if each.is_dir()]


# -- a folder that is nobody else's ----------------------------------------------------------------


def homes() -> Iterator[Path]:
    """The folders that there are for residents of this user."""
    return filter(_is_private, _places())


def _new_home() -> Path:
    """The folder for a new one.

    Raises:
        SettingsError: there is no place for it.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise SettingsError(
            "--keep-alive needs unix sockets, which Python does not have on this system",
            hint="leave keep_alive out; `bourn chat` keeps its model loaded as long as it runs",
        )
    for place in _places():
        with suppress(OSError):
            place.mkdir(mode=0o700, exist_ok=True)
            if _is_private(place):
                return place
    raise SettingsError(
        "there is no folder for a resident model that only you can reach",
        hint="let XDG_RUNTIME_DIR be a folder of your own, with a short path",
    )


def _places() -> Iterator[Path]:
    if not hasattr(socket, "AF_UNIX"):
        return
    uid = os.getuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    temporary = dict.fromkeys((tempfile.gettempdir(), _SHORT))
    for place in (Path(runtime, "bourn"), *(Path(base, f"bourn-{uid}") for base in temporary)):
        if place.is_absolute() and len(os.fsencode(place / f"{'0' * 16}/{SOCKET}")) <= LONGEST:
            yield place


def _is_private(place: Path) -> bool:
    """Whether it is a folder, this user's, closed to all others, and nobody else can replace it."""
    try:
        found, above = place.lstat(), place.parent.stat()
    except OSError:
        return False
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    closed = not stat.S_IMODE(found.st_mode) & 0o077
    held = bool(above.st_mode & stat.S_ISVTX) or not above.st_mode & stat.S_IWOTH
    return ours and closed and held and above.st_uid in (0, os.getuid())
