"""An engine with a server for itself: the remote engine, and a supervised process behind it.

HTTP and its wire are `Remote`'s, the process is `Child`'s; here is what it means when it is gone.
Cheap to import and to construct: the child loads while others import.
"""

from __future__ import annotations

import asyncio
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

from bourn.engines.address import Address
from bourn.engines.base import ModelInfo, check
from bourn.engines.berth import new_berth
from bourn.engines.child import Child
from bourn.engines.launch import Launch
from bourn.engines.life import Life
from bourn.engines.resident import Resident, Tenant
from bourn.errors import ConnectionFailed, EngineCrashed, EngineError, Interrupted
from bourn.types import Piece, Request
from bourn.wire.dialect import Dialect

if TYPE_CHECKING:
    from bourn.engines.http import Endpoint
    from bourn.engines.remote import Remote

_CALLED = "the engine"  # in messages: where its socket is says nothing to anybody
_DEATH_THROES = 1.0  # seconds between a broken connection and the news of a death


class Served(ABC):
    """A server in a process of its own, on a socket that nobody else can reach.

    It is started by `spawn`, or by `start`, and anew after a death. model: its name on the wire.
    name: of the program, for messages. resident: where it is kept for others; None keeps it to us.

    A resident's slots are shared with other programs: what is too much for them waits in the
    server, unseen by our own queue.
    """

    def __init__(
        self, *, model: str, dialect: Dialect, name: str, resident: Resident | None = None
    ) -> None:
        self._program = name
        self._resident = resident
        self._berth = new_berth() if resident is None else resident.berth
        self._child: Child | None = None
        self._endpoint: Endpoint | None = None
        self._wire = (model, dialect)
        self._info: ModelInfo | None = None
        self._closed = False
        weakref.finalize(self, self._berth.remove)

    @cached_property
    def _remote(self) -> Remote:
        """What asks the server. Imported once the process is on its way."""
        from bourn.engines.remote import Remote

        model, dialect = self._wire
        # the key "" is none at all, not even one from the environment
        key = self._berth.key
        return Remote(
            self._berth.base_url,
            model=model,
            api_key=key,
            dialect=dialect,
            retries=0,
            called=_CALLED,
        )

    @abstractmethod
    def _launch(self) -> Launch:
        """How it is started."""

    def spawn(self) -> Child:
        """Start the process now, and return at once. Idempotent.

        Raises:
            LoadFailed: it cannot be started.
        """
        if self._closed:
            raise EngineError("this engine was closed", hint="load the model anew")
        if self._child is None:
            self._child = self._new_child()
            self._child.spawn()
        return self._child

    def _new_child(self) -> Child:
        if self._resident is not None:
            return Tenant(self._resident, self._launch, name=self._program)
        how = self._launch()
        return Child(
            how.command,
            name=self._program,
            env=how.env,
            feed=how.feed,
            prepare=self._berth.clear,
        )

    async def start(self) -> ModelInfo:
        """Loaded and listening; started anew if it died. Idempotent.

        Raises:
            LoadFailed: it died before it was ready; with its last words.
        """
        life = await self.spawn().start(self._answers)
        if self._info is None:
            self._info = await self._find_out(life)
        return self._info

    async def generate(self, request: Request) -> AsyncGenerator[Piece, None]:
        """The pieces of one request, whose sampling is resolved.

        Raises:
            InvalidRequest: it asks for what this model or its server cannot do, or is too long.
            EngineCrashed: the process died in the middle; with its last words.
        """
        self._check(request, await self.start())
        child = self.spawn()
        assert child.life is not None
        async with blaming(child.life), aclosing(self._remote.generate(request)) as pieces:
            async for piece in pieces:
                if piece.finish is not None:
                    child.succeeded()
                yield piece

    async def count(self, request: Request) -> int | None:
        """How many tokens its prompt is, template included.

        Raises:
            TemplateError: there is no template, or it refuses the messages.
            EngineCrashed: the process died over it.
        """
        check(request, await self.start())
        life = self.spawn().life
        assert life is not None
        async with blaming(life):
            return await self._remote.count(request)

    async def aclose(self) -> None:
        """End the process, and remove its socket; leave a resident as it is. Idempotent."""
        self._closed = True
        await self._remote.aclose()
        if self._endpoint is not None:
            await self._endpoint.aclose()
        if self._child is not None:
            await asyncio.to_thread(self._child.terminate)
        self._berth.remove()

    def _check(self, request: Request, info: ModelInfo) -> None:
        check(request, info)

    async def _find_out(self, life: Life) -> ModelInfo:
        async with blaming(life):
            told = await self._remote.start()
            if told.window is None:
                await self._remote.aclose()  # so that it asks again
                raise ConnectionFailed(f"{life.name} does not tell what it has loaded")
        return told

    async def _answers(self) -> bool:
        try:
            return await self._connected().is_up("/health")
        except ConnectionFailed:  # not listening yet
            return False

    def _connected(self) -> Endpoint:
        if self._endpoint is None:
            from bourn.engines.http import Endpoint  # httpx2 takes longer than the child's start

            address = Address.of(self._berth.base_url)
            self._endpoint = Endpoint(address, api_key=self._berth.key, called=_CALLED)
        return self._endpoint


@asynccontextmanager
async def blaming(life: Life) -> AsyncGenerator[None, None]:
    """Where a connection breaks because the process died, say so."""
    try:
        yield
    except (ConnectionFailed, Interrupted) as error:
        with suppress(TimeoutError):
            await asyncio.wait_for(life.died(), _DEATH_THROES)
        if not life.dead:
            raise
        raise EngineCrashed(
            life.exit_text,
            last_words=life.last_words,
            hint="it is started anew for the next request; what came before is kept",
        ) from error
