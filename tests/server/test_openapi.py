"""The page that describes the server: it is true, and it needs nobody else."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from bourn.errors import InvalidRequest
from bourn.server.config import ServerConfig
from bourn.server.schema import CHAT_REQUEST, COMPLETION_REQUEST
from bourn.server.wishes import wishes_of
from bourn.wire.body import KNOWN, NEUTRAL, request_of, wants_usage
from tests.support.scripted_site import CHAT, HI, TEXT, site

CHATS: dict[str, Any] = CHAT_REQUEST["properties"]
COMPLETIONS: dict[str, Any] = COMPLETION_REQUEST["properties"]
BODIES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (CHATS, HI),
    (COMPLETIONS, {"prompt": "x"}),
]


def test_it_lists_every_field_that_is_taken_and_no_other() -> None:
    assert CHATS.keys() | COMPLETIONS.keys() == KNOWN | {"bourn"}


@pytest.mark.parametrize(("fields", "body"), BODIES)
def test_its_bounds_are_those_that_are_kept(fields: dict[str, Any], body: dict[str, Any]) -> None:
    bounded = {name: field for name, field in fields.items() if "minimum" in field}
    assert len(bounded) > 10
    for name, field in bounded.items():
        low, high = field["minimum"], field.get("maximum")
        extra = {"logprobs": True} if name == "top_logprobs" else {}
        request_of(body | extra | {name: low})
        with pytest.raises(InvalidRequest):
            request_of(body | extra | {name: low - 1})
        if high is not None:
            request_of(body | extra | {name: high})
            with pytest.raises(InvalidRequest):
                request_of(body | extra | {name: high + 1})


@pytest.mark.parametrize(("fields", "body"), BODIES)
def test_its_constants_are_those_that_ask_for_nothing(
    fields: dict[str, Any], body: dict[str, Any]
) -> None:
    for name in NEUTRAL.keys() & fields.keys():
        assert fields[name]["enum"] == [*NEUTRAL[name], None]


def test_its_wishes_are_those_that_are_known() -> None:
    wishes: dict[str, Any] = CHATS["bourn"]["properties"]
    for name, field in wishes.items():
        value = {"boolean": True, "number": 1}[field["type"][0]] if "type" in field else "no-cache"
        wishes_of({name: value})
        with pytest.raises(InvalidRequest, match=f"bourn.{name}"):
            wishes_of({name: {}})
    for name, field in CHATS["stream_options"]["properties"].items():
        wants_usage({"stream_options": {name: (field.get("enum") or [True])[0]}})


async def test_the_page_is_served_and_tells_of_all_routes() -> None:
    async with site() as server:
        page = (await server.ask("/openapi.json")).json
    paths = {(path, method) for path, methods in page["paths"].items() for method in methods}
    assert paths == {
        (CHAT, "post"),
        (TEXT, "post"),
        ("/v1/models", "get"),
        ("/v1/models/{id}", "get"),
        ("/v1/streams/{id}", "get"),
        ("/v1/streams/{id}", "delete"),
        ("/v1/streams/{id}/cancel", "post"),
        ("/health", "get"),
        ("/ready", "get"),
        ("/metrics", "get"),
    }
    assert "422" not in json.dumps(page["paths"])
    assert "securitySchemes" not in page["components"]
    names = re.findall(r"#/components/schemas/(\w+)", json.dumps(page))
    assert set(names) <= page["components"]["schemas"].keys()


async def test_it_says_where_a_key_is_wanted() -> None:
    async with site(config=ServerConfig(keys=frozenset({"k"}))) as server:
        page = (await server.ask("/openapi.json", authorization="Bearer k")).json
        assert (await server.ask("/openapi.json")).told.status == 401
    assert page["security"] == [{"key": []}]


class Links(HTMLParser):
    """What a page would fetch from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "script"
        self.found += [value or "" for name, value in attrs if name in {"src", "href"}]


async def test_the_page_for_people_needs_no_other_host() -> None:
    async with site() as server:
        call = await server.ask("/docs")
    assert call.told.headers["content-type"].startswith("text/html")
    links = Links()
    links.feed(call.text)
    assert links.found == ["openapi.json"]
    for name in ("POST /v1/chat/completions", "max_completion_tokens", "bourn.background"):
        assert name in call.text
