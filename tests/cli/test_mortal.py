from __future__ import annotations

import signal
import sys
import time

import pytest

from bourn.cli.mortal import Mortal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")


def test_a_signal_is_an_exit_and_no_failure() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, Mortal():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_held_it_ends_only_when_that_is_over() -> None:
    seen = []

    def start(mortal: Mortal) -> None:
        with mortal.held():
            signal.raise_signal(signal.SIGTERM)
            seen.append("went on")
        seen.append("never")

    with Mortal() as mortal, pytest.raises(SystemExit):
        start(mortal)
    assert seen == ["went on"]


def test_where_an_exit_may_be_swallowed_it_comes_a_moment_later() -> None:
    code = "signal.raise_signal(signal.SIGTERM); seen.append('imported')"
    seen: list[str] = []

    def start() -> None:
        exec(compile(code, "<frozen importlib._bootstrap>", "exec"), globals() | {"seen": seen})
        time.sleep(20)

    with Mortal(), pytest.raises(SystemExit):
        start()
    assert seen == ["imported"]


def test_unsignalled_it_does_nothing() -> None:
    with Mortal() as mortal, mortal.held():
        pass
    with pytest.raises(SystemExit), mortal:
        signal.raise_signal(signal.SIGTERM)
