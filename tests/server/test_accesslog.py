from __future__ import annotations

import asyncio
import logging

import pytest
from starlette.types import Receive, Scope, Send

from bourn.server.accesslog import AccessLog, tell
from tests.support.served_app import ask, hello, scope_of

STREAM = "Zk3f8Qa1-rest-of-it.which-nobody-may-know"


@pytest.fixture(autouse=True)
def _wanted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bourn.access")


async def line(caplog: pytest.LogCaptureFixture, app: AccessLog, scope: Scope) -> str:
    await ask(app, scope, b"what people write")
    (record,) = caplog.records
    return record.getMessage()


async def test_one_line_a_request(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        tell(scope, model="smollm2", stream=STREAM, origin="shared")
        await hello(scope, receive, send)
        tell(scope, tokens=57)

    said = await line(caplog, AccessLog(app), scope_of("/v1/completions", method="POST"))
    before, seconds, after = said.partition("0.0")[0], said.split()[3], said.split()[4:]
    assert before == "POST /v1/completions 200 "
    assert 0 <= float(seconds.removesuffix("s")) < 5
    assert after == ["model=smollm2", "stream=Zk3f8Qa1", "origin=shared", "tokens=57"]


@pytest.mark.parametrize("kind", ["", "chatcmpl-", "cmpl-"])
async def test_no_key_no_text_no_query_and_no_id_as_a_whole(
    caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    scope = scope_of(
        f"/v1/streams/{kind}{STREAM}/cancel",
        headers={"authorization": "Bearer sk-secret"},
        query_string=b"after=3&api-key=sk-secret",
    )
    said = await line(caplog, AccessLog(hello), scope)
    assert said.startswith(f"GET /v1/streams/{kind}Zk3f8Qa1/cancel 200 ")
    assert not [word for word in ("secret", "write", "rest", "after") if word in said]


@pytest.mark.parametrize("path", ["/a\nGET /forged 200", "/\x1b[31mred", "/ä" + "x" * 5000])
async def test_a_path_cannot_forge_a_line(caplog: pytest.LogCaptureFixture, path: str) -> None:
    said = await line(caplog, AccessLog(hello), scope_of(path))
    assert said.isprintable()
    assert said.isascii()
    assert len(said) < 300


async def test_an_answer_that_was_broken_off(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data: ", "more_body": True})

    said = await line(caplog, AccessLog(app), scope_of())
    assert "200 " in said
    assert said.endswith("s broken off")


async def test_a_client_that_did_not_wait_for_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    task = asyncio.ensure_future(ask(AccessLog(app), scope_of()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert caplog.messages[0].startswith("GET /v1/models - 0.")


async def test_nothing_is_written_or_gathered_where_nobody_wants_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "bourn.access")
    scope = scope_of()
    tell(scope, tokens=3)
    told = await ask(AccessLog(hello), scope)
    assert (told.status, caplog.records, scope) == (200, [], scope_of())
