"""The web page, in a real Chromium and by its protocol: `python -m bench.web [pixels long crowd]`.

The server is a process of its own, before an engine that says what it is told to. Chromium is the
system's (`/usr/bin/chromium`), without a window.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import psutil
from playwright.async_api import Page, async_playwright

from bench.servers import Server, served
from bench.stamped import Stamped
from bourn.engines.scripted import Script, Scripted
from bourn.server.app import application
from bourn.server.config import ServerConfig, WebConfig
from bourn.server.fleet import Fleet, Offer
from bourn.server.life import live
from bourn.server.listening import listen
from bourn.server.standby import Standby
from bourn.web.mount import site

CHROMIUM = "/usr/bin/chromium"
SAMPLE = Path(__file__).parents[1] / "tests" / "support" / "sample.md"
LONG = (SAMPLE.read_text("utf-8") * 8)[:10_000]
CLIENTS, PAGES, STREAMS = 98, 2, 20
WINDOW = 15.0  # seconds of one measurement
MB = 2**20


# -- the server ------------------------------------------------------------------------------------


def _in_pieces(text: str, size: int, delay: float) -> Script:
    return Script([text[at : at + size] for at in range(0, len(text), size)], delay)


ENGINES: Mapping[str, Callable[[], Scripted]] = {
    "pixels": lambda: Stamped(0.05),
    "long": lambda: Scripted(_in_pieces(LONG, 12, 0.02)),
    "crowd": lambda: Stamped(0.1),
}


async def serve(part: str) -> int:
    fleet = Fleet([Offer(Standby("m", lambda _: ENGINES[part]()))])
    config = ServerConfig()
    listener = listen("127.0.0.1", 0)

    def announce() -> None:
        print(f"listens at {listener.url}", file=sys.stderr, flush=True)

    app = application(fleet, config, site(fleet, config, WebConfig()))
    return await live(app, fleet, config, listener, announce)


# -- a page in Chromium ----------------------------------------------------------------------------

WATCH = """() => {
  const now = document.querySelector("#now");
  const seen = window.seen = new Map(), changes = window.changes = [], long = window.long = [];
  const painted = new MessageChannel();
  let waiting = false;
  painted.port1.onmessage = () => {           // after the frame that shows it
    waiting = false;
    const at = performance.now();
    changes.push(at);
    for (const [stamp] of now.textContent.matchAll(/[0-9]{12,}/g))
      if (!seen.has(stamp)) seen.set(stamp, at);
  };
  new MutationObserver(() => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => painted.port2.postMessage(0));
  }).observe(now, {childList: true, characterData: true, subtree: true});
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) long.push(entry.duration);
  }).observe({type: "longtask"});
}"""


@asynccontextmanager
async def opened(server: Server, pages: int = 1) -> AsyncIterator[list[Page]]:
    """Tabs of so many visitors, once they can be used."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM)
        tabs = []
        for _ in range(pages):
            context = await browser.new_context()
            tab = await context.new_page()
            await tab.goto(f"http://127.0.0.1:{server.port}/")
            await tab.locator("#box textarea").wait_for()
            await tab.evaluate(WATCH)
            tabs.append(tab)
        yield tabs
        await browser.close()


async def ask(tab: Page, text: str = "Go on") -> None:
    await tab.locator("#box textarea").fill(text)
    await tab.locator("#box textarea").press("Enter")


async def offset(tab: Page) -> float:
    """Milliseconds from the page's clock to `perf_counter`'s, by the quickest of some answers."""
    best = (float("inf"), 0.0)
    for _ in range(50):
        before = time.perf_counter_ns() / 1e6
        there = await tab.evaluate("performance.now()")
        after = time.perf_counter_ns() / 1e6
        best = min(best, (after - before, (before + after) / 2 - there))
    print(f"clocks agree within {best[0] / 2:.1f} ms")
    return best[1]


def quantiles(values: list[float]) -> str:
    ordered = sorted(values)
    p95, p99 = (ordered[int(len(ordered) * part)] for part in (0.95, 0.99))
    middle = statistics.median(ordered)
    return f"{middle:.0f} ms in the middle, {p95:.0f} p95, {p99:.0f} p99, {ordered[-1]:.0f} at most"


# -- what is measured ------------------------------------------------------------------------------


async def pixels(server: Server) -> None:
    """From the moment at which the engine makes a word to the frame that shows it."""
    async with opened(server) as (tab,):
        apart = await offset(tab)
        await ask(tab)
        await asyncio.sleep(WINDOW)
        seen = await tab.evaluate("[...seen]")
    delays = [there + apart - int(stamp) / 1e6 for stamp, there in seen]
    print(f"from the engine to the page, {len(delays)} words, the first after {delays[0]:.0f} ms: ")
    print(quantiles(delays))


async def long(server: Server) -> None:
    """An answer of 10,000 characters of Markdown, while it streams."""
    async with opened(server) as (tab,):
        await ask(tab)
        await tab.locator("#stop").wait_for(state="visible")
        await tab.locator("#stop").wait_for(state="hidden", timeout=120_000)
        changes, tasks = await tab.evaluate("[changes, long]")
        shown = await tab.locator("#now").inner_text()
    gaps = [after - before for before, after in pairwise(changes)]
    seconds = (changes[-1] - changes[0]) / 1e3
    print(f"{len(LONG)} characters, {len(shown)} shown, {len(changes)} updates in {seconds:.1f} s")
    print("between two updates: " + quantiles(gaps))
    over = sum(task > 100 for task in tasks)
    longest = max(tasks, default=0)
    print(f"{len(tasks)} tasks of over 50 ms, {over} of over 100 ms, the longest {longest:.0f} ms")


