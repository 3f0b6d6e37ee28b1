"""`bourn serve` as people start it: a process of its own, and where it listens."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import psutil


class Served:
    """A server that runs. url: where it listens, for which it was waited."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: list[str] = []
        self._listens = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._listens.wait(30):
            raise TimeoutError(self.told)
        said = re.search(r"listens at (\S+)", self.told)
        assert said is not None, self.told
        self.url = said[1]

    @property
    def told(self) -> str:
        """What it has written to stderr so far."""
        return "".join(self._lines)

    @property
    def engines(self) -> list[psutil.Process]:
        """The processes that it has started."""
        return [
            child
            for child in psutil.Process(self.process.pid).children(recursive=True)
            if runs(child)
        ]

    def client(self, key: str | None = None) -> httpx2.Client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        if self.url.startswith("unix:"):
            transport = httpx2.HTTPTransport(uds=self.url.removeprefix("unix:"))
            return httpx2.Client(transport=transport, base_url="http://x", headers=headers)
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60)

    def ready(self) -> None:
        """Wait until all models are loaded."""
        end = time.monotonic() + 60
        with self.client() as client:
            while client.get("/ready").status_code != 200:
                if time.monotonic() > end:
                    raise TimeoutError(self.told)
                time.sleep(0.02)

    def count(self, name: str, model: str) -> int:
        """What `/metrics` counts of a model."""
        with self.client() as client:
            told = client.get("/metrics").text
        found = re.search(rf'^{name}{{.*model_name="{model}".*}} (\S+)$', told, re.MULTILINE)
        return int(float(found[1])) if found else 0

    def idle(self, model: str, seconds: float = 30) -> bool:
        """Whether nothing of it is being computed by then; waits for that."""
        return self.becomes("bourn:num_requests_running", model, 0, seconds)

    def becomes(self, name: str, model: str, value: int, seconds: float = 30) -> bool:
        """Whether it counts so many by then; waits for that."""
        end = time.monotonic() + seconds
        while self.count(name, model) != value:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit status after a signal."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(30)
        self._reader.join(5)
        return status

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.append(line)
            if "listens at" in line:
                self._listens.set()
        self._listens.set()  # or it never will


def runs(process: psutil.Process) -> bool:
    """Whether it has not ended. It may at any moment, this one too."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def gone(processes: list[psutil.Process], seconds: float = 30) -> bool:
    """Whether all have ended by then; waits for that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(map(runs, processes)):
            return True
        time.sleep(0.02)
    return False


def environment(home: Path, more: Mapping[str, str] = {}) -> dict[str, str]:
    """An empty home, and no settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BOURN_")}
    return {**kept, "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), **more}


@contextmanager
def serving(
    *arguments: str,
    home: Path,
    environ: Mapping[str, str] = {},
    by: str = "serve",
) -> Iterator[Served]:
    """A server with these arguments, on a free port unless they name another place.

    by: the command of bourn's that is it.
    """
    where = () if "--uds" in arguments else ("--port", "0")
    command = [sys.executable, "-m", "bourn", by, *arguments, *where]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment(home, environ)
    ) as process:
        try:
            yield Served(process)
        finally:
            process.kill()


def refused(
    *arguments: str,
    home: Path,
    environ: Mapping[str, str] = {},
) -> subprocess.CompletedProcess[str]:
    """What becomes of a server that cannot be started."""
    command = [sys.executable, "-m", "bourn", "serve", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment(home, environ),
        timeout=30,
        check=False,
    )
