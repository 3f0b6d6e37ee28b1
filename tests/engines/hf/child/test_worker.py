"""Both ends of the line, in this process: an engine at the other end of a pair of sockets."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from bourn.engines.base import Engine
from bourn.engines.hf.child.frames import Ask, Cancel, Frame, Hello, Step, encode
from bourn.engines.hf.child.link import MOST, Link
from bourn.engines.hf.child.worker import serve
from bourn.engines.scripted import Script, Scripted
from bourn.errors import (
    BournError,
    ConnectionFailed,
    EngineError,
    Interrupted,
    InvalidRequest,
    LoadFailed,
    PromptTooLong,
)
from bourn.types import FinishReason, Piece, Request, TokenLogprob
from tests.support.scripted_worker import Failing, Obedient


class Recorded(Link):
    """Remembers how many pieces each frame held."""

    def __init__(self) -> None:
        super().__init__("", lambda link: None, None)
        self.steps: list[int] = []

    def heard(self, frame: Frame) -> None:
        if isinstance(frame, Step):
            self.steps.append(len(frame.pieces))
        super().heard(frame)


@asynccontextmanager
async def linked(engine: Engine) -> AsyncGenerator[Recorded, None]:
    ours, theirs = socket.socketpair()
    serving = asyncio.create_task(serve(engine, theirs))
    link = Recorded()
    await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
    await link.settled()
    try:
        yield link
    finally:
        link.hang_up()
        await serving


def ask(script: str, **more: Any) -> Request:
    return Request(prompt=script, max_new_tokens=None, **more)


async def pieces_of(source: Link | Engine, request: Request) -> list[Piece]:
    asked = source.ask(request) if isinstance(source, Link) else source.generate(request)
    async with aclosing(asked) as pieces:
        return [piece async for piece in pieces]


async def eventually(fact: Callable[[], object]) -> bool:
    for _ in range(1000):
        if fact():
            return True
        await asyncio.sleep(0.005)
    return False


async def at_rest(number: Callable[[], int]) -> int:
    """What it is once it does not change any more."""
    last = -1
    while last != number():
        last = number()
        await asyncio.sleep(0.1)
    return last


# -- answers ---------------------------------------------------------------------------------------


async def test_an_engine_abroad_says_what_it_says_here() -> None:
    engine = Obedient()
    asked = ask("pieces=20&prompt_steps=3", n=2)
    async with linked(engine) as link:
        assert await pieces_of(link, asked) == await pieces_of(engine, asked)
        assert link.info is not None
        assert (link.info.window, link.info.notice) == (64, "a notice")
        assert "logits_processor" not in link.info.honours


async def test_one_frame_a_step_holds_the_pieces_of_all() -> None:
    async with linked(Obedient()) as link:
        answers = await asyncio.gather(*(pieces_of(link, ask("pieces=50")) for _ in range(8)))
    assert [len(answer) for answer in answers] == [51] * 8
    assert sum(link.steps) == 8 * 51
    assert len(link.steps) <= 60


async def test_many_at_once_get_each_their_own() -> None:
    async with linked(Obedient()) as link:
        scripts = [f"pieces={5 + n}&said=<{n}>" for n in range(40)]
        answers = await asyncio.gather(*(pieces_of(link, ask(script)) for script in scripts))
    for n, answer in enumerate(answers):
        assert "".join(piece.text for piece in answer) == f"<{n}>" * (5 + n)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        ("known", PromptTooLong, "too long"),
        ("foreign", EngineError, "ZeroDivisionError: division by zero"),
        ("engine", EngineError, "no"),
        ("cancelled", Interrupted, "it was cancelled"),
    ],
)
async def test_an_error_comes_after_what_was_said(
    error: str, kind: type[BournError], words: str
) -> None:
    async with linked(Obedient()) as link:
        seen: list[str] = []

        async def read() -> None:
            async for piece in link.ask(ask(f"pieces=9&fail_at=4&error={error}")):
                seen.append(piece.text)  # noqa: PERF401 (those before an error count)

        with pytest.raises(kind, match=words) as caught:
            await read()
        assert seen == ["0 ", "1 ", "2 ", "3 "]
        assert type(caught.value) is kind
        if isinstance(caught.value, PromptTooLong):
            assert (caught.value.prompt_tokens, caught.value.window) == (9, 8)
        assert len(await pieces_of(link, ask("pieces=3"))) == 4


async def test_an_end_without_a_reason_is_an_end() -> None:
    engine = Scripted(Script(["a", "b"], finish=None))
    async with linked(engine) as link:
        answer = await asyncio.wait_for(pieces_of(link, ask("x")), 10)
    assert [(piece.text, piece.finish) for piece in answer] == [("a", None), ("b", None)]


async def test_counts() -> None:
    async with linked(Obedient()) as link:
        assert await link.count(ask("four words are here")) == 4
        with pytest.raises(PromptTooLong):
            await link.count(ask("fail"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(link.count(ask("forever")), 0.05)
        assert await link.count(ask("two words")) == 2


@pytest.mark.parametrize(
    ("error", "words"),
    [(LoadFailed("no memory", hint="buy some"), "no memory"), (KeyError("w"), "KeyError: 'w'")],
)
async def test_why_it_cannot_be_loaded(error: Exception, words: str) -> None:
    async with linked(Failing(error)) as link:
        assert link.info is None
        assert isinstance(link.failure, LoadFailed)
        assert words in str(link.failure)


# -- leaving ---------------------------------------------------------------------------------------


async def test_leaving_ends_it() -> None:
    engine = Obedient()
    async with linked(engine) as link:
        async with aclosing(link.ask(ask("pieces=30000&delay=0.001"))) as pieces:
            async for _ in pieces:
                break
            assert engine.running == 1
        assert await eventually(lambda: engine.running == 0)
        assert await pieces_of(link, ask("pieces=1"))


async def test_cancelling_the_task_ends_it() -> None:
    engine = Obedient()
    async with linked(engine) as link:
        task = asyncio.create_task(pieces_of(link, ask("pieces=30000&delay=0.001")))
        assert await eventually(lambda: engine.running == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await eventually(lambda: engine.running == 0)


async def test_leaving_a_queue_or_a_prompt_ends_that() -> None:
    """Nothing has been said yet."""
    engine = Obedient()
    async with linked(engine) as link:
        for script in ("delay=60", "prompt_steps=2&prompt_delay=60"):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pieces_of(link, ask(script)), 0.05)
            assert await eventually(lambda: engine.running == 0)
        assert engine.made == 0


async def test_a_request_that_nobody_reads_is_never_made() -> None:
    engine = Obedient()
    async with linked(engine) as link:
        unread = link.ask(ask("pieces=9"))
        await unread.aclose()
        await pieces_of(link, ask("pieces=1"))
        assert engine.started == 1


async def test_two_hundred_are_left_at_random_moments() -> None:
    engine = Obedient()
    chance = random.Random(7)

    async def left(link: Link) -> None:
        script = ask(f"pieces={chance.randint(1, 150)}&delay={chance.choice(['0', '0.0005'])}")
        if chance.random() < 0.5:
            with suppress(TimeoutError):
                await asyncio.wait_for(pieces_of(link, script), chance.random() * 0.05)
            return
        moment = chance.randint(0, 80)
        async with aclosing(link.ask(script)) as pieces:
            async for _ in pieces:
                moment -= 1
                if moment <= 0:
                    break

    async with linked(engine) as link:
        before = len(asyncio.all_tasks())
        for _ in range(10):
            await asyncio.gather(*(left(link) for _ in range(20)))
        assert await eventually(lambda: engine.running == 0)
        assert engine.started > 150
        assert not link._replies
        assert await eventually(lambda: len(asyncio.all_tasks()) == before)
        assert len(await pieces_of(link, ask("pieces=7"))) == 8


async def test_all_ends_when_the_parent_hangs_up() -> None:
    engine = Obedient()
    async with linked(engine) as link:
        tasks = [asyncio.create_task(pieces_of(link, ask("delay=60"))) for _ in range(3)]
        assert await eventually(lambda: engine.running == 3)
        link.hang_up()
        for task in tasks:
            with pytest.raises(ConnectionFailed):
                await task
    assert engine.running == 0


# -- slow readers ----------------------------------------------------------------------------------


async def test_a_slow_reader_holds_up_nobody_and_costs_little() -> None:
    engine = Obedient()
    async with linked(engine) as link, aclosing(link.ask(ask("pieces=6000"))) as slow:
        first = await anext(slow)
        made = await at_rest(lambda: engine.made)
        assert MOST <= made < 2 * MOST
        assert len(await pieces_of(link, ask("pieces=3000"))) == 3001
        rest = [piece async for piece in slow]
        assert len(rest) == 6000
        assert [first.text, *(piece.text for piece in rest[:-1])] == [f"{n} " for n in range(6000)]


async def test_a_parent_that_does_not_read_is_waited_for() -> None:
    engine = Obedient()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    serving = asyncio.create_task(serve(engine, theirs))
    loop = asyncio.get_running_loop()
    for number in range(8):
        script = ask(f"pieces=1000000&said={'x' * 1000}")
        await loop.sock_sendall(ours, encode(Ask(number, script)))
    assert await eventually(lambda: engine.running == 8)
    made = await at_rest(lambda: engine.made)
    assert made < 5000  # what the kernel's buffers hold, and a little more
    await loop.sock_sendall(ours, b"".join(encode(Cancel(number)) for number in range(8)))
    assert await eventually(lambda: engine.running == 0)
    ours.close()
    await serving


# -- what cannot be said ---------------------------------------------------------------------------


async def test_a_piece_that_is_too_large_fails_its_own_request_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bourn.engines.hf.child.frames.LIMIT", 1500)
    engine = Obedient()
    async with linked(engine) as link:
        large = asyncio.create_task(pieces_of(link, ask(f"pieces=99&said={'x' * 1300}")))
        small = asyncio.create_task(pieces_of(link, ask(f"pieces=99&said={'y' * 300}")))
        assert len(await small) == len(await large) == 100  # each in its own frame
        huge = Scripted(Script(["a", "x" * 2000, "b"]))
    async with linked(huge) as link:
        with pytest.raises(InvalidRequest, match="too many"):
            await pieces_of(link, ask("x"))
        assert await eventually(lambda: huge.running == 0)


async def test_a_piece_that_json_cannot_say_fails_its_own_request_alone() -> None:
    odd = Piece("a", tokens=1, logprobs=(TokenLogprob("a", object()),))  # type: ignore[arg-type]
    engine = Scripted(lambda request: Script([odd] if request.prompt == "odd" else ["b"] * 50))
    async with linked(engine) as link:
        fine = asyncio.create_task(pieces_of(link, ask("even")))
        with pytest.raises(InvalidRequest, match="cannot be told"):
            await pieces_of(link, ask("odd"))
        assert (await fine)[-1].finish is FinishReason.STOP
        refused = replace(ask("even"), template_kwargs={"a": object()})
        with pytest.raises(InvalidRequest, match="`template_kwargs`"):
            await pieces_of(link, refused)
        with pytest.raises(InvalidRequest, match="`template_kwargs`"):
            await link.count(refused)
        assert not link._replies


async def test_a_parent_that_says_rubbish_is_hung_up_on() -> None:
    engine = Obedient()
    ours, theirs = socket.socketpair()
    serving = asyncio.create_task(serve(engine, theirs))
    reader, writer = await asyncio.open_connection(sock=ours)
    writer.write(encode(Ask(1, ask("delay=60"))))
    assert await eventually(lambda: engine.running == 1)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await asyncio.wait_for(serving, 10)
    assert engine.running == 0
    assert (await reader.read()).startswith(encode(Hello()))
    writer.close()
