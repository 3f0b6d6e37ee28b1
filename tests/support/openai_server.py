"""A server on this machine that answers as a test has scripted it, and notes what it was asked.

Plain asyncio and bytes: nothing of bourn's own wire takes part, so that neither can hide mistakes
of the other.

    async with serving(Answer(text_stream("Hello", " you"))) as server:
        engine = Remote(server.url)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import Any


class Cue(Enum):
    HANG = "wait until the client hangs up"
    ABORT = "cut the connection, whatever is unfinished"


Step = bytes | float | asyncio.Event | Cue
"""Bytes are sent, as one write; a number is seconds of silence; an event is waited for."""

SSE = {"Content-Type": "text/event-stream"}
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Answer:
    """One response. `before`: steps before its head. framing: "chunked", "length" or "close"."""

    steps: Sequence[Step] | bytes = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: SSE)
    before: Sequence[Step] = ()
    framing: str = "chunked"

    @property
    def listed(self) -> Sequence[Step]:
        return [self.steps] if isinstance(self.steps, bytes) else self.steps


@dataclass(frozen=True)
class Received:
    """What a client sent. Names of headers are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def error(status: int, told: Any, **headers: str) -> Answer:
    """A refusal, as JSON."""
    return Answer(json.dumps(told).encode(), status, JSON | headers, framing="length")


def listing(*names: str, owner: str = "somebody", **more: Any) -> Answer:
    """A list of models."""
    models = [{"id": name, "object": "model", "owned_by": owner, **more} for name in names]
    return Answer(json.dumps({"object": "list", "data": models}).encode(), 200, JSON)


def chunk(
    text: str | None = None, *, finish: str | None = None, index: int = 0, **more: Any
) -> dict[str, Any]:
    """A chunk of a chat with one choice. `more`: further fields of its delta."""
    delta = more if text is None else {"content": text, **more}
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}


def usage(prompt: int, completion: int) -> dict[str, Any]:
    """The last chunk of a stream whose client asked for it."""
    counts = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    return {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": counts}


def sse(*frames: Any, done: bool = True) -> bytes:
    """Frames as the usual servers write them."""
    texts = [frame if isinstance(frame, str) else json.dumps(frame) for frame in frames]
    return "".join(f"data: {text}\n\n" for text in [*texts, *["[DONE]"] * done]).encode()


def text_stream(*texts: str, finish: str = "stop") -> bytes:
    """A whole stream: role, texts, finish, usage, end."""
    return sse(
        chunk(None, role="assistant"),
        *map(chunk, texts),
        chunk(finish=finish),
        usage(5, len(texts)),
    )


class LoopbackServer:
    """`answers` are given to POSTs in order, the last one again and again; `pages` to GETs."""

    def __init__(self, answers: Sequence[Answer], pages: Mapping[str, Answer]) -> None:
        self.url = ""
        self.requests: list[Received] = []
        self.connections = 0
        self.was_asked = asyncio.Event()
        self.hung_up = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers = answers
        self._pages = pages

    @property
    def asked(self) -> list[Received]:
        """The POSTs."""
        return [request for request in self.requests if request.method == "POST"]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
        try:
            while request := await _read(reader):
                self.requests.append(request)
                answer = self._answer_to(request)
                gone = asyncio.ensure_future(_gone(reader))
                work = asyncio.ensure_future(_play(answer, writer, gone))
                await asyncio.wait({gone, work}, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    self.hung_up.set()
                work.cancel()
                gone.cancel()
                with suppress(asyncio.CancelledError, ConnectionError):
                    await work
                wants_more = request.headers.get("connection", "") != "close"
                if self.hung_up.is_set() or not wants_more or answer.framing == "close":
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            writer.transport.abort() if self.hung_up.is_set() else writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def aclose(self) -> None:
        """End whatever is still being answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _answer_to(self, request: Received) -> Answer:
        if request.method == "GET":
            return self._pages.get(request.path, error(404, {"error": {"message": "no such page"}}))
        self.was_asked.set()
        return self._answers[min(len(self.asked), len(self._answers)) - 1]


@asynccontextmanager
async def serving(
    *answers: Answer,
    models: Answer | None = None,
    pages: Mapping[str, Answer] | None = None,
    socket: Path | None = None,
) -> AsyncIterator[LoopbackServer]:
    """A server for the time of a test: on a unix socket at `socket`, else on a port of its own."""
    listed = {"/v1/models": models or listing("m")}
    server = LoopbackServer(answers, listed | dict(pages or {}))
    if socket is not None:
        listener = await asyncio.start_unix_server(server.serve, socket)
        server.url = f"unix:{socket}"
    else:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listener.close()
        await server.aclose()


async def _read(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method, path, headers, body)


async def _gone(reader: asyncio.StreamReader) -> None:
    """Ends when the client has hung up; looks without reading."""
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.001)


async def _play(answer: Answer, writer: asyncio.StreamWriter, gone: asyncio.Future[None]) -> None:
    if not await _steps(answer.before, writer, gone, chunked=False):
        return
    writer.write(_head(answer))
    chunked = answer.framing == "chunked"
    if await _steps(answer.listed, writer, gone, chunked=chunked) and chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


def _head(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    if answer.framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
    elif answer.framing == "length":
        lines.append(
            f"Content-Length: {sum(len(s) for s in answer.listed if isinstance(s, bytes))}"
        )
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _steps(
    steps: Sequence[Step],
    writer: asyncio.StreamWriter,
    gone: asyncio.Future[None],
    *,
    chunked: bool,
) -> bool:
    """Whether the response goes on after them."""
    for step in steps:
        match step:
            case bytes():
                writer.write(b"%x\r\n%s\r\n" % (len(step), step) if chunked else step)
                await writer.drain()
            case asyncio.Event():
                await step.wait()
            case Cue.HANG:
                await gone
            case Cue.ABORT:
                await asyncio.sleep(0.01)  # what was written before it shall arrive
                writer.transport.abort()
                return False
            case _:
                await asyncio.sleep(step)
    return True
