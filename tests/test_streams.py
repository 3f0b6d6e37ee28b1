"""The same body for both shells: `bourn.sync` is called from a thread, `bourn.aio` from here."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from bourn import Chat, aio, sync
from bourn.engines.scripted import Script, Scripted
from bourn.errors import EngineError, InvalidRequest, StreamClosed, StreamConsumed
from bourn.types import Delta, Done, Event, FinishReason, Message, Started

WORDS = ["one ", "two ", "three ", "four"]
WHOLE = "".join(WORDS)


class Shell:
    """One face for both: each call takes a function of the stream or model and runs it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.engine = Scripted(Script(WORDS))
        self._model: Any = None

    async def open(self, script: Script, **facts: Any) -> Any:
        self.engine = Scripted(script, **facts)
        model = aio.Model(self.engine)
        if self.kind == "aio":
            self._model = await model.start()
        else:
            self._model = await asyncio.to_thread(sync.Model(model).start)
        return self._model

    async def stream(self, asked: Any = "hello", **options: Any) -> Any:
        if self.kind == "aio":
            return self._model.stream(asked, **options)
        return await asyncio.to_thread(lambda: self._model.stream(asked, **options))

    async def every(self, items: Any) -> list[Any]:
        if self.kind == "aio":
            return [item async for item in items]
        return await asyncio.to_thread(list, items)

    async def take(self, items: Any, count: int) -> list[Any]:
        """The first few, leaving the loop then."""
        taken = []
        if self.kind == "aio":
            async for item in items:
                taken.append(item)
                if len(taken) == count:
                    break
            return taken

        def first() -> list[Any]:
            for item in items:
                taken.append(item)
                if len(taken) == count:
                    break
            return taken

        return await asyncio.to_thread(first)

    async def call(self, method: Callable[[], Any]) -> Any:
        if self.kind == "aio":
            result = method()
            return await result if isinstance(result, Awaitable) else result
        return await asyncio.to_thread(method)

    async def idle(self) -> None:
        """Wait until nothing is generated; the test's timeout is the limit."""
        while self.engine.running:
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        if self._model is not None:
            await self.call(self._model.aclose if self.kind == "aio" else self._model.close)


@pytest.fixture(params=["aio", "sync"])
async def shell(request: pytest.FixtureRequest) -> AsyncIterator[Shell]:
    shell = Shell(request.param)
    yield shell
    await shell.close()


async def test_joined_pieces_are_the_whole_answer(shell: Shell) -> None:
    await shell.open(Script(WORDS))
    stream = await shell.stream()
    assert await shell.every(stream) == WORDS
    assert stream.text == WHOLE
    assert stream.finish_reason is FinishReason.STOP
    assert stream.usage.completion_tokens == 4
    assert stream.metrics.ttft is not None
    assert stream.seed is not None


async def test_read_gives_the_whole_answer_and_may_be_asked_again(shell: Shell) -> None:
    await shell.open(Script(WORDS))
    stream = await shell.stream()
    assert await shell.call(stream.read) == WHOLE
    assert await shell.call(stream.read) == WHOLE


async def test_snapshots_grow_to_the_whole_answer(shell: Shell) -> None:
    await shell.open(Script(WORDS, delay=0.01))
    stream = await shell.stream()
    shots = await shell.every(stream.snapshots(interval=0.0))
    assert shots[-1] == WHOLE
    assert all(later.startswith(earlier) for earlier, later in pairwise(shots))


async def test_snapshots_are_limited_in_rate(shell: Shell) -> None:
    await shell.open(Script(["x"] * 200))
    stream = await shell.stream()
    began = time.monotonic()
    shots = await shell.every(stream.snapshots(interval=0.02))
    assert shots[-1] == "x" * 200
    assert len(shots) <= 3 + (time.monotonic() - began) / 0.02


async def test_an_empty_answer_has_one_empty_snapshot(shell: Shell) -> None:
    await shell.open(Script([]))
    stream = await shell.stream()
    assert await shell.every(stream.snapshots()) == [""]


async def test_events_end_with_done_and_callbacks_see_them_all(shell: Shell) -> None:
    await shell.open(Script(WORDS))
    seen: list[Event] = []
    stream = await shell.stream(on_event=seen.append)
    events = await shell.every(stream.events())
    assert events == seen
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Done)
    assert "".join(e.text for e in events if isinstance(e, Delta)) == WHOLE


async def test_the_very_exception_reaches_the_reader_after_the_text(shell: Shell) -> None:
    error = ZeroDivisionError("in the third step")
    await shell.open(Script(WORDS, fail_at=2, error=error))
    stream = await shell.stream()
    with pytest.raises(ZeroDivisionError) as raised:
        await shell.every(stream)
    assert raised.value is error
    assert stream.text == "one two "
    assert stream.finish_reason is None


async def test_an_end_without_a_reason_raises(shell: Shell) -> None:
    await shell.open(Script(WORDS, finish=None))
    stream = await shell.stream()
    with pytest.raises(EngineError, match="without a reason"):
        await shell.call(stream.read)
    assert stream.text == WHOLE


