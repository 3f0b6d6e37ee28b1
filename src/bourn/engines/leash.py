"""Runs a program that knows nothing of us, and ends it when our stdin closes.

    python leash.py -- PROGRAM ARGUMENT…

It ends as the program ends: with the same exit code, or by the same signal. A program that does not
leave after SIGTERM is killed. Standard library only: it must start at once and weigh little.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

PATIENCE = 1.0  # seconds after SIGTERM, then SIGKILL


def leashed(command: Sequence[str]) -> tuple[str, ...]:
    """The command that runs `command` on a leash."""
    # by its path, and without the user's packages, it starts in no time
    return (sys.executable, "-I", "-S", __file__, "--", *command)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    command = sys.argv[sys.argv.index("--") + 1 :]
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 (the user's own)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be run: {error}")
    threading.Thread(target=_hold, args=(program,), daemon=True).start()
    _end_like(program.wait())


def _hold(program: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        while os.read(0, 65536):
            pass  # nobody has anything to say to it
    program.terminate()
    try:
        program.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        program.kill()


def _end_like(returncode: int) -> None:
    if returncode < 0 and sys.platform != "win32":
        if -returncode not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(-returncode, signal.SIG_DFL)
        os.kill(os.getpid(), -returncode)
    os._exit(returncode)


if __name__ == "__main__":
    main()
