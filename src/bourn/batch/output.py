"""The file that a batch writes: a line for each job, there as soon as it is done.

What a run that ended early has left is gone on with. Lines that hold a result stay, and their jobs
are not done again. Lines that hold an error are taken out when the next run begins, and their jobs
are tried anew; so is the line that was being written. A file with anything else in it is not ours,
and refused.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import jiter

from bourn.batch.jobs import Id
from bourn.errors import InvalidRequest, StoreFailed

_BEGINNINGS = (b'{"id": ', b'{"custom_id": ')
"""What each line that is written here begins with."""


class Output:
    """Where the lines go. done: the ids of the jobs that have a result there already."""

    def __init__(self, file: IO[bytes], name: str, done: frozenset[Id] = frozenset()) -> None:
        self.name = name
        self.done = done
        self._file = file

    def write(self, told: Mapping[str, Any]) -> None:
        """One line more, for others to see at once.

        Raises:
            StoreFailed: it could not be written, or not all of it.
        """
        line = memoryview(json.dumps(told, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        try:
            while line:
                line = line[self._file.write(line) :]
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StoreFailed(
                f"cannot write to {self.name}: {error.strerror}",
                hint="make room, and run the same again: what is done stays",
            ) from error


@contextmanager
def opened(path: Path) -> Iterator[Output]:
    """The output in a file, which is made or gone on with. Nobody else may write to it meanwhile.

    Raises:
        InvalidRequest: it holds something else, or another run writes to it.
        StoreFailed: it cannot be read or written.
    """
    with ExitStack() as stack:
        try:
            output = _opened(path, stack)
        except OSError as error:
            raise StoreFailed(
                f"cannot write to {path}: {error.strerror}",
                hint="see that the file and its folder are writable for you",
            ) from error
        yield output


def _opened(path: Path, stack: ExitStack) -> Output:
    # without a buffer, so that nothing is left to be written when a disk is full
    if path.exists() and not path.is_file():  # /dev/null, or a pipe with a name
        return Output(stack.enter_context(path.open("wb", buffering=0)), str(path))
    real = path.resolve()  # a link stays one
    stack.enter_context(_locked(real))
    done = _taken_up(real)
    return Output(stack.enter_context(real.open("ab", buffering=0)), str(path), done)


# -- what is there ---------------------------------------------------------------------------------


def _taken_up(path: Path) -> frozenset[Id]:
    """Take out what is no result; the ids of those that stay."""
    if not path.exists():
        return frozenset()
    done: set[Id] = set()
    clean = True
    for id_, _ in _lines(path):
        clean = clean and id_ is not None and id_ not in done
        if id_ is not None:
            done.add(id_)
    if not clean:
        _rewrite(path)
    return frozenset(done)


def _rewrite(path: Path) -> None:
    """Without the lines that are no result, all at once: who kills this finds one or the other."""
    draft = path.with_name(f".{path.name}.new")
    written: set[Id] = set()
    with draft.open("wb") as new:
        for id_, line in _lines(path):
            if id_ is not None and id_ not in written:
                new.write(line)
                written.add(id_)
        new.flush()
        os.fsync(new.fileno())
    shutil.copymode(path, draft)
    draft.replace(path)


def _lines(path: Path) -> Iterator[tuple[Id | None, bytes]]:
    """Each line, with its id where it holds a result."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            yield _id_of(line, path, number), line


def _id_of(line: bytes, path: Path, number: int) -> Id | None:
    """The id of a result; None for what may be taken out.

    Raises:
        InvalidRequest: it is no line of ours.
    """
    if not line.endswith(b"\n"):  # the last one, which somebody was writing
        if any(line.startswith(ours) or ours.startswith(line) for ours in _BEGINNINGS):
            return None
        raise _foreign(path, number)
    try:
        told = {} if line.isspace() else jiter.from_json(line)
    except ValueError:
        raise _foreign(path, number) from None
    match told:
        case {"error": dict()}:
            return None
        case {"custom_id": str() | int() as id_, "response": dict()}:
            return id_
        case {"id": str() | int() as id_, "text": str()}:
            return id_
        case dict() if not told:
            return None
    raise _foreign(path, number)


def _foreign(path: Path, number: int) -> InvalidRequest:
    return InvalidRequest(
        f"line {number} of {path} is no result of a batch", hint="name another file for the output"
    )


# -- one at a time ---------------------------------------------------------------------------------


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Nobody else has it meanwhile. The lock is on a file beside it, which goes away with it."""
    name = path.with_name(f".{path.name}.lock")
    while True:
        lock = name.open("ab")
        if not _lock(lock):
            lock.close()
            raise InvalidRequest(
                f"another run is writing to {path}", hint="wait for it, or name another file"
            )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), name.stat()):
                break
        lock.close()  # whoever had it has taken it away
    try:
        yield
    finally:
        with suppress(OSError):  # Windows takes no open file away
            name.unlink()
        lock.close()


def _lock(file: IO[bytes]) -> bool:
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system that has no locks: nothing to be done about it
        return True
    return True
