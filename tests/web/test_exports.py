"""Conversations that are taken away, and by whom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from bourn.chat import Chat
from bourn.engines.scripted import Script, Scripted
from bourn.server.fleet import Fleet, Offer
from bourn.server.keys import OWNER
from bourn.server.standby import Standby
from bourn.web.desk import Desk
from bourn.web.exports import attachment, exports
from tests.support.served_app import Told, ask, scope_of

TALK = Chat().ask("Wie heißt du?")


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    fleet = Fleet([Offer(Standby("m", lambda _: Scripted(Script(["x"]))))])
    desk = Desk(fleet, tmp_path / "conversations.db")
    desk.conversations("ann").save("a1", TALK)
    return desk


async def exported(desk: Desk, path: str, owner: str = "ann", method: str = "GET") -> Told:
    app = FastAPI()
    app.router.routes += exports(desk)
    scope = scope_of(path, method=method, query_string=b"")
    scope[OWNER] = owner
    return await ask(app, scope)


async def test_as_markdown_under_the_conversations_name(desk: Desk) -> None:
    told = await exported(desk, "/conversations/a1.md")
    assert told.bodies[0].decode() == TALK.to_markdown()
    assert told.headers["content-type"] == "text/markdown; charset=utf-8"
    assert told.headers["content-disposition"] == (
        "attachment; filename=\"Wie hei_t du.md\"; filename*=UTF-8''Wie%20hei%C3%9Ft%20du.md"
    )
    assert told.headers["cache-control"] == "no-store"


async def test_as_json_that_is_the_conversation_again(desk: Desk) -> None:
    told = await exported(desk, "/conversations/a1.json")
    assert told.headers["content-type"] == "application/json"
    assert Chat.from_json(told.bodies[0].decode()) == TALK
    assert json.loads(told.bodies[0])["format"] == "bourn.chat"


async def test_under_the_name_that_its_owner_gave_it(desk: Desk) -> None:
    desk.conversations("ann").rename("a1", "Names")
    told = await exported(desk, "/conversations/a1.md")
    assert 'filename="Names.md"' in told.headers["content-disposition"]


@pytest.mark.parametrize("kind", ["md", "json"])
async def test_somebody_elses_is_as_good_as_none(desk: Desk, kind: str) -> None:
    there = await exported(desk, f"/conversations/a1.{kind}", "bob")
    none = await exported(desk, f"/conversations/b2.{kind}", "bob")
    nobody = await exported(desk, f"/conversations/a1.{kind}", "")
    assert there.status == none.status == nobody.status == 404
    assert there.bodies == none.bodies


@pytest.mark.parametrize(
    "path", ["/conversations/a1", "/conversations/a1.txt", "/conversations/x/a1.md"]
)
async def test_there_are_no_other_kinds(desk: Desk, path: str) -> None:
    assert (await exported(desk, path)).status == 404


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("", "chat"),
        ("...", "chat"),
        ("../../etc/passwd", "etc passwd"),
        ('a"b\r\nset-cookie: x', "a b set-cookie x"),
        ("C:\\x", "C x"),
    ],
)
def test_a_title_becomes_the_name_of_a_file(title: str, name: str) -> None:
    assert attachment(title, "md").startswith(f'attachment; filename="{name}.md"; ')


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_no_title_gets_out_of_its_header(title: str) -> None:
    told = attachment(title, "json")
    assert told.isascii()
    assert told.isprintable()
    assert told.count('"') == 2
    assert not set("/\\:*?<>|") & set(told.split('"')[1])
