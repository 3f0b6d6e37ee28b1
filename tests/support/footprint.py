"""What a process takes of the machine. Linux only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import psutil


class Footprint(NamedTuple):
    """memory: bytes of its own, those that were swapped out too. cpu: seconds that it has used."""

    memory: int
    threads: int
    files: int
    cpu: float


def footprint(pid: int) -> Footprint:
    """Of one process, without its children."""
    process = psutil.Process(pid)
    told = Path(f"/proc/{pid}/status").read_text()
    own = re.findall(r"^(?:RssAnon|VmSwap):\s+([0-9]+) kB$", told, re.MULTILINE)
    times = process.cpu_times()
    return Footprint(
        memory=1024 * sum(map(int, own)),
        threads=process.num_threads(),
        files=process.num_fds(),
        cpu=times.user + times.system,
    )
