"""Gradio under bourn's roof: the page is at the root, and the API beside it as ever."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from bourn.chat import Chat
from bourn.conversations import Conversations
from bourn.engines.scripted import Script
from bourn.server.config import ServerConfig
from bourn.server.keys import owner_of
from bourn.web.desk import Desk
from bourn.web.visitors import VISITOR_COOKIE, _visitor_owner, owner_of_request
from bourn.web.wishes import Wishes
from tests.support.web_site import WebSite, web_site

pytestmark = pytest.mark.timeout(90)

CHAT = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "Hi"}]}
KEYS = ServerConfig(keys=frozenset({"sk-1", "sk-2"}))


class Small:
    """A page with one function, which says who asks, and then waits until it may end."""

    def __init__(self) -> None:
        self.running = 0
        self.end = asyncio.Event()
        self.desk: Desk | None = None

    def __call__(self, desk: Desk) -> Any:
        import gradio as gr

        self.desk = desk

        async def who(_: str, request: gr.Request) -> AsyncIterator[str]:
            self.running += 1
            yield owner_of_request(request)
            await self.end.wait()

        with gr.Blocks(title="small") as blocks:
            box, said = gr.Textbox(), gr.Textbox()
            # evaluated here, where Gradio has a name for it
            who.__annotations__["request"] = gr.Request
            gr.Button("go").click(who, box, said)
        return blocks


async def said(site: WebSite, session: str) -> str:
    """What the function says first."""
    async with aclosing(site.call(session, "x")) as messages:
        async for message in messages:
            if message["msg"] == "process_generating":
                return str(message["output"]["data"][0])
    raise AssertionError("it said nothing")


async def test_the_page_is_at_the_root_and_the_api_beside_it_as_ever(tmp_path: Path) -> None:
    async with web_site(tmp_path / "c.db", Small()) as site:
        client = site.client
        page = await client.get("/")
        assert page.status_code == 200
        assert "gradio_config" in page.text
        assert "frame-ancestors" in page.headers["content-security-policy"]
        root = str(client.base_url).rstrip("/")
        assert (await client.get("/config")).json()["root"] == root
        for path in ("/health", "/ready", "/metrics", "/docs", "/openapi.json", "/v1/models"):
            told = await client.get(path)
            assert told.status_code == 200
            assert "content-security-policy" not in told.headers
            assert "gradio" not in told.text
        assert (await client.post(CHAT, json=ASK)).json()["choices"][0]["message"] == {
            "role": "assistant",
            "content": "Hello",
        }
        wrong = await client.get(CHAT)
        assert wrong.status_code == 405
        assert wrong.headers["allow"] == "POST"
        assert "there is no GET /v1/nothing" in (await client.get("/v1/nothing")).text


async def test_nobody_is_told_nothing_is_recorded_and_strangers_get_nothing(
    tmp_path: Path,
) -> None:
    async with web_site(tmp_path / "c.db", Small()) as site:
        client = site.client
        assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
        assert (await client.get("/config")).json()["analytics_enabled"] is False
        for path in ("gradio_api/runs", "gradio_api/upload", "gradio_api/mcp/", "monitoring"):
            assert (await client.get(f"/{path}")).status_code in {403, 404}
        for path in ("/", "/gradio_api/queue/join"):
            for strange in (
                {"origin": "http://evil.example.com"},
                {"origin": "http://127.0.0.1:1"},
                {"host": "evil.example.com"},
            ):
                refused = await client.post(path, json={}, headers=strange)
                assert refused.status_code == 403
                assert "access-control-allow-origin" not in refused.headers


async def test_with_keys_the_page_is_for_who_is_logged_in_and_the_api_is_not(
    tmp_path: Path,
) -> None:
    small = Small()
    async with web_site(tmp_path / "c.db", small, KEYS) as site:
        client = site.client
        assert small.desk is not None
        small.desk.conversations(owner_of("sk-1")).save("a1", Chat().ask("Hi"))
        for path in ("/", "/config", "/theme.css", "/gradio_api/info", "/gradio_api/heartbeat/x"):
            assert (await client.get(path)).status_code == 401
        logged_in = await client.post("/login", data={"key": "sk-2"})
        assert logged_in.status_code == 303
        assert (await client.get("/")).status_code == 200
        assert await said(site, "one") == owner_of("sk-2")
        for path in ("/v1/models", "/metrics", "/docs", "/openapi.json", "/v1/streams/x"):
            assert (await client.get(path)).status_code == 401
        assert (await client.post(CHAT, json=ASK)).status_code == 401
        key = {"Authorization": "Bearer sk-1"}
        assert (await client.get("/v1/models", headers=key)).status_code == 200
        assert (await client.get("/conversations/a1.md")).status_code == 404
        await client.post("/login", data={"key": "sk-1"})
        told = await client.get("/conversations/a1.md")
        assert (told.status_code, told.text) == (200, "## You\n\nHi\n")
        await client.post("/logout")
        assert (await client.get("/")).status_code == 401


async def test_many_functions_of_the_page_run_at_once(tmp_path: Path) -> None:
    small = Small()
    async with web_site(tmp_path / "c.db", small) as site:
        await site.client.get("/")
        calls = [asyncio.create_task(said(site, f"s{n}")) for n in range(60)]
        while small.running < 60:
            await asyncio.sleep(0.01)
        visitor = _visitor_owner(site.client.cookies[VISITOR_COOKIE])
        assert set(await asyncio.gather(*calls)) == {visitor}  # as whom they were asked
        small.end.set()


async def test_origins_that_may_use_the_api_may_not_use_the_page(tmp_path: Path) -> None:
    async with web_site(tmp_path / "c.db", Small(), ServerConfig(origins=("*",))) as site:
        friend = {"origin": "https://chat.example.com"}
        assert (await site.client.get("/v1/models", headers=friend)).status_code == 200
        refused = await site.client.get("/config", headers=friend)
        assert refused.status_code == 403
        assert "access-control-allow-origin" not in refused.headers


async def test_what_the_page_asks_is_neither_counted_nor_written_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bourn.access")
    async with web_site(tmp_path / "c.db", Small()) as site:
        await site.client.get("/")
        await site.client.get("/nothing/there")
        assert (await site.client.get("/v1/models")).status_code == 200
        page = (await site.client.get("/metrics")).text
        lines = [line for line in page.splitlines() if line.startswith("bourn:http_responses")]
        assert lines == ['bourn:http_responses_total{status="200"} 1.0']
    assert [line.split()[:2] for line in caplog.messages] == [
        ["GET", "/v1/models"],
        ["GET", "/metrics"],
    ]


async def test_an_open_page_does_not_keep_the_server(tmp_path: Path) -> None:
    async with web_site(tmp_path / "c.db", Small()) as site:
        await site.client.get("/")
        beat = site.client.stream("GET", "/gradio_api/heartbeat/x")
        response = await beat.__aenter__()
        assert await anext(response.aiter_lines()) == "data: ALIVE"
        assert response.headers["x-accel-buffering"] == "no"
        assert site.server.busy == 0
        began = time.monotonic()
    assert time.monotonic() - began < 10


async def test_what_is_being_answered_at_the_end_is_kept(tmp_path: Path) -> None:
    small, store = Small(), tmp_path / "c.db"
    async with web_site(store, small, script=Script(["word "] * 10_000, delay=0.01)) as site:
        assert small.desk is not None
        answering = await small.desk.ask("v1", "t1", Chat().ask("Hi"), Wishes(keep_going=True))
        async for _ in answering.watch():
            if answering.text:
                break
        assert site.fleet.live
    turn = Conversations(store, "v1").load("t1").turns[-1]
    assert turn.answer is not None
    assert turn.answer.text.startswith("word ")
    assert turn.error is not None
    assert "the server was stopped" in turn.error