@dataclass
class Client:
    """A tab, as far as the server can tell. updates: moments at which something new was shown."""

    http: httpx2.AsyncClient
    session: str = field(default_factory=lambda: secrets.token_hex(5))
    updates: list[float] = field(default_factory=list)

    async def open(self) -> dict[str, Any]:
        (await self.http.get("/")).raise_for_status()
        return dict((await self.http.get("/config")).json())

    async def beat(self) -> None:
        """Stay, as long as this is not cancelled."""
        async with self.http.stream("GET", f"/gradio_api/heartbeat/{self.session}") as news:
            async for _ in news.aiter_bytes():
                pass

    async def ask(self, config: Mapping[str, Any]) -> None:
        """Have something answered and read it, as long as this is not cancelled."""
        event = submission(config)
        data = ["", "m", *[""] * (len(event["inputs"]) - 4), False, "Go on"]
        talk = None
        async for message in self._told(event["id"], data):
            if message["msg"] == "process_completed":
                talk = message["output"]["data"][0]
        follow = next(
            each for each in config["dependencies"] if each["trigger_after"] == event["id"]
        )
        async for message in self._told(follow["id"], [talk]):
            assert message["msg"] != "process_completed", message
            if message["msg"] == "process_generating":
                self.updates.append(time.perf_counter())

    async def _told(self, event: int, data: Sequence[Any]) -> AsyncIterator[dict[str, Any]]:
        body = {"data": data, "fn_index": event, "session_hash": self.session}
        (await self.http.post("/gradio_api/queue/join", json=body)).raise_for_status()
        where = f"/gradio_api/queue/data?session_hash={self.session}"
        async with self.http.stream("GET", where) as news:
            async for line in news.aiter_lines():
                if line.startswith("data:"):
                    yield json.loads(line[5:])


def submission(config: Mapping[str, Any]) -> dict[str, Any]:
    """The event that sends what is in the box."""
    ids = {each["props"].get("elem_id"): each["id"] for each in config["components"]}
    return next(
        each for each in config["dependencies"] if [ids["box"], "submit"] in each["targets"]
    )


async def crowd(server: Server) -> None:
    """98 clients by the protocol and 2 pages; 18 of those and the pages have an answer made."""
    limits = httpx2.Limits(max_connections=None)
    process = psutil.Process(server.pids[0])
    print(f"alone: {process.memory_info().rss / MB:.0f} MB")
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        clients = []
        for _ in range(CLIENTS):
            http = httpx2.AsyncClient(
                base_url=f"http://127.0.0.1:{server.port}", timeout=60, limits=limits
            )
            clients.append(Client(await stack.enter_async_context(http)))
        config = [await each.open() for each in clients][-1]
        staying = [group.create_task(each.beat()) for each in clients]
        tabs = await stack.enter_async_context(opened(server, PAGES))
        asking = clients[: STREAMS - PAGES]
        staying += [group.create_task(each.ask(config)) for each in asking]
        for tab in tabs:
            await ask(tab)
        await asyncio.sleep(5)
        await _window(server, process, asking, tabs)
        for task in staying:
            task.cancel()


async def _window(
    server: Server, process: psutil.Process, asking: list[Client], tabs: list[Page]
) -> None:
    before = [len(each.updates) for each in asking]
    seen = [len(await tab.evaluate("changes")) for tab in tabs]
    cpu, peak, began = server.footprint.cpu, 0, time.perf_counter()
    while time.perf_counter() - began < WINDOW:
        peak = max(peak, process.memory_info().rss)
        await asyncio.sleep(0.2)
    seconds = time.perf_counter() - began
    rates = [
        (len(each.updates) - first) / seconds for each, first in zip(asking, before, strict=True)
    ]
    shown = [len(await tab.evaluate("changes")) for tab in tabs]
    frames = [(last - first) / seconds for last, first in zip(shown, seen, strict=True)]
    print(f"by the protocol, {len(rates)}: {min(rates):.1f} to {max(rates):.1f} updates/s each")
    print(f"in Chromium, {len(tabs)}: {min(frames):.1f} to {max(frames):.1f} updates/s each")
    print(f"{(server.footprint.cpu - cpu) / seconds:.0%} of a core, {peak / MB:.0f} MB at most")
    assert min(*rates, *frames) > 0, "somebody stands still"


PARTS: Mapping[str, Callable[[Server], Awaitable[None]]] = {
    "pixels": pixels,
    "long": long,
    "crowd": crowd,
}


def main(parts: list[str]) -> None:
    for part in parts or PARTS:
        print(f"\n### {part}\n", flush=True)
        with served(part, command=("bench.web", "serve")) as server:
            asyncio.run(_run(part, server))


async def _run(part: str, server: Server) -> None:
    await PARTS[part](server)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        sys.exit(asyncio.run(serve(sys.argv[2])))
    main(sys.argv[1:])
