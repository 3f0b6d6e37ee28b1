"""Coming back to a stream, and ending it by its id."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from bourn.archive import Archive
from bourn.engines.scripted import Script, Scripted
from bourn.journal.sqlite import SqliteJournals
from bourn.server.config import ServerConfig
from bourn.server.streams import seat_of, stream_id
from bourn.sharing import key_for
from bourn.types import Channel, Piece
from tests.support.scripted_site import CHAT, HI, TEXT, Call, Frame, Site, frames, site

STREAM = HI | {"stream": True}
BACKGROUND = STREAM | {"bourn": {"background": True}}
FOREVER = Script(["x "] * 1_000_000, delay=0.001)


def test_an_answer_and_its_stream_have_one_id() -> None:
    for chat in (True, False):
        assert seat_of(stream_id("a-b.c", chat=chat)) == ("a-b.c", chat)
    assert seat_of("a-b.c").id == ""


def texts(call: Call) -> str:
    made = [chunk["choices"][0] for chunk in call.chunks if chunk["choices"]]
    return "".join(each.get("delta", each).get("content", each.get("text", "")) for each in made)


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("by", ["after", "starting_after", "Last-Event-ID"])
async def test_cut_at_any_event_the_rest_is_neither_more_nor_less(path: str, by: str) -> None:
    script = Script(["a", Piece("hm", Channel.REASONING, tokens=1), "b", "c"], prompt_steps=2)
    body = BACKGROUND | {"n": 2} if path == CHAT else {"prompt": "x", **BACKGROUND}
    body = {name: value for name, value in body.items() if path == CHAT or name != "messages"}
    async with site(script) as server:
        whole = await server.ask(path, body)
        assert whole.told.headers["x-bourn-resumable"] == "yes"
        where = f"/v1/streams/{whole.told.headers['x-bourn-stream']}"
        every = frames(whole.text)
        for place in range(len(every)):
            seen = max([frame.number for frame in every[:place]], default=0)
            rest = await _back(server, where, seen, by)
            assert rest.told.status == 200
            assert rest.told.headers["content-type"].startswith("text/event-stream")
            left = frames(rest.text)
            assert left == every[-len(left) :]
            assert all(frame.number <= seen for frame in every[: -len(left)])
            assert all(frame.number > seen for frame in left if frame.number)
        for seen in (99, every[-2].number):
            assert (await _back(server, where, seen, by)).text == "data: [DONE]\n\n"


async def _back(server: Site, where: str, seen: int, by: str) -> Call:
    if by == "Last-Event-ID":
        name = where.rpartition("/")[2]
        return await server.ask(f"{where}?after=1", last_event_id=f"{name}:{seen}")
    return await server.ask(f"{where}?{by}={seen}")


async def test_what_is_still_being_made_is_followed_to_its_end() -> None:
    script = Script([f"{n} " for n in range(200)], delay=0.001)
    async with site(script) as server:
        call = server.begin(CHAT, BACKGROUND)
        seen = await _some(call)
        while seen[-1].data != "[DONE]":
            last = max(frame.number for frame in seen)
            id_ = call.told.headers["x-bourn-stream"]
            call = server.begin(f"/v1/streams/{id_}?after={last}")
            seen += await _some(call)
        assert server.engine.started == 1
    numbers = [frame.number for frame in seen if frame.number]
    assert numbers == sorted(set(numbers))
    assert sum('"content":"' in frame.data for frame in seen) == 201  # the role's is empty


async def _some(call: Call) -> list[Frame]:
    """Twenty events, or all; then the connection breaks."""
    await call.until(lambda: len(frames(call.text)) > 20 or "[DONE]" in call.text)
    seen = frames(call.text)
    call.hang_up()
    await call.whole()
    return seen


async def test_a_grace_holds_it_that_long() -> None:
    async with site(FOREVER) as server:
        call = server.begin(CHAT, STREAM | {"bourn": {"grace": 1.0}})
        await call.until(lambda: call.text.count('"x "') >= 3)
        where = f"/v1/streams/{call.told.headers['x-bourn-stream']}"
        call.hang_up()
        await call.whole()
        assert server.fleet.live == 1
        back = server.begin(where)
        await back.until(lambda: back.text.count('"x "') >= 3)
        back.hang_up()
        await back.whole()
        await asyncio.wait_for(server.idle(), 20)
        assert (await server.ask(where)).told.status == 404


async def test_many_flaky_readers_of_one_stream() -> None:
    script = Script([f"{n} " for n in range(100)], delay=0.002)
    async with site(script) as server:
        first = server.begin(CHAT, BACKGROUND)
        await first.until(lambda: first.told.status)
        where = f"/v1/streams/{first.told.headers['x-bourn-stream']}"

        async def read(pace: int) -> list[str]:
            seen: dict[int, str] = {}
            while True:
                call = server.begin(f"{where}?after={max(seen, default=0)}")
                await asyncio.wait({call.task}, timeout=pace / 1000)
                for frame in frames(call.text[: call.text.rfind("\n\n") + 2]):
                    assert frame.number not in seen
                    if frame.number:
                        seen[frame.number] = frame.data
                    elif frame.data == "[DONE]":
                        return [seen[number] for number in sorted(seen)]
                call.hang_up()
                await call.whole()

        answers = await asyncio.gather(*(read(pace) for pace in range(5, 45)))
        assert server.engine.started == 1
        assert all(answer == answers[0] for answer in answers)
        assert len(answers[0]) == 101


async def test_usage_is_told_again_to_who_asks_again() -> None:
    async with site() as server:
        call = await server.ask(CHAT, BACKGROUND)
        where = f"/v1/streams/{call.told.headers['x-bourn-stream']}"
        last = (await server.ask(f"{where}?include_usage=true")).chunks[-1]
    assert last["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    ("query", "header", "field"),
    [
        ("after=-1", "", "after"),
        ("after=x", "", "after"),
        ("", "5", "Last-Event-ID"),
        ("", "other:5", "Last-Event-ID"),
        ("", "{id}:-5", "Last-Event-ID"),
        ("", "{id}:", "Last-Event-ID"),
    ],
)
async def test_where_it_was_cut_has_to_be_said_well(query: str, header: str, field: str) -> None:
    async with site() as server:
        id_ = (await server.ask(CHAT, BACKGROUND)).told.headers["x-bourn-stream"]
        headers = {"last_event_id": header.format(id=id_)} if header else {}
        call = await server.ask(f"/v1/streams/{id_}?{query}", **headers)
    assert (call.told.status, call.told.error["param"]) == (400, field)


# -- whose it is -----------------------------------------------------------------------------------

KEYS = ServerConfig(keys=frozenset({"anna", "bert"}))


async def test_what_is_somebody_elses_is_not_there() -> None:
    async with site(FOREVER, config=KEYS) as server:
        call = server.begin(CHAT, BACKGROUND, authorization="Bearer anna")
        await call.until(lambda: call.told.status)
        where = f"/v1/streams/{call.told.headers['x-bourn-stream']}"
        for path in (where, "/v1/streams/chatcmpl-a.b", "/v1/streams/x"):
            stranger = await server.ask(path, authorization="Bearer bert")
            assert (stranger.told.status, stranger.told.error["code"]) == (404, "stream_not_found")
            ended = await server.ask(path, method="DELETE", authorization="Bearer bert")
            assert (ended.told.status, ended.json["cancelled"]) == (200, False)
        assert (await server.ask(where)).told.status == 401
        assert server.fleet.live == 1
        ended = await server.ask(where, method="DELETE", authorization="Bearer anna")
        assert ended.json["cancelled"] is True
        await call.whole()


async def test_without_a_wish_to_come_back_it_is_gone_with_its_reader() -> None:
    async with site() as server:
        call = await server.ask(CHAT, STREAM)
        assert call.told.headers["x-bourn-resumable"] == "no"
        again = await server.ask(f"/v1/streams/{call.told.headers['x-bourn-stream']}")
    assert again.told.status == 404


# -- after a restart -------------------------------------------------------------------------------


async def test_an_answer_of_an_earlier_run_is_that_models_and_has_one_seat(tmp_path: Path) -> None:
    def run(*names: str) -> AbstractAsyncContextManager[Site]:
        archive = Archive(SqliteJournals(tmp_path / "answers.sqlite"))
        return site(archive=archive, engines={name: Scripted(Script([name])) for name in names})

    async with run("one", "two") as server:
        told = (await server.ask(CHAT, BACKGROUND | {"model": "two"})).told
        id_ = told.headers["x-bourn-stream"]
    for names in (("one", "two"), ("one",)):
        async with run(*names) as server:
            for _ in range(3):
                back = await server.ask(f"/v1/streams/{id_}")
                assert texts(back) == "two"
                assert {chunk["model"] for chunk in back.chunks} == {"two"}
                assert {chunk["id"] for chunk in back.chunks} == {id_}
            seats = [seat for hub in server.fleet.hubs.values() for seat in hub._seats]
            assert len(seats) == 1
            assert server.fleet.find(seats[0]).hub is server.fleet.hubs[names[-1]]


# -- cancelling ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "tail"), [("POST", "/cancel"), ("DELETE", "")], ids=["post", "delete"]
)
async def test_cancelled_by_its_id_as_often_as_one_likes(method: str, tail: str) -> None:
    async with site(FOREVER) as server:
        call = server.begin(CHAT, BACKGROUND | {"stream_options": {"include_usage": True}})
        await call.until(lambda: call.text.count('"x "') >= 3)
        id_ = call.told.headers["x-bourn-stream"]
        told = [
            (await server.ask(f"/v1/streams/{id_}{tail}", method=method)).json for _ in range(3)
        ]
        assert told == [
            {"id": id_, "object": "stream", "cancelled": cancelled}
            for cancelled in (True, False, False)
        ]
        await call.whole()
        await asyncio.wait_for(server.idle(), 20)
        assert (await server.ask(f"/v1/streams/{id_}")).told.status == 404
    *_, finish, usage = call.chunks
    assert finish["choices"][0]["finish_reason"] == "cancelled"
    assert usage["usage"]["completion_tokens"] >= 3


async def test_what_has_ended_is_let_go_and_nothing_is_cancelled() -> None:
    async with site() as server:
        id_ = (await server.ask(CHAT, BACKGROUND)).told.headers["x-bourn-stream"]
        ended = await server.ask(f"/v1/streams/{id_}/cancel", method="POST")
        assert ended.json["cancelled"] is False
        assert (await server.ask(f"/v1/streams/{id_}")).told.status == 404


async def test_cancelled_in_the_queue() -> None:
    async with site(FOREVER, slots=1) as server:
        first = server.begin(CHAT, STREAM)
        await first.until(lambda: first.told.status)
        second = server.begin(CHAT, STREAM | {"bourn": {"queue": True}})
        await second.until(lambda: second.told.status)
        id_ = second.told.headers["x-bourn-stream"]
        await server.ask(f"/v1/streams/{id_}/cancel", method="POST")
        await second.whole()
        first.hang_up()
        await server.idle()
        assert server.engine.started == 1
    assert second.chunks[-1]["choices"][0]["finish_reason"] == "cancelled"


async def test_of_two_who_share_one_may_cancel() -> None:
    asked = STREAM | {"temperature": 0}
    async with site(Script(["x"] * 50, delay=0.005), key=key_for("m")) as server:
        one, two = (server.begin(CHAT, asked) for _ in range(2))
        await two.until(lambda: two.told.status)
        id_ = two.told.headers["x-bourn-stream"]
        assert (await server.ask(f"/v1/streams/{id_}", method="DELETE")).json["cancelled"] is True
        await two.whole()
        assert two.chunks[-1]["choices"][0]["finish_reason"] == "cancelled"
        assert texts(await one.whole()) == "x" * 50
