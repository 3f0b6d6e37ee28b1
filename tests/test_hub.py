from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from bourn.engines.scripted import Script, Scripted
from bourn.errors import EngineError, InvalidRequest, QueueFull, UnsupportedField
from bourn.hub import Hub
from bourn.journal.memory import MemoryJournals
from bourn.stream import Reader
from bourn.types import (
    DEFAULT_SAMPLING,
    Channel,
    Delta,
    Done,
    Event,
    Finished,
    FinishReason,
    Message,
    Piece,
    Progress,
    Queued,
    Request,
    Sampling,
    Started,
    Usage,
)

ASK = Request(messages=(Message("user", "hello"),))


async def hub_of(
    script: Script, *, slots: int | None = None, queue_limit: int = 256
) -> tuple[Hub, Scripted]:
    engine = Scripted(script, slots=slots)
    hub = Hub(engine, queue_limit=queue_limit)
    await hub.start()
    return hub, engine


async def everything(reader: Reader) -> list[Event]:
    events: list[Event] = []
    while batch := await reader.next():
        events += batch
    return events


def text(events: Sequence[Event], choice: int = 0) -> str:
    return "".join(e.text for e in events if isinstance(e, Delta) and e.choice == choice)


async def until(condition: object) -> None:
    """Let the loop turn until it is true; the test's own timeout is the limit."""
    assert callable(condition)
    while not condition():
        await asyncio.sleep(0.001)


async def test_a_whole_answer_event_by_event() -> None:
    hub, _ = await hub_of(Script(["Hello", " there"], prompt=6, prompt_steps=2))
    events = await everything(hub.open(ASK))
    kinds = [type(event) for event in events]
    assert kinds == [Started, Progress, Progress, Delta, Delta, Finished, Done]
    assert text(events) == "Hello there"
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.state, done.error) == ("complete", None)
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (6, 2)


async def test_a_stop_string_ends_the_generation_at_once() -> None:
    hub, engine = await hub_of(Script([str(n) + " " for n in range(10_000)]))
    events = await everything(hub.open(Request(messages=ASK.messages, stop=("7 8",))))
    assert text(events) == "0 1 2 3 4 5 6 "
    finished = next(e for e in events if isinstance(e, Finished))
    assert (finished.reason, finished.stop) == (FinishReason.STOP, "7 8")
    assert engine.running == 0
    done = events[-1]
    assert isinstance(done, Done)
    assert done.usage.completion_tokens < 20


async def test_usage_that_is_told_after_the_finish_is_heard() -> None:
    told = Piece(usage=Usage(prompt_tokens=70, completion_tokens=2, cached_tokens=64))
    end = Piece(finish=FinishReason.STOP)
    hub, _ = await hub_of(Script(["a", "b", end, told], finish=None))
    done = (await everything(hub.open(ASK)))[-1]
    assert isinstance(done, Done)
    assert (done.state, done.usage) == ("complete", told.usage)


async def test_what_is_held_for_a_stop_is_released_at_the_limit() -> None:
    hub, _ = await hub_of(Script(["a", "b", "EN", "D"]))
    request = Request(messages=ASK.messages, stop=("END",), max_new_tokens=3)
    events = await everything(hub.open(request))
    assert text(events) == "abEN"
    assert Finished(FinishReason.LENGTH) in events


async def test_a_stop_that_is_found_in_what_was_held_is_told() -> None:
    hub = Hub(Scripted(Script(["a", "<"], finish=FinishReason.LENGTH), channels="think"))
    await hub.start()
    events = await everything(hub.open(Request(messages=ASK.messages, stop=("<",))))
    assert text(events) == "a"
    assert Finished(FinishReason.STOP, stop="<") in events


async def test_a_failure_comes_after_the_text_before_it_and_the_next_call_works() -> None:
    error = RuntimeError("out of paper")
    engine = Scripted(
        lambda _: Script(["a", "b"], fail_at=1 if engine.started == 1 else None, error=error)
    )
    hub = Hub(engine)
    await hub.start()
    events = await everything(hub.open(ASK))
    assert text(events) == "a"
    done = events[-1]
    assert isinstance(done, Done)
    assert done.state == "failed"
    assert done.error is error
    assert text(await everything(hub.open(ASK))) == "ab"


