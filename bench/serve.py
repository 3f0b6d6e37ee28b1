"""`bourn serve` over HTTP: `python -m bench.serve [PART]... [--pairs N] [--streams N]`.

--streams: of `cpu` and `passed`. --beside PORT#MODEL: a proxy of somebody else's, measured in turn
with bourn's in `passed`; it has to stand before http://127.0.0.1:9100/v1, whose model is `m`. That
server is started here.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench import serve_models
from bench.crowd import crowd
from bench.pairs import ratio, row
from bench.servers import Server, running, served
from bench.wire import begin, question, whole

UPSTREAM = 9100
STREAMS = 300
PAUSE = 0.1  # seconds between the events of a stream
WINDOW = 4.0  # seconds of one measurement
ENDLESS = f"m=scripted:{'tick tock ' * 4000}?delay={PAUSE}"
MB = 2**20


class Options(NamedTuple):
    """streams: whose cost is measured. beside: the port of another proxy, and its model."""

    pairs: int
    streams: int
    beside: tuple[int, str] | None


# -- processor time of an event --------------------------------------------------------------------


class Cost(NamedTuple):
    """Of a server in one window: µs of processor time an event, events a second, and streams."""

    cpu: float
    rate: float
    streams: int


def cost(server: Server, streams: int, model: str = "m") -> Cost:
    """With clients of its own, who leave after it."""
    with crowd(server.port, streams, question("Hi", model=model)) as clients:
        time.sleep(1)
        events, cpu, began = clients.events, server.footprint.cpu, time.perf_counter()
        time.sleep(WINDOW)
        told = clients.events - events
        used = server.footprint.cpu - cpu
        return Cost(used / told * 1e6, told / (time.perf_counter() - began), clients.live)


def tell(name: str, costs: Sequence[Cost]) -> None:
    print(row(name, [each.cpu for each in costs], "µs an event"))
    print(row("    delivered", [each.rate for each in costs], "events/s"))
    print(row("    to", [each.streams for each in costs], "streams"), flush=True)


def cpu(options: Options) -> None:
    """Streams of 10 events/s each, from the scripted engine."""
    with served(ENDLESS) as server:
        costs = [cost(server, options.streams) for _ in range(options.pairs)]
    tell("bourn serve, scripted", costs)


def passed(options: Options) -> None:
    """The same, passed on from a server elsewhere."""
    with (
        served(ENDLESS, port=UPSTREAM) as upstream,
        served(f"m=http://127.0.0.1:{upstream.port}/v1#m") as server,
    ):
        port, model = options.beside or (0, "")
        ours, theirs = [], []
        for _ in range(options.pairs):
            ours.append(cost(server, options.streams))
            if port:
                theirs.append(cost(running(port), options.streams, model))
    tell("bourn serve, passed on", ours)
    if theirs:
        tell(f"the proxy at port {port}", theirs)
        print(f"ratio: {ratio([c.cpu for c in ours], [c.cpu for c in theirs])}")


# -- delay -----------------------------------------------------------------------------------------


def live(_: Options) -> None:
    """A thousand streams: how long an event takes from the engine to the client."""
    for pause in (1.0, 0.5, 0.25):
        with (
            served(str(pause), command=("bench.stamped",)) as server,
            crowd(server.port, 1000, question("Hi"), stamped=True) as clients,
        ):
            time.sleep(3)
            first, cpu_before = clients.events, server.footprint.cpu
            time.sleep(10)
            delays = sorted(clients.delays(first, clients.events))
            used = (server.footprint.cpu - cpu_before) / 10
            assert clients.live == 1000
        p50, p99 = (delays[int(len(delays) * part)] * 1e3 for part in (0.5, 0.99))
        print(
            f"1000 streams, {len(delays) / 10:.0f} events/s: {p50:.2f} ms in the middle, "
            f"{p99:.2f} ms p99, {delays[-1] * 1e3:.1f} ms at most; "
            f"{used:.0%} of a core, {used / len(delays) * 1e7:.0f} µs an event",
            flush=True,
        )


def cached(_: Options) -> None:
    """The first byte of an answer that is there, on a connection of its own."""
    body = question("Hi", temperature=0)

    async def firsts(server: Server) -> list[float]:
        times = []
        for _ in range(300):
            stream = await whole(server.port, body)
            times.append((stream.moments[0] - stream.began) * 1e3)
        return times[1:]

    with tempfile.TemporaryDirectory() as folder:
        for store in ("memory", f"{folder}/answers.sqlite"):
            with served("m=scripted:", "--store", store) as server:
                times = asyncio.run(firsts(server))
            name = "in memory" if store == "memory" else "on disk"
            print(row(f"a cached answer's first byte, {name}", times, "ms"), flush=True)


# -- what is left ----------------------------------------------------------------------------------


def flat(_: Options, requests: int = 10_000) -> None:
    """Requests of which a third is abandoned: what the process takes before and after."""
    with served("m=scripted:?delay=0.001&prompt_steps=3&prompt_delay=0.001&slots=16") as server:
        asyncio.run(_ask_and_leave(server.port, requests // 10))
        before = server.footprint
        asyncio.run(_ask_and_leave(server.port, requests))
        time.sleep(1)
        after = server.footprint
    print(f"{requests} requests, a third abandoned, after {requests // 10} to warm up:")
    print(f"    RssAnon + swap {before.memory / MB:.1f} MB, then {after.memory / MB:.1f} MB")
    print(f"    threads {before.threads}, then {after.threads}")
    print(f"    open files {before.files}, then {after.files}", flush=True)


async def _ask_and_leave(port: int, requests: int) -> None:
    dice = random.Random(1)
    numbers = iter(range(requests))

    async def one_after_another() -> None:
        for number in numbers:
            body = question(f"{number}: " + "word " * 200, max_tokens=20)
            if number % 3:
                await whole(port, body)
            else:
                stream = await begin(port, body)
                await asyncio.sleep(dice.random() * 0.04)
                stream.leave()

    await asyncio.gather(*(one_after_another() for _ in range(20)))


PARTS: dict[str, Callable[[Options], None]] = {
    "cpu": cpu,
    "passed": passed,
    "live": live,
    "cached": cached,
    "flat": flat,
    "speed": lambda options: serve_models.speed(options.pairs),
    "gaps": lambda options: serve_models.gaps(options.pairs),
    "leaving": lambda options: serve_models.leaving(options.pairs),
}


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.serve")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--beside", metavar="PORT#MODEL", default="")
    said = parser.parse_args(arguments)
    port, _, model = said.beside.partition("#")
    options = Options(said.pairs, said.streams, (int(port), model) if port else None)
    for name in said.parts or PARTS:
        print(f"-- {name}: {PARTS[name].__doc__ or ''}", flush=True)
        PARTS[name](options)


if __name__ == "__main__":
    main(sys.argv[1:])
