"""One process that works for bourn: fed, listened to, and ended.

A `Process` is started by us. It holds the reading end of a pipe, its stdin, and must end when that
closes, which the kernel does for us even when we are killed. What it writes to stderr is kept, a
few lines of it, as its last words. Its death is noticed at once, by a thread that waits for nothing
else. `Life` is what any such process has, whoever started it.
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
from abc import ABC, abstractmethod
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


class Life(ABC):
    """One process, from birth to death, as far as we know of it. Safe from any thread.

    ended: whether that was our will. pid: 0 where it is no child of ours. returncode: None where it
    lives, or nobody knows.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = 0
        self.returncode: int | None = None
        self.ended = False
        self.died_at = 0.0
        self._owner = os.getpid()
        self._dead = threading.Event()
        self._lock = threading.Lock()
        self._mourners: list[Callable[[], None]] = []
        self._words: deque[str] = deque(maxlen=LINES)

    @property
    def dead(self) -> bool:
        return self._dead.is_set()

    @property
    def last_words(self) -> tuple[str, ...]:
        return tuple(self._words)

    @property
    def exit_text(self) -> str:
        """How it ended, in words."""
        if not self.dead:
            return f"{self.name} is running"
        return f"{self.name} {'is gone' if self.returncode is None else in_words(self.returncode)}"

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

    @abstractmethod
    def end(self) -> None:
        """Have done with it, and wait for that, a few seconds at most. Idempotent."""

    @abstractmethod
    def kill(self) -> None:
        """Have done with it, without waiting. Idempotent."""

    def _forget(self, tell: Callable[[], None]) -> None:
        with self._lock, suppress(ValueError):
            self._mourners.remove(tell)

    def _mourn(self, code: int | None) -> None:
        """It is dead: say so to all who wait for that."""
        with self._lock:
            self.returncode = code
            self.died_at = time.monotonic()
            self._dead.set()
            mourners, self._mourners = self._mourners, []
        logger.debug("%s", self.exit_text)
        for tell in mourners:
            tell()


class Process(Life):
    """One that bourn has started.

    Raises:
        OSError: there is no such program, or it may not be run.
    """

    def __init__(
        self, command: Sequence[str], *, name: str, env: Mapping[str, str] | None, feed: bytes
    ) -> None:
        super().__init__(name)
        self._process = _popen(command, env)
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self.pid = self._process.pid
        self._pipe = self._process.stdin
        self._drainer = start_thread(self._drain, self._process.stderr)
        self._watcher = start_thread(self._watch)
        with suppress(OSError):  # dead already, which is noticed elsewhere
            self._pipe.write(feed)

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
        code = self._process.wait()
        _signal_group(self._process, "SIGKILL")  # what it started goes with it
        self._drainer.join(0.2)  # or longer than that somebody else holds its stderr
        self._close()
        self._mourn(code)


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


def start_thread(work: Callable[..., object], *args: object) -> threading.Thread:
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
