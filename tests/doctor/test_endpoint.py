"""Servers that do not speak as their clients need it, each in one way; and one that does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bourn.doctor.endpoint import examine
from bourn.doctor.finding import Finding, State
from bourn.doctor.hangup import Patience
from bourn.engines.remote import Remote
from tests.support.busy_server import BusyServer, busy
from tests.support.openai_server import (
    JSON,
    SSE,
    Answer,
    LoopbackServer,
    chunk,
    error,
    listing,
    serving,
    sse,
    usage,
)

QUICK = Patience(answer=10, idle=0.6, poll=0.01, slack=0.4)
ROLE, COUNT = chunk(None, role="assistant", content=""), usage(9, 5)
TEXT = [chunk(f"{word} ") for word in ("one", "two", "three", "four", "five")]
CUT = chunk(finish="length")


async def examined(remote: Remote, *, ask: bool = True) -> dict[str, Finding]:
    return {each.check: each async for each in examine(remote, ask=ask, patience=QUICK)}


async def answered(*frames: Any, done: bool = True, **more: Any) -> dict[str, Finding]:
    """The findings about a server that answers so, whatever it is asked."""
    return await answered_with(Answer(sse(*frames, done=done), **more))


async def answered_with(*answers: Answer) -> dict[str, Finding]:
    async with serving(*answers) as server:
        return await examined(remote(server))


def remote(server: LoopbackServer | BusyServer) -> Remote:
    return Remote(server.url, api_key="", retries=0)


async def test_a_good_one_is_good() -> None:
    async with busy(BusyServer(gauge="/slots")) as server:
        found = await examined(remote(server))
    assert {name: each.state for name, each in found.items()} == dict.fromkeys(
        (
            *("endpoint", "answer", "content type", "framing", "role chunk", "finish reason"),
            *("usage", "end mark", "hang-up"),
        ),
        State.OK,
    )


async def test_one_that_goes_on_for_nobody() -> None:
    async with busy(BusyServer(gauge="/slots", stops=False)) as server:
        found = await examined(remote(server))
    assert found.pop("hang-up").state is State.BROKEN
    assert {each.state for each in found.values()} == {State.OK}


async def test_what_could_not_be_told_is_skipped() -> None:
    async with busy(BusyServer()) as server:
        found = await examined(remote(server))
    assert found["hang-up"].state is State.SKIPPED
    assert found["hang-up"].found.startswith("could not be told: it answers several at once")


@pytest.mark.parametrize(
    ("frames", "check", "state", "said"),
    [
        ([ROLE, *TEXT, COUNT], "finish reason", State.BROKEN, "there is no finish reason"),
        ([ROLE, *TEXT, chunk(finish="stop"), COUNT], "finish reason", State.BROKEN, "it is 'stop'"),
        ([ROLE, *TEXT, chunk(finish="stop")], "finish reason", State.BROKEN, "it is 'stop'"),
        (
            [ROLE, chunk("1", finish="stop"), usage(9, 2)],
            "finish reason",
            State.OK,
            "stop, after 2",
        ),
        ([ROLE, *TEXT, CUT], "usage", State.WARNING, "none is sent"),
        ([ROLE, *TEXT, CUT, usage(9, 900)], "usage", State.WARNING, "900 tokens where 5"),
        ([ROLE, *TEXT, CUT, COUNT], "usage", State.OK, "9 tokens read, 5 written"),
        ([*TEXT, CUT, COUNT], "role chunk", State.NOTE, "does not say"),
        ([ROLE, "{", *TEXT, CUT, COUNT], "framing", State.BROKEN, "'{'"),
        (["[DONE]"], "framing", State.BROKEN, "the stream is empty"),
        ([ROLE, {"error": {"message": "out of memory"}}], "answer", State.BROKEN, "out of memory"),
    ],
)
async def test_frames(frames: list[Any], check: str, state: State, said: str) -> None:
    finding = (await answered(*frames))[check]
    assert (finding.state, said in finding.found) == (state, True), finding
    assert state is State.OK or finding.why


async def test_no_end_mark() -> None:
    finding = (await answered(ROLE, *TEXT, CUT, COUNT, done=False))["end mark"]
    assert finding.state is State.WARNING
    assert "without [DONE]" in finding.found


@pytest.mark.parametrize(
    ("headers", "state"),
    [
        (SSE, State.OK),
        ({"Content-Type": "text/event-stream; charset=utf-8"}, State.OK),
        (JSON, State.WARNING),
        ({}, State.WARNING),
    ],
)
async def test_content_types(headers: dict[str, str], state: State) -> None:
    found = await answered(ROLE, *TEXT, CUT, COUNT, headers=headers)
    assert found["content type"].state is state


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [(b"\n", b"\r\n", "\\r ends lines"), (b"data: ", b"data:", "no space after `data:`")],
)
async def test_what_is_allowed_and_yet_breaks_clients(old: bytes, new: bytes, said: str) -> None:
    body = sse(ROLE, *TEXT, CUT, COUNT).replace(old, new)
    finding = (await answered_with(Answer(body)))["framing"]
    assert (finding.state, said in finding.found) == (State.NOTE, True)


async def test_lines_that_are_no_events() -> None:
    body = sse(ROLE, *TEXT, CUT, COUNT) + json.dumps({"error": "late"}).encode()
    finding = (await answered_with(Answer(body)))["framing"]
    assert finding.state is State.BROKEN
    assert "late" in finding.found


async def test_one_that_refuses_stream_options() -> None:
    good = Answer(sse(ROLE, *TEXT, CUT))
    async with serving(error(422, {"detail": "extra: stream_options"}), good) as server:
        found = await examined(remote(server))
        asked = [each.json for each in server.asked]
    assert found["usage"].state is State.WARNING
    assert "refuses stream_options" in found["usage"].found
    assert found["answer"].state is State.OK
    assert ["stream_options" in body for body in asked] == [True, *[False] * (len(asked) - 1)]


async def test_one_that_refuses_everything() -> None:
    found = await answered_with(error(400, {"error": {"message": "no chats here"}}))
    assert found["answer"].state is State.BROKEN
    assert found["answer"].found.endswith("status 400: no chats here")
    assert {found[name].state for name in ("framing", "usage", "end mark", "hang-up")} == {
        State.SKIPPED
    }


async def test_one_that_is_not_there() -> None:
    found = await examined(Remote("http://127.0.0.1:9/v1", model="m", api_key="", retries=0))
    assert list(found) == ["endpoint"]
    assert found["endpoint"].state is State.BROKEN
    assert found["endpoint"].mend


async def test_nothing_is_asked_where_nothing_may_be() -> None:
    async with serving(models=listing("m", max_model_len=4096)) as server:
        found = await examined(remote(server), ask=False)
        assert server.asked == []
    assert found["endpoint"].found == "m, on generic, a window of 4,096 tokens"


async def test_the_answer_that_it_asks_for_is_short() -> None:
    async with serving(Answer(sse(ROLE, *TEXT, CUT, COUNT))) as server:
        await examined(remote(server))
        first = server.asked[0].json
    assert first["max_tokens"] == 5
    assert first["stream"] is True
    assert first["stream_options"] == {"include_usage": True}
