"""One process that bourn has started: fed, listened to, and ended.

It holds the reading end of a pipe, its stdin, and must end when that closes, which the kernel does
for us even when we are killed. What it writes to stderr is kept, a few lines of it, as its last
words. Its death is noticed at once, by a thread that waits for nothing else.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, cast

logger = logging.getLogger("bourn.engines")

LINES = 40  # of last words
LINE = 1000  # bytes of each
PATIENCE = 2.0  # seconds for an end of its own will, then SIGTERM
INSISTENCE = 1.0  # seconds after SIGTERM, then SIGKILL


class Life:
    """One process, from birth to death. Safe from any thread.

    Raises:
        OSError: there is no such program, or it may not be run.
    """

    def __init__(
        self, command: Sequence[str], *, name: str, env: Mapping[str, str] | None, feed: bytes
    ) -> None:
        self.name = name
        self.ended = False  # by us
        self.born = time.monotonic()
        self.died_at = 0.0
        self._owner = os.getpid()
        self._dead = threading.Event()
        self._lock = threading.Lock()
        self._mourners: list[Callable[[], None]] = []
        self._words: deque[str] = deque(maxlen=LINES)
        self._process = _popen(command, env)
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self._pipe = self._process.stdin
        self._drainer = _thread(self._drain, self._process.stderr)
        self._watcher = _thread(self._watch)
        with suppress(OSError):  # dead already, which is noticed elsewhere
            self._pipe.write(feed)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def dead(self) -> bool:
        return self._dead.is_set()

    @property
    def returncode(self) -> int | None:
        return self._process.returncode if self.dead else None

    @property
    def last_words(self) -> tuple[str, ...]:
        return tuple(self._words)

    @property
    def exit_text(self) -> str:
        """How it ended, in words."""
        if self.returncode is None:
            return f"{self.name} is running"
        return f"{self.name} {in_words(self.returncode)}"

    def on_death(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Have `tell` called at its death, from another thread; at once if it is dead.

        What is returned takes that back.
        """
        with self._lock:
            if not self.dead:
                self._mourners.append(tell)
                return partial(self._forget, tell)
        tell()
        return lambda: None

    async def died(self) -> None:
        """Wait for its death."""
        loop = asyncio.get_running_loop()
        death = asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed, nobody waits any more
                loop.call_soon_threadsafe(death.set)

        forget = self.on_death(tell)
        try:
            await death.wait()
        finally:
            forget()

    def end(self) -> None:
        """End it: ask by closing its stdin, then by SIGTERM, then do not ask. Idempotent."""
        if self._owner != os.getpid():
            return  # a fork of us: the child is not its own
        self.ended = True
        self._close()
        if not self._dead.wait(PATIENCE):
            self._signal("SIGTERM")
            if not self._dead.wait(INSISTENCE):
                self._signal("SIGKILL")
        self._watcher.join(PATIENCE)

    def kill(self) -> None:
        """End it without a word and without waiting."""
        if self._owner == os.getpid():
            self.ended = True
            self._close()
            self._signal("SIGKILL")

    def _forget(self, tell: Callable[[], None]) -> None:
        with self._lock, suppress(ValueError):
            self._mourners.remove(tell)

    def _close(self) -> None:
        with suppress(OSError):
            self._pipe.close()

    def _signal(self, name: str) -> None:
        if not self.dead:
            _signal_group(self._process, name)

    def _drain(self, raw: IO[bytes]) -> None:
        with io.BufferedReader(cast(io.RawIOBase, raw)) as stderr:
            whole = True
            for line in iter(partial(stderr.readline, LINE), b""):
                if whole:  # else it is the rest of a line too long to keep
                    text = line.decode(errors="replace").rstrip()
                    self._words.append(text)
                    logger.debug("%s: %s", self.name, text)
                whole = line.endswith(b"\n")

    def _watch(self) -> None:
        self._process.wait()
        _signal_group(self._process, "SIGKILL")  # what it started goes with it
        self._drainer.join(0.2)  # or longer than that somebody else holds its stderr
        self._close()
        with self._lock:
            self.died_at = time.monotonic()
            self._dead.set()
            mourners, self._mourners = self._mourners, []
        logger.debug("%s", self.exit_text)
        for tell in mourners:
            tell()


def in_words(returncode: int) -> str:
    """A process's end in words, such as "was killed by signal 11 (SIGSEGV)"."""
    if returncode >= 0:
        code = hex(returncode) if returncode > 255 else str(returncode)
        return f"ended with exit code {code}"
    number = -returncode
    name = signal.Signals(number).name if number in set(signal.Signals) else "unknown"
    text = f"was killed by signal {number} ({name})"
    if name == "SIGKILL":
        text += ", perhaps because the machine ran out of memory"
    if name == "SIGILL":
        text += ": this processor lacks an instruction that it was built with"
    return text


def _thread(work: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=args, name="bourn-child", daemon=True)
    thread.start()
    return thread


def _popen(command: Sequence[str], env: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    """In a session of its own, so that Ctrl-C in the terminal is for us alone."""
    flags = 0
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
    return subprocess.Popen(  # noqa: S603 (the command is ours, or the user's own choice)
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=env,
        start_new_session=True,
        creationflags=flags,
    )


def _signal_group(process: subprocess.Popen[bytes], name: str) -> None:
    if sys.platform == "win32":
        process.kill()
        return
    with suppress(ProcessLookupError, PermissionError):  # all gone; macOS says the latter
        os.killpg(process.pid, getattr(signal, name))
