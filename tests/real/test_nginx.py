"""`bourn serve` behind nginx, as the documentation configures it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from bourn.engines.scripted import Script
from bourn.server.config import ServerConfig
from bourn.server.life import Server
from bourn.server.listening import listen
from bourn.wire.sse import ServerSentEvent, SSEDecoder
from tests.support.nginx import proxying
from tests.support.scripted_site import AS_IT_COMES, CHAT, HI, Site, site
from tests.support.serve import Served, serving

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform == "win32", reason="nginx is Debian's"),
]

STREAMED = HI | {"stream": True}
WORDS = [f"w{number} " for number in range(40)]
SILENCE = 3.0
"""Seconds between two words, where nginx waits for one."""

IMPATIENT = {"proxy_read_timeout 10m;": "proxy_read_timeout 2s;"}
BARE = dict.fromkeys(
    ("proxy_http_version 1.1;", 'proxy_set_header Connection "";', "keepalive 32;"), ""
)
"""As nginx comes: in HTTP/1.0 it buffers all that does not say otherwise."""


@dataclass(frozen=True)
class Proxied:
    """A client of nginx, and what stands behind that."""

    client: httpx2.AsyncClient
    site: Site
    server: Server


@asynccontextmanager
async def proxied(
    nginx: Path,
    folder: Path,
    script: Script,
    *,
    config: ServerConfig = AS_IT_COMES,
    changes: Mapping[str, str] = {},
) -> AsyncIterator[Proxied]:
    listener = listen("127.0.0.1", 0)
    upstream = listener.url.removeprefix("http://")
    async with site(script, config=config) as made:
        listening = asyncio.Event()
        server = Server(made.app, listening.set)
        serving = asyncio.create_task(server.serve([listener.socket]))
        await listening.wait()
        try:
            with proxying(nginx, upstream, folder, changes) as url:
                async with httpx2.AsyncClient(base_url=url, timeout=30) as client:
                    yield Proxied(client, made, server)
        finally:
            server.should_exit = True
            await serving
            listener.close()


def texts(events: list[ServerSentEvent]) -> list[str]:
    """What the chunks say; the last event has to be `[DONE]`."""
    *chunks, last = [event.data for event in events]
    assert last == "[DONE]"
    choices = [json.loads(chunk)["choices"] for chunk in chunks]
    return [choice[0]["delta"].get("content") or "" for choice in choices if choice]


async def read(answer: httpx2.Response) -> list[ServerSentEvent]:
    decoder = SSEDecoder()
    return [event async for data in answer.aiter_bytes() for event in decoder.feed(data)]


@pytest.mark.parametrize("changes", [{}, BARE], ids=["documented", "bare"])
async def test_a_stream_comes_piece_by_piece_and_as_it_is(
    changes: dict[str, str], nginx: Path, tmp_path: Path
) -> None:
    script = Script(["Hel", "lo"], delay=SILENCE)
    async with proxied(nginx, tmp_path, script, changes=changes) as way:
        decoder = SSEDecoder()
        events: list[ServerSentEvent] = []
        early = ""
        asked = {"Accept-Encoding": "gzip"}
        async with way.client.stream("POST", CHAT, json=STREAMED, headers=asked) as answer:
            assert answer.headers["server"].startswith("nginx")
            assert "content-encoding" not in answer.headers
            async for data in answer.aiter_raw():
                events += decoder.feed(data)
                if way.site.engine.running:
                    early = "".join(event.data for event in events)
        assert "Hel" in early  # it came before the rest was made
        assert "".join(texts(events)) == "Hello"


async def test_a_silence_that_nginx_would_not_wait_for_is_broken(
    nginx: Path, tmp_path: Path
) -> None:
    config = ServerConfig(hold=0.3, ping=0.3)
    script = Script(["Hel", "lo"], delay=SILENCE)
    async with (
        proxied(nginx, tmp_path, script, config=config, changes=IMPATIENT) as way,
        way.client.stream("POST", CHAT, json=STREAMED) as answer,
    ):
        assert "".join(texts(await read(answer))) == "Hello"


async def test_without_that_nginx_cuts_the_line_and_the_computing_ends(
    nginx: Path, tmp_path: Path
) -> None:
    config = ServerConfig(hold=0.3, ping=60)
    script = Script(["Hel", "lo"], delay=60)
    async with proxied(nginx, tmp_path, script, config=config, changes=IMPATIENT) as way:
        with pytest.raises(httpx2.RemoteProtocolError):
            async with way.client.stream("POST", CHAT, json=STREAMED) as answer:
                await read(answer)
        await way.site.idle()


async def test_a_plain_answer_is_silent_for_as_long_as_it_takes(
    nginx: Path, tmp_path: Path
) -> None:
    script = Script(["Hel", "lo"], delay=60)
    async with proxied(nginx, tmp_path, script, changes=IMPATIENT) as way:
        assert (await way.client.post(CHAT, json=HI)).status_code == 504
        await way.site.idle()


async def test_a_hang_up_goes_through_in_a_stream(nginx: Path, tmp_path: Path) -> None:
    async with proxied(nginx, tmp_path, Script(["x "] * 10_000, delay=0.01)) as way:
        async with way.client.stream("POST", CHAT, json=STREAMED) as answer:
            async for _ in answer.aiter_raw():
                break
            assert way.site.engine.running
        await way.site.idle()


async def test_a_hang_up_goes_through_in_a_plain_answer(nginx: Path, tmp_path: Path) -> None:
    async with proxied(nginx, tmp_path, Script(["x"], delay=60)) as way:
        asking = asyncio.create_task(way.client.post(CHAT, json=HI))
        while not way.site.engine.running:
            await asyncio.sleep(0.01)
        asking.cancel()
        await way.site.idle()


async def test_one_comes_back_without_gap_or_repeat(nginx: Path, tmp_path: Path) -> None:
    body = STREAMED | {"bourn": {"grace": 30}}
    async with proxied(nginx, tmp_path, Script(WORDS, delay=0.1)) as way:
        decoder = SSEDecoder()
        seen: list[ServerSentEvent] = []
        async with way.client.stream("POST", CHAT, json=body) as answer:
            async for data in answer.aiter_raw():
                seen += decoder.feed(data)
                if len(seen) > 5:
                    break
        stream = answer.headers["x-bourn-stream"]
        assert way.site.engine.running
        last = {"Last-Event-ID": seen[-1].id or ""}
        async with way.client.stream("GET", f"/v1/streams/{stream}", headers=last) as answer:
            rest = await read(answer)
        assert "".join(texts(seen + rest)) == "".join(WORDS)
        assert way.site.engine.started == 1


async def test_large_bodies_pass_and_connections_are_kept(nginx: Path, tmp_path: Path) -> None:
    large = {"messages": [{"role": "user", "content": "x" * 5_000_000}]}
    async with proxied(nginx, tmp_path, Script(["Hello"])) as way:
        for body in (HI, large, HI):
            answer = await way.client.post(CHAT, json=body)
            assert answer.json()["choices"][0]["message"]["content"] == "Hello"
        assert len(way.server.server_state.connections) == 1


def idle(server: Served) -> bool:
    """Whether nothing is being computed, by then; waits for that."""
    end = time.monotonic() + 30
    with server.client() as client:
        while time.monotonic() < end:
            if 'bourn:num_requests_running{model_name="m"} 0.0' in client.get("/metrics").text:
                return True
            time.sleep(0.02)
    return False


def test_a_real_model_at_a_unix_socket(nginx: Path, smollm2: Path, tmp_path: Path) -> None:
    socket = tmp_path / "s"
    with (
        serving(f"m={smollm2}", "--uds", str(socket), home=tmp_path) as server,
        proxying(nginx, server.url, tmp_path) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client,
    ):
        hello: Any = [{"role": "user", "content": "Say hello."}]
        with client.chat.completions.create(
            model="m", messages=hello, max_tokens=8, temperature=0, stream=True
        ) as stream:
            parts = [part.choices[0].delta.content or "" for part in stream]
        assert len([part for part in parts if part]) > 1
        with client.chat.completions.create(
            model="m", messages=hello, stream=True, extra_body={"ignore_eos": True}
        ) as stream:
            next(stream)
        assert idle(server)
        assert server.end() == 0