async def test_leaving_the_loop_ends_the_generation(shell: Shell) -> None:
    await shell.open(Script(["x"] * 100_000, delay=0.001))
    stream = await shell.stream()
    assert await shell.take(stream, 3) == ["x"] * 3
    await shell.idle()
    with pytest.raises(StreamConsumed):
        await shell.every(stream)


class Counted(list[str]):
    """Words, and how many of them were said."""

    said = 0

    def __iter__(self) -> Iterator[str]:
        for word in super().__iter__():
            yield word
            self.said += 1


async def test_cancel_keeps_the_text_and_gives_the_numbers(shell: Shell) -> None:
    words = Counted(["x"] * 100_000)
    await shell.open(Script(words, delay=0.001))
    stream = await shell.stream()
    while not words.said:  # the test's timeout is the limit
        await asyncio.sleep(0.001)
    await shell.call(stream.cancel)
    await shell.call(stream.cancel)
    assert stream.finish_reason is FinishReason.CANCELLED
    assert stream.text.startswith("x")
    assert stream.metrics.tokens == stream.usage.completion_tokens > 0
    await shell.idle()


async def test_cancel_while_somebody_reads_ends_the_reading(shell: Shell) -> None:
    await shell.open(Script(["x"] * 100_000, delay=0.001))
    stream = await shell.stream()
    reading = asyncio.create_task(shell.every(stream))
    await asyncio.sleep(0.02)
    await shell.call(stream.cancel)
    assert "".join(await reading) == stream.text
    assert stream.finish_reason is FinishReason.CANCELLED


async def test_closing_unread_ends_it_and_reading_then_is_an_error(shell: Shell) -> None:
    await shell.open(Script(["x"] * 100_000, delay=0.001))
    stream = await shell.stream()
    close = stream.aclose if shell.kind == "aio" else stream.close
    await shell.call(close)
    await shell.call(close)
    await shell.idle()
    with pytest.raises(StreamClosed):
        await shell.every(stream)


async def test_a_stream_that_is_dropped_unread_computes_for_nobody(shell: Shell) -> None:
    await shell.open(Script(["x"] * 100_000, delay=0.001))
    stream = await shell.stream()
    while not shell.engine.running:  # the test's timeout is the limit
        await asyncio.sleep(0.001)
    del stream
    gc.collect()
    await shell.idle()


async def test_wrong_options_are_refused_before_anything_starts(shell: Shell) -> None:
    await shell.open(Script(WORDS))
    with pytest.raises(InvalidRequest, match="no option `max_new_token`") as raised:
        await shell.stream(max_new_token=3)
    assert "max_new_tokens" in raised.value.hint
    with pytest.raises(InvalidRequest, match="temperature"):
        await shell.stream(temperature=-1)
    with pytest.raises(InvalidRequest, match="nothing to answer"):
        await shell.stream([])
    assert shell.engine.started == 0


async def test_messages_and_limits_reach_the_engine(shell: Shell) -> None:
    await shell.open(Script(WORDS))
    stream = await shell.stream(
        [{"role": "user", "content": "hi"}, Message("assistant", "yes?")], max_new_tokens=2
    )
    assert await shell.call(stream.read) == "one two "
    assert stream.finish_reason is FinishReason.LENGTH


async def test_every_choice_is_kept(shell: Shell) -> None:
    await shell.open(Script(WORDS))
    stream = await shell.stream(n=3)
    await shell.call(stream.read)
    assert [choice.text for choice in stream.choices] == [WHOLE] * 3


async def test_tool_calls_are_added_up_and_come_with_a_reason(shell: Shell) -> None:
    said = ["<tool_call>", *'{"name": "f", "arguments": {"a": 1}}', "</tool_call>"]
    await shell.open(Script(said), channels="think", calls="hermes")
    stream = await shell.stream(tools=[{"type": "function", "function": {"name": "f"}}])
    events = await shell.every(stream.events())
    (call,) = stream.tool_calls
    assert (call.name, call.arguments, stream.text) == ("f", '{"a": 1}', "")
    assert stream.finish_reason is FinishReason.TOOL_CALLS
    tools = [e.tool for e in events if isinstance(e, Delta) and e.tool]
    assert len(tools) > 3, "the arguments were streamed"
    assert [tool.id for tool in tools if tool.id] == [call.id]
    chat = Chat().ask("?").answered(stream)
    assert chat.messages[-1].tool_calls == (call,)


async def test_fifty_streams_and_cancels_leave_no_thread_behind(shell: Shell) -> None:
    await shell.open(Script(["x"] * 1000, delay=0.001), slots=4)
    await shell.call((await shell.stream(max_new_tokens=1)).read)
    before = threading.active_count()
    for _ in range(50):
        stream = await shell.stream()
        await shell.take(stream, 1)
    await shell.idle()
    assert threading.active_count() <= before + 1


def test_eight_threads_stream_from_one_model_at_once() -> None:
    model = sync.Model(aio.Model(Scripted(Script(WORDS, delay=0.002), slots=3))).start()
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.append(model.stream("hi").read())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    model.close()
    assert texts == [WHOLE] * 8


def test_a_model_that_is_not_started_says_so() -> None:
    with pytest.raises(StreamClosed, match="not started"):
        sync.Model(aio.Model(Scripted(Script(WORDS)))).stream("hi")
