"""How long a person waits for the program itself: imports, help, and the first token."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from bench.pairs import row

PYTHON = sys.executable


def seconds(*command: str) -> float:
    began = perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return perf_counter() - began


def first_byte(*command: str) -> float:
    """Seconds until the command wrote its first byte to stdout."""
    began = perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        waited = perf_counter() - began
        process.stdout.read()
    return waited


def peak_memory(*command: str) -> float:
    """The most memory of the command's own process, its children not counted, in MB."""
    peak = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        while process.stdout.read(1):  # what is read is what was written: it is alive still
            told = Path(f"/proc/{process.pid}/status").read_text()
            found = re.search(r"VmHWM:\s+([0-9]+) kB", told)
            peak = max(peak, int(found[1]) / 1000 if found else 0.0)
    return peak


def main(runs: int = 15) -> None:
    bare, imported, helped, first = [], [], [], []
    run = (PYTHON, "-m", "bourn", "run", "--max-new-tokens", "16", "Say hello.")
    first_byte(*run)
    for _ in range(runs):
        bare.append(seconds(PYTHON, "-c", "pass"))
        imported.append(seconds(PYTHON, "-c", "import bourn"))
        helped.append(seconds(PYTHON, "-m", "bourn", "--help"))
        first.append(first_byte(*run))
    over = [(later - earlier) * 1000 for later, earlier in zip(imported, bare, strict=True)]
    print(row("import bourn, over a bare Python", over, "ms"))
    print(row("bourn --help", [1000 * value for value in helped], "ms"))
    print(row("bourn run, to its first byte", first, "s"))
    print(
        row(
            "bourn run, peak memory of its own process", [peak_memory(*run) for _ in range(3)], "MB"
        )
    )


if __name__ == "__main__":
    main()
