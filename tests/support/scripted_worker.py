"""A child that runs no model: its engine does what each prompt says.

    python -P tests/support/scripted_worker.py [HOW]

A prompt such as `pieces=100&delay=0.01` is a script. `count` tells what its prompt names: how many
answers run, how many pieces were made, how much memory the process has. HOW: see `WAYS`.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from urllib.parse import parse_qsl

import psutil

from bourn.engines import OnProgress
from bourn.engines.base import ModelInfo
from bourn.engines.hf.child.worker import Config, run
from bourn.engines.scripted import ALL_FIELDS, Script, Scripted
from bourn.errors import EngineError, LoadFailed, PromptTooLong
from bourn.types import Piece, Request

WORKER = (sys.executable, "-P", str(Path(__file__)))

ERRORS: Mapping[str, Exception] = {
    "known": PromptTooLong("too long", prompt_tokens=9, window=8),
    "foreign": ZeroDivisionError("division by zero"),
    "engine": EngineError("no", hint="yes"),
    "cancelled": asyncio.CancelledError(),  # type: ignore[dict-item]
}


class Obedient(Scripted):
    """`made`: pieces of all answers."""

    def __init__(self) -> None:
        honours = ALL_FIELDS | {"logits_processor", "min_new_tokens", "token ids as prompt"}
        super().__init__(_script, window=64, notice="a notice", honours=honours)
        self.made = 0

    async def generate(self, request: Request) -> AsyncGenerator[Piece, None]:
        async with aclosing(super().generate(request)) as pieces:
            async for piece in pieces:
                self.made += 1
                yield piece

    async def count(self, request: Request) -> int | None:
        match request.prompt:
            case "running":
                return self.running
            case "made":
                return self.made
            case "memory":
                return int(psutil.Process().memory_info().rss)
            case "forever":
                await asyncio.sleep(60)
            case "fail":
                raise ERRORS["known"]
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
        return await super().count(request)


def _script(request: Request) -> Script:
    told = dict(parse_qsl(request.prompt if isinstance(request.prompt, str) else ""))
    pieces = int(told.get("pieces", 10))
    return Script(
        [told["said"]] * pieces if "said" in told else [f"{i} " for i in range(pieces)],
        delay=float(told.get("delay", 0)),
        prompt_steps=int(told.get("prompt_steps", 0)),
        prompt_delay=float(told.get("prompt_delay", 0)),
        fail_at=int(told["fail_at"]) if "fail_at" in told else None,
        error=ERRORS.get(told.get("error", "")),
    )


# -- ways of being a child -------------------------------------------------------------------------


class Loader(Obedient):
    """Tells how far it is."""

    def __init__(self, on_progress: OnProgress) -> None:
        super().__init__()
        self._on_progress = on_progress

    async def start(self) -> ModelInfo:
        for done in range(4):
            await asyncio.to_thread(self._on_progress, done, 3)
        return await super().start()


class Failing(Obedient):
    """Cannot be loaded, and says why; or raises what is none of ours."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def start(self) -> ModelInfo:
        raise self._error


def _loud() -> Obedient:
    for line in range(2000):
        print(f"rubbish {line}\0\x1b[31m", flush=True)
        print(f"progress {line}\r", file=sys.stderr, end="")
    os.write(1, b"\xff\0\0\0{")
    return Obedient()


def _dying() -> Obedient:
    sys.exit("the last words")


def _sleeping() -> Obedient:
    """Loads for a minute, in the thread of the event loop."""
    time.sleep(60)
    return Obedient()


def _deaf() -> Obedient:
    """Holds the interpreter's lock for a minute, as C code may."""
    ctypes.PyDLL(None).sleep(60)
    return Obedient()


def _echo(config: Config) -> Obedient:
    """Takes its window from what it was told, and lets its arguments and environment be looked at.

    Raises:
        LoadFailed: what was told is not secret.
    """
    if config.key and config.key in " ".join([*sys.argv, *os.environ.values()]):
        raise LoadFailed("everybody can read the key")
    engine = Obedient()
    engine._info = ModelInfo(f"{config.folder} {config.dtype}", "scripted", window=config.window)
    return engine


WAYS: Mapping[str, Callable[[Config, OnProgress], Obedient]] = {
    "obedient": lambda config, on_progress: Obedient(),
    "loader": lambda config, on_progress: Loader(on_progress),
    "refusing": lambda config, on_progress: Failing(LoadFailed("no memory", hint="buy some")),
    "foreign": lambda config, on_progress: Failing(KeyError("weights")),
    "loud": lambda config, on_progress: _loud(),
    "dying": lambda config, on_progress: _dying(),
    "sleeping": lambda config, on_progress: _sleeping(),
    "deaf": lambda config, on_progress: _deaf(),
    "echo": lambda config, on_progress: _echo(config),
}


if __name__ == "__main__":
    run(WAYS[sys.argv[1] if len(sys.argv) > 1 else "obedient"])
