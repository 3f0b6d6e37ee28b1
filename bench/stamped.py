"""`python -m bench.stamped SECONDS`: bourn's server, before an engine whose words are clock times.

Each answer is a word every so many seconds, about: the nanosecond at which it was made.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncGenerator
from time import perf_counter_ns

from bourn.engines.scripted import Script, Scripted
from bourn.server.app import application
from bourn.server.config import ServerConfig
from bourn.server.fleet import Fleet, Offer
from bourn.server.life import live
from bourn.server.listening import listen
from bourn.server.standby import Standby
from bourn.types import Piece, Request


class Stamped(Scripted):
    def __init__(self, pause: float) -> None:
        super().__init__(Script())
        self._pause = pause

    async def generate(self, request: Request) -> AsyncGenerator[Piece, None]:  # noqa: ARG002
        while True:  # not in step with the others
            await asyncio.sleep(self._pause * random.uniform(0.5, 1.5))
            yield Piece(f"{perf_counter_ns()} ", tokens=1)


async def main(pause: float) -> int:
    engine = Stamped(pause)
    fleet = Fleet([Offer(Standby("m", lambda _: engine))])
    config = ServerConfig()
    listener = listen("127.0.0.1", 0)

    def announce() -> None:
        print(f"listens at {listener.url}", file=sys.stderr, flush=True)

    return await live(application(fleet, config), fleet, config, listener, announce)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(float(sys.argv[1]))))
