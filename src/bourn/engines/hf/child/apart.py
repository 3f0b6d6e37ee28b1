"""An engine in a process of its own, so that its model never fights our event loop for Python.

The process is `Child`'s, the frames are `frames`'; here is who waits for which of them. It knows no
model: whatever engine the child runs is asked as if it were here.
"""

from __future__ import annotations

import asyncio
import os
import sys
import weakref
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace

from bourn.engines import OnProgress
from bourn.engines.base import ModelInfo, check
from bourn.engines.berth import Berth, new_berth
from bourn.engines.child import Child
from bourn.engines.hf.child.door import Door
from bourn.engines.hf.child.link import Link
from bourn.engines.hf.child.worker import Config
from bourn.engines.launch import environment
from bourn.engines.life import Life
from bourn.engines.served import blaming
from bourn.errors import EngineCrashed, EngineError
from bourn.types import Piece, Request

WORKER = (sys.executable, "-P", "-m", "bourn.engines.hf.child.worker")
"""-P: what lies in the current folder is not taken for a module."""

NAME = "transformers"

_DEATH_THROES = 1.0  # seconds for a child that has nobody to work for any more


class Apart:
    """The engine of `config`, in a child. `spawn` or `start` starts it; anew after a death.

    worker: the program that runs it. berth: where the child finds us; None makes one.
    on_progress: called in the event loop while weights are read, with how many of how many.
    """

    def __init__(
        self,
        config: Config,
        *,
        worker: Sequence[str] = WORKER,
        name: str = NAME,
        berth: Berth | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._berth = berth or new_berth()
        self._door = Door(self._berth, on_progress)
        told = replace(config, host=self._berth.host, port=self._berth.port, key=self._berth.key)
        self._child = Child(
            worker,
            name=name,
            env=environment(os.environ),
            feed=told.line(),
            prepare=self._door.open,
        )
        self._closed = False
        weakref.finalize(self, self._berth.remove)

    def spawn(self) -> Child:
        """Start the process now, and return at once. Idempotent.

        Raises:
            LoadFailed: it cannot be started.
        """
        self._check_open()
        self._child.spawn()
        return self._child

    async def start(self) -> ModelInfo:
        """Loaded; started anew if it died. Idempotent.

        Raises:
            LoadFailed: with what to do, or with the last words of the process.
        """
        _, info, _ = await self._started()
        return info

    async def generate(self, request: Request) -> AsyncGenerator[Piece, None]:
        """The pieces of one request, whose sampling is resolved.

        Raises:
            InvalidRequest: it asks for what this model cannot do, or holds what cannot be sent.
            EngineCrashed: the process died in the middle; with its last words.
        """
        link, info, life = await self._started()
        check(request, info)
        async with blaming(life), aclosing(link.ask(request)) as pieces:
            async for piece in pieces:
                if piece.finish is not None:
                    self._child.succeeded()
                yield piece

    async def count(self, request: Request) -> int | None:
        """How many tokens its prompt is, template included.

        Raises:
            TemplateError: there is no template, or it refuses the messages.
            EngineCrashed: the process died over it.
        """
        link, info, life = await self._started()
        check(request, info)
        async with blaming(life):
            return await link.count(request)

    async def aclose(self) -> None:
        """End the process, and remove its socket. Idempotent."""
        self._closed = True
        self._door.close(_closed())
        await asyncio.to_thread(self._child.terminate)
        self._berth.remove()

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()

    async def _started(self) -> tuple[Link, ModelInfo, Life]:
        """The link to a child that is ready, what it runs, and its life."""
        for _ in range(2):  # a link may be lost in the moment in which it is found
            self._check_open()
            life = await self._child.start(self._door.settled)
            link = self._door.link
            if link is not None and link.info is not None and not link.gone:
                return link, link.info, life
            await self._let_die(life)
            if link is not None and link.info is None and link.failure is not None:
                raise link.failure
        raise EngineCrashed(life.exit_text, last_words=life.last_words)

    async def _let_die(self, life: Life) -> None:
        """It ends by itself once nobody listens, and that counts as a death of its own."""
        if self._door.link is not None:
            self._door.link.hang_up()
        with suppress(TimeoutError):
            await asyncio.wait_for(life.died(), _DEATH_THROES)
        if not life.dead:
            life.kill()
            await life.died()


def _closed() -> EngineError:
    return EngineError("this engine was closed", hint="load the model anew")
