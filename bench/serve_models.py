"""`bourn serve` with real models: against the bare server, and how its clients get along."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from itertools import count, pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.pairs import ratio, row
from bench.servers import served
from bench.wire import Place, begin, connect, question, whole
from bourn.catalog import resolve
from bourn.engines import engine_of
from bourn.messages import messages_of
from bourn.settings import Settings
from bourn.types import DEFAULT_SAMPLING, Request, Sampling
from tests.support.real_checkpoint import real_checkpoint

TOKENS = 100
LONG = "the fox and the hound " * 500

_number = count(100_000)


def story(**more: Any) -> dict[str, Any]:
    """A question that nobody has asked before."""
    text = f"{next(_number)}: tell me a long story about a river."
    return question(text, ignore_eos=True, **DEFAULT_SAMPLING.given(), **more)


# -- over HTTP, and without it ---------------------------------------------------------------------


async def together(place: Place, streams: int) -> float:
    """Tokens a second of so many streams, from the first question to the last end."""
    bodies = [story(max_tokens=TOKENS) for _ in range(streams)]
    began = perf_counter()
    read = await asyncio.gather(*(whole(place, body) for body in bodies))
    seconds = perf_counter() - began
    assert min(len(stream.moments) for stream in read) > 0.9 * TOKENS
    return streams * TOKENS / seconds


def speed(pairs: int) -> None:
    """Tokens a second through `bourn serve`, and from its llama.cpp asked directly."""
    with served("m=smollm2", "--slots", "8", "--window", "512") as server:
        for streams in (1, 8):
            ours, bare = [], []
            for number in range(pairs + 1):
                through = asyncio.run(together(server.port, streams))
                directly = asyncio.run(together(server.socket, streams))
                if number:
                    ours.append(through)
                    bare.append(directly)
            print(row(f"bourn serve, {streams} streams", ours, "tokens/s"))
            print(row("the bare server", bare, "tokens/s"))
            print(f"ratio: {ratio(ours, bare)}", flush=True)


# -- a long prompt beside a stream -----------------------------------------------------------------


async def beside(port: int) -> tuple[float, float]:
    """The largest gap of a stream while it is alone, and while another's prompt is read."""
    stream = await begin(port, story(max_tokens=3000))
    await stream.read(60)
    reading = asyncio.ensure_future(stream.read())
    sent = perf_counter()
    other = await begin(port, question(f"{next(_number)} {LONG}", max_tokens=1))
    await other.read(2)
    answered = perf_counter()
    reading.cancel()
    stream.leave()
    other.leave()
    times = stream.moments[10:]
    gaps = [(after, after - before) for before, after in pairwise(times)]
    alone = max(gap for after, gap in gaps if after < sent)
    return alone, max(gap for after, gap in gaps if sent <= after <= answered)


async def chunks(model: str, window: int) -> list[float]:
    """Seconds of each part in which the long prompt is read, while nobody else is there."""
    settings = Settings.load({"slots": 2, "window": window})
    engine = engine_of(resolve(model), settings, serving=True)
    try:
        await engine.start()
        sampling = Sampling(seed=1).over(DEFAULT_SAMPLING)
        request = Request(
            messages_of(f"{next(_number)} {LONG}"), sampling=sampling, max_new_tokens=1
        )
        began = perf_counter()
        async with aclosing(engine.generate(request)) as pieces:
            moments = [perf_counter() async for p in pieces if p.prompt_done or p.tokens]
    finally:
        await engine.aclose()
    return [after - before for before, after in pairwise([began, *moments])]


def gaps(pairs: int, window: int = 4096) -> None:
    """A client's long prompt beside another's stream, against one chunk of that prompt."""
    for model in ("smollm2", str(real_checkpoint())):
        largest, alone, chunk = [], [], []
        for _ in range(pairs):
            with served(f"m={model}", "--slots", "2", "--window", str(window)) as server:
                before, during = asyncio.run(beside(server.port))
            alone.append(before)
            largest.append(during)
            chunk.append(max(asyncio.run(chunks(model, window))))
        print(Path(model).name)
        print(row("largest gap of a stream that is alone", alone, "s"))
        print(row("while another's prompt is read", largest, "s"))
        print(row("the longest chunk of that prompt, read alone", chunk, "s"))
        print(f"ratio of the last two: {ratio(largest, chunk)}", flush=True)


# -- how soon it is idle ---------------------------------------------------------------------------


async def _is_idle(socket: Path) -> bool:
    reader, writer = await connect(socket)
    writer.write(b"GET /slots HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    told = (await reader.read()).partition(b"\r\n\r\n")[2]
    writer.close()
    return not any(slot["is_processing"] for slot in json.loads(told))


async def idle_after(port: int, socket: Path, body: dict[str, Any]) -> float:
    """Seconds from a hang-up, a second after the question, to an idle engine."""
    stream = await begin(port, body)
    await asyncio.sleep(1)
    assert not await _is_idle(socket)
    began = perf_counter()
    stream.leave()
    while not await _is_idle(socket):  # noqa: ASYNC110 (it is another process)
        await asyncio.sleep(0.001)
    return perf_counter() - began


def leaving(pairs: int) -> None:
    """From a hang-up to an idle llama.cpp, while it answers, and while it reads a prompt."""
    with served("m=smollm2", "--slots", "2", "--window", "4096") as server:
        for name, more in (("streamed", {}), ("whole", {"stream": False})):
            answering, reading = [], []
            for _ in range(pairs):
                short = story(max_tokens=1000) | more
                long = question(f"{next(_number)} {LONG}") | more
                answering.append(asyncio.run(idle_after(server.port, server.socket, short)))
                reading.append(asyncio.run(idle_after(server.port, server.socket, long)))
            print(row(f"idle after a hang-up, {name}, answering", answering, "s"))
            print(row(f"idle after a hang-up, {name}, reading", reading, "s"), flush=True)
    print(row("a batch of that prompt", asyncio.run(chunks("smollm2", 4096))[:-1], "s"))