async def test_an_end_without_a_reason_is_an_interruption() -> None:
    hub, _ = await hub_of(Script(["a"], finish=None))
    done = (await everything(hub.open(ASK)))[-1]
    assert isinstance(done, Done)
    assert done.state == "failed"
    assert isinstance(done.error, EngineError)
    assert done.error.code == "interrupted"


async def test_the_last_reader_gone_ends_the_generation() -> None:
    hub, engine = await hub_of(Script(["x"] * 10_000, delay=0.001))
    reader = hub.open(ASK)
    await reader.next()
    await until(lambda: engine.running)
    reader.leave()
    await until(lambda: not engine.running)
    assert hub.live == 0
    assert await reader.next() == ()


async def test_a_queued_request_that_is_left_never_starts() -> None:
    hub, engine = await hub_of(Script(["x"] * 10_000, delay=0.001), slots=1)
    first, second, third = (hub.open(ASK) for _ in range(3))
    assert await second.next() == [Queued(1)]
    assert await third.next() == [Queued(2)]
    second.leave()
    assert await third.next() == [Queued(1)]
    third.leave()
    first.leave()
    await until(lambda: not engine.running and hub.live == 0)
    assert engine.started == 1


async def test_leaving_before_the_task_has_run_leaks_no_slot() -> None:
    hub, engine = await hub_of(Script(["x"]), slots=1)
    hub.open(ASK).leave()
    assert text(await everything(hub.open(ASK))) == "x"
    assert engine.started == 1


async def test_cancel_keeps_what_came_and_says_so() -> None:
    hub, _ = await hub_of(Script(["x"] * 10_000, delay=0.001))
    reader = hub.open(ASK)
    seen: list[Event] = []
    while len(text(seen)) < 3:
        seen += await reader.next()
    reader.cancel()
    reader.cancel()
    seen += await everything(reader)
    done = seen[-1]
    assert isinstance(done, Done)
    assert done.state == "cancelled"
    assert done.metrics.tokens >= 3


async def test_two_readers_see_the_same_and_one_may_cancel_alone() -> None:
    hub, engine = await hub_of(Script(["a", "b", "c"], delay=0.002))
    one = hub.open(ASK)
    two = hub.attach(one.id)
    await one.next()
    two.cancel()
    assert (await everything(two))[-1] == Done("cancelled")
    assert text(await everything(one)) == "abc"
    assert engine.started == 1


async def test_a_reader_comes_back_within_the_grace_and_misses_nothing() -> None:
    hub, _ = await hub_of(Script([str(n) for n in range(10)], delay=0.002))
    reader = hub.open(ASK, grace=5)
    seen = list(await reader.next())
    reader.leave()
    await asyncio.sleep(0.01)
    back = hub.attach(reader.id, after=len(seen))
    assert text(seen + await everything(back)) == "0123456789"
    await hub.aclose()


async def test_the_grace_ends() -> None:
    hub, engine = await hub_of(Script(["x"] * 10_000, delay=0.001))
    reader = hub.open(ASK, grace=0.02)
    await reader.next()
    reader.leave()
    await until(lambda: engine.started and not engine.running)
    with pytest.raises(KeyError):
        hub.attach(reader.id)


async def test_cancel_by_name_is_idempotent_and_spares_strangers() -> None:
    hub, _ = await hub_of(Script(["x"] * 10_000, delay=0.001))
    reader = hub.open(ASK)
    await reader.next()
    hub.cancel("no such thing")
    hub.cancel(reader.id)
    hub.cancel(reader.id)
    done = (await everything(reader))[-1]
    assert isinstance(done, Done)
    assert done.state == "cancelled"


async def test_journals_are_dropped_with_their_last_reader() -> None:
    hub, _ = await hub_of(Script(["x"]))
    for _ in range(5):
        await everything(hub.open(ASK))
    await asyncio.sleep(0.01)
    assert isinstance(hub.journals, MemoryJournals)
    assert len(hub.journals) == 0


