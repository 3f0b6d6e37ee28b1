"""Servers that are measured, each a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.footprint import Footprint, footprint
from tests.support.serve import Served, environment


@dataclass(frozen=True, slots=True)
class Server:
    """port: at which it listens. pids: its processes, without engines that it has started."""

    port: int
    pids: tuple[int, ...]

    @property
    def footprint(self) -> Footprint:
        each = [footprint(pid) for pid in self.pids]
        return Footprint(*map(sum, zip(*each, strict=True)))

    @property
    def engine(self) -> psutil.Process:
        """The process of its model."""
        (child,) = psutil.Process(self.pids[0]).children()
        return child

    @property
    def socket(self) -> Path:
        """Where its llama.cpp listens, for us alone."""
        told = (each.laddr for each in self.engine.net_connections("unix"))
        return Path(next(place for place in told if place))


@contextmanager
def served(
    *models: str, port: int = 0, command: tuple[str, ...] = ("bourn", "serve")
) -> Iterator[Server]:
    """A server of these models, or another command, once all are loaded."""
    where = ("--port", str(port)) if command[0] == "bourn" else ()
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, *models, *where],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(Path(home)),
        )
        try:
            server = Served(process)
            server.ready()
            yield Server(int(server.url.rpartition(":")[2]), (process.pid,))
        finally:
            process.kill()  # its models go with it
            process.wait()


def running(port: int) -> Server:
    """One that somebody else has started, with all its processes."""
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid:
            process = psutil.Process(each.pid)
            return Server(port, (each.pid, *(c.pid for c in process.children(recursive=True))))
    raise LookupError(f"nothing listens at port {port}")
