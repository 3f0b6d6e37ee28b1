"""Conversations as files to take away: Markdown to read, JSON to load back. It knows no Gradio."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.routing import Route

from bourn.chat import Chat
from bourn.errors import InvalidRequest
from bourn.server.refusals import refused
from bourn.server.state import owner_of
from bourn.web.desk import Desk

_MARKDOWN = "text/markdown; charset=utf-8"
_JSON = "application/json"


def exports(desk: Desk) -> list[Route]:
    """The routes. Somebody else's conversation is none."""

    async def markdown(http: HTTPRequest) -> Response:
        return await _export(desk, http, "md")

    async def json(http: HTTPRequest) -> Response:
        return await _export(desk, http, "json")

    return [
        Route("/conversations/{id}.md", markdown),
        Route("/conversations/{id}.json", json),
    ]


async def _export(desk: Desk, http: HTTPRequest, kind: str) -> Response:
    owner, id = owner_of(http), http.path_params["id"]  # noqa: A001 (as elsewhere)
    try:
        title, chat = await asyncio.to_thread(_kept, desk, owner, id)
    except InvalidRequest:
        return refused(404, "there is no such conversation")
    if (live := desk.live(owner, id)) is not None:
        chat = live.chat
    text = chat.to_markdown() if kind == "md" else chat.to_json(indent=2)
    headers = {
        "cache-control": "no-store",
        "content-disposition": attachment(title, kind),
        "content-type": _MARKDOWN if kind == "md" else _JSON,
    }
    return Response(text.encode("utf-8", "replace"), headers=headers)


def _kept(desk: Desk, owner: str, id: str) -> tuple[str, Chat]:  # noqa: A002
    kept = desk.conversations(owner)
    return kept.entry(id).title, kept.load(id)


def attachment(title: str, kind: str) -> str:
    """Under which name a browser keeps it, as HTTP tells it: RFC 6266, and without its extension.

    No name has a sign in it that a file's name cannot have on some system.
    """
    name = re.sub(r'[\s\x00-\x1f\x7f/\\:*?"<>|]+', " ", title).strip(" .")[:80].strip() or "chat"
    plain = re.sub(r"[^ -~]+", "_", name)
    return (
        f"attachment; filename=\"{plain}.{kind}\"; filename*=UTF-8''{quote(name, safe='')}.{kind}"
    )