async def test_choices_take_slots_and_end_one_by_one() -> None:
    hub, _ = await hub_of(Script(["a", "b"]), slots=2)
    events = await everything(hub.open(Request(messages=ASK.messages, n=2)))
    assert (text(events, 0), text(events, 1)) == ("ab", "ab")
    assert [e.choice for e in events if isinstance(e, Finished)] == [0, 1]
    with pytest.raises(InvalidRequest, match=r"n is 3.* 2 slots"):
        hub.open(Request(messages=ASK.messages, n=3))


async def test_a_full_queue_refuses_at_once() -> None:
    hub, _ = await hub_of(Script(["x"], delay=0.05), slots=1, queue_limit=1)
    readers = [hub.open(ASK), hub.open(ASK)]
    with pytest.raises(QueueFull):
        hub.open(ASK)
    for reader in readers:
        assert text(await everything(reader)) == "x"


async def test_one_order_of_settings_and_a_seed_that_is_told() -> None:
    engine = Scripted(Script(["x"]))
    hub = Hub(engine, sampling=Sampling(temperature=0.3, top_k=7))
    await hub.start()
    events = await everything(hub.open(Request(messages=ASK.messages, sampling=Sampling(top_k=9))))
    started = next(e for e in events if isinstance(e, Started))
    assert (started.sampling.temperature, started.sampling.top_k) == (0.3, 9)
    assert started.sampling.top_p == DEFAULT_SAMPLING.top_p
    seeds = set()
    for _ in range(5):
        events = await everything(hub.open(ASK))
        seeds |= {e.sampling.seed for e in events if isinstance(e, Started)}
    assert len(seeds) == 5
    assert None not in seeds


async def test_a_field_the_engine_cannot_honour_is_named() -> None:
    hub = Hub(Scripted(Script(["x"]), honours=frozenset({"temperature"})))
    await hub.start()
    with pytest.raises(UnsupportedField, match="`top_k`") as raised:
        hub.open(Request(messages=ASK.messages, sampling=Sampling(top_k=3)))
    assert raised.value.field == "top_k"


async def test_closing_ends_every_reader() -> None:
    hub, engine = await hub_of(Script(["x"] * 10_000, delay=0.001), slots=2)
    readers = [hub.open(ASK) for _ in range(4)]
    ends = asyncio.gather(*map(everything, readers))
    await until(lambda: engine.running == 2)
    await hub.aclose()
    for events in await ends:
        done = events[-1]
        assert isinstance(done, Done)
        assert done.state == "cancelled"
    assert engine.running == 0


async def test_marked_reasoning_is_split_and_stops_do_not_act_on_it() -> None:
    said = ["<th", "ink>stop here?", "</think>", "no: st", "op now"]
    engine = Scripted(Script(said), channels="think")
    hub = Hub(engine)
    await hub.start()
    events = await everything(hub.open(Request(messages=ASK.messages, stop=("stop",))))
    parts = [e for e in events if isinstance(e, Delta)]
    assert "".join(d.text for d in parts if d.channel is Channel.REASONING) == "stop here?"
    assert "".join(d.text for d in parts if d.channel is Channel.ANSWER) == "no: "


async def test_two_hundred_streams_left_at_random_moments_leave_nothing_behind() -> None:
    hub, engine = await hub_of(
        Script([Piece("x", tokens=1)] * 50, delay=0.001, prompt_steps=5, prompt_delay=0.001),
        slots=4,
    )

    async def leave_after(moments: int) -> None:
        reader = hub.open(ASK)
        with suppress(TimeoutError):
            async with asyncio.timeout(moments / 1000):
                await everything(reader)
        reader.leave()

    await asyncio.gather(*(leave_after(n % 67) for n in range(200)))
    await until(lambda: engine.running == 0 and hub.live == 0)
    await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks()) == 1
    assert isinstance(hub.journals, MemoryJournals)
    assert len(hub.journals) == 0
