from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from bourn.archive import Archive
from bourn.engines.scripted import Script, Scripted
from bourn.errors import EngineError, InvalidRequest, NotCached, QueueFull, UnsupportedField
from bourn.hub import Hub
from bourn.journal.memory import MemoryJournals
from bourn.journal.shelf import Limits
from bourn.stream import Reader
from bourn.terms import CacheWish, Terms, Timeouts
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
    ToolDelta,
    Usage,
)

ASK = Request(messages=(Message("user", "hello"),))


def same(asked: Request, request: Request, info: object, terms: object) -> str:
    return repr(request.messages)


async def hub_of(
    script: Script, *, slots: int | None = None, **options: Any
) -> tuple[Hub, Scripted]:
    engine = Scripted(script, slots=slots)
    hub = Hub(engine, **options)
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


async def test_two_who_ask_the_same_share_it_and_one_may_cancel_alone() -> None:
    hub, engine = await hub_of(Script(["a", "b", "c"], delay=0.002), key=same)
    one, two = hub.open(ASK), hub.open(ASK)
    assert (one.origin, two.origin) == ("miss", "shared")
    await one.next()
    hub.cancel(two.id)
    assert (await everything(two))[-1] == Done("cancelled")
    assert text(await everything(one)) == "abc"
    assert engine.started == 1


async def test_who_shares_gets_the_whole_answer_when_the_first_is_gone() -> None:
    hub, engine = await hub_of(Script(["a", "b", "c"], delay=0.002), key=same)
    one, two = hub.open(ASK), hub.open(ASK)
    await one.next()
    one.cancel()
    assert text(await everything(two)) == "abc"
    assert engine.started == 1


async def test_an_answer_that_nobody_waits_for_any_more_is_not_shared() -> None:
    hub, _ = await hub_of(Script(["a", "b"], delay=0.002), key=same)
    hub.open(ASK).cancel()
    later = hub.open(ASK)
    assert later.origin == "miss"
    assert text(await everything(later)) == "ab"


async def test_an_answer_that_is_there_is_given_again() -> None:
    hub, engine = await hub_of(Script(["a", "b"]), key=same)
    first = await everything(hub.open(ASK))
    await asyncio.sleep(0.01)
    again = hub.open(ASK)
    assert again.origin == "hit"
    assert await everything(again) == first
    assert engine.started == 1
    old = hub.open(ASK, Terms(cache=CacheWish(max_age=0.001)))
    assert old.origin == "miss"
    await everything(old)


UNFIT = {
    "cut by the limit": Script(["a", "b", "c"], finish=FinishReason.LENGTH),
    "broken off": Script(["a", "b"], finish=None),
    "failed": Script(["a", "b"], fail_at=1),
    "empty": Script([]),
    "ended without a reason": Script(
        ["a", Piece(finish=FinishReason.STOP, assumed=True)], finish=None
    ),
}


@pytest.mark.parametrize("script", UNFIT.values(), ids=UNFIT)
async def test_an_answer_that_is_not_whole_is_given_to_nobody_else(script: Script) -> None:
    journals = MemoryJournals()
    hub, _ = await hub_of(script, key=same, archive=Archive(journals))
    await everything(hub.open(ASK))
    await asyncio.sleep(0.01)
    assert hub.open(ASK).origin == "miss"
    await hub.aclose()
    assert len(journals) == 0


async def test_an_answer_that_was_left_in_the_middle_is_not_kept() -> None:
    hub, engine = await hub_of(Script(["x"] * 100, delay=0.001), key=same)
    reader = hub.open(ASK)
    await reader.next()
    reader.leave()
    await until(lambda: engine.started and not engine.running)
    await asyncio.sleep(0.01)
    assert hub.open(ASK).origin == "miss"
    await hub.aclose()


async def test_kept_answers_are_bounded() -> None:
    journals = MemoryJournals()
    archive = Archive(journals, Limits(count=3))
    hub, _ = await hub_of(Script(["x"]), key=same, archive=archive)
    asks = [Request(messages=(Message("user", f"{n}"),)) for n in range(5)]
    for ask in asks:
        await everything(hub.open(ask))
    await asyncio.sleep(0.01)
    assert len(journals) == 3
    assert [hub.open(ask).origin for ask in reversed(asks)] == ["hit"] * 3 + ["miss"] * 2
    await hub.aclose()


async def test_when_there_is_no_room_nobody_is_promised_to_come_back() -> None:
    hub, engine = await hub_of(
        Script(["x"] * 1000, delay=0.001), archive=Archive(limits=Limits(count=1))
    )
    first, second = (hub.open(ASK, Terms(background=True)) for _ in range(2))
    assert (first.resumable, second.resumable) == (True, False)
    second.leave()
    await until(lambda: engine.running == 1)
    assert first.id in hub._seats
    await hub.aclose()


async def test_cache_wishes_are_kept() -> None:
    hub, _ = await hub_of(Script(["a", "b"], delay=0.002), key=same)
    with pytest.raises(NotCached):
        hub.open(ASK, Terms(cache=CacheWish(only=True)))
    secret = hub.open(ASK, Terms(cache=CacheWish(write=False)))
    shared = hub.open(ASK)
    fresh = hub.open(ASK, Terms(cache=CacheWish(read=False)))
    assert [reader.origin for reader in (secret, shared, fresh)] == ["miss", "miss", "miss"]
    assert hub.open(ASK, Terms(cache=CacheWish(only=True))).origin == "shared"
    await hub.aclose()


async def test_a_reader_comes_back_within_the_grace_and_misses_nothing() -> None:
    hub, _ = await hub_of(Script([str(n) for n in range(10)], delay=0.002))
    reader = hub.open(ASK, Terms(grace=5))
    seen = list(await reader.next())
    reader.leave()
    await asyncio.sleep(0.01)
    back = hub.attach(reader.id, after=len(seen))
    assert text(seen + await everything(back)) == "0123456789"
    await hub.aclose()


async def test_what_is_made_in_the_background_needs_no_reader() -> None:
    hub, engine = await hub_of(Script(["a", "b", "c"], delay=0.002))
    reader = hub.open(ASK, Terms(background=True))
    reader.leave()
    await until(lambda: engine.started and not engine.running)
    assert text(await everything(hub.attach(reader.id))) == "abc"
    hub.cancel(reader.id)
    with pytest.raises(KeyError):
        hub.attach(reader.id)


async def test_who_comes_back_after_the_end_is_told_of_it() -> None:
    hub, _ = await hub_of(Script(["a"]))
    reader = hub.open(ASK, Terms(background=True))
    seen = await everything(reader)
    for after in (len(seen), len(seen) + 99):
        assert await everything(hub.attach(reader.id, after=after)) == seen[-1:]
    await hub.aclose()


async def test_what_is_whole_cannot_be_cancelled_only_let_go() -> None:
    hub, _ = await hub_of(Script(["a"] * 1000, delay=0.001))
    made = hub.open(ASK, Terms(grace=60))
    assert hub.cancel(made.id)
    assert not hub.cancel(made.id)
    await hub.aclose()
    hub, _ = await hub_of(Script(["a"]))
    whole = hub.open(ASK, Terms(grace=60))
    await everything(whole)
    assert not hub.cancel(whole.id)
    with pytest.raises(KeyError):
        hub.attach(whole.id)


async def test_what_was_promised_stays_when_the_hub_is_closed() -> None:
    journals = MemoryJournals()
    hub, engine = await hub_of(Script(["a"] * 1000, delay=0.001), archive=Archive(journals))
    promised, other = hub.open(ASK, Terms(background=True)), hub.open(ASK)
    await until(lambda: engine.running == 2)
    await hub.aclose()
    assert len(journals) == 1
    for reader in (promised, other):
        done = (await everything(reader))[-1]
        assert isinstance(done, Done)
        assert done.state == "cancelled"


async def test_nobody_else_sees_an_answer() -> None:
    hub, _ = await hub_of(Script(["a"]))
    reader = hub.open(ASK, Terms(owner="anna", background=True))
    for stranger in ("", "bert"):
        with pytest.raises(KeyError):
            hub.attach(reader.id, owner=stranger)
        assert not hub.cancel(reader.id, owner=stranger)
    assert text(await everything(hub.attach(reader.id, owner="anna"))) == "a"
    await hub.aclose()


async def test_the_grace_ends() -> None:
    hub, engine = await hub_of(Script(["x"] * 10_000, delay=0.001))
    reader = hub.open(ASK, Terms(grace=0.02))
    await reader.next()
    reader.leave()
    await until(lambda: engine.started and not engine.running)
    with pytest.raises(KeyError):
        hub.attach(reader.id)


SLOW = [
    (Timeouts(queue=0.02), Script(["x"] * 10_000, delay=0.001), "no slot"),
    (Timeouts(first_token=0.02), Script(["x"], delay=5), "no token"),
    (Timeouts(total=0.02), Script(["x"] * 10_000, delay=0.001), "not whole"),
]


@pytest.mark.parametrize(("timeouts", "script", "said"), SLOW)
async def test_times_are_kept(timeouts: Timeouts, script: Script, said: str) -> None:
    hub, engine = await hub_of(script, slots=1)
    first = hub.open(ASK) if timeouts.queue else None
    done = (await everything(hub.open(ASK, Terms(timeouts=timeouts))))[-1]
    assert isinstance(done, Done)
    assert done.state == "failed"
    assert said in str(done.error)
    if first is not None:
        first.cancel()
    await until(lambda: not engine.running)


async def test_progress_is_a_sign_of_life() -> None:
    script = Script(["a"], prompt=100, prompt_steps=10, prompt_delay=0.02)
    hub, _ = await hub_of(script)
    events = await everything(hub.open(ASK, Terms(timeouts=Timeouts(first_token=0.1))))
    assert text(events) == "a"


async def test_owners_take_turns() -> None:
    hub, _ = await hub_of(Script(["x"], delay=0.005), slots=1)
    order: list[str] = []

    async def ask(owner: str) -> None:
        await everything(hub.open(ASK, Terms(owner=owner)))
        order.append(owner)

    await asyncio.gather(*(ask(owner) for owner in ["anna"] * 4 + ["bert"] * 2))
    assert order == ["anna", "anna", "bert", "anna", "bert", "anna"]


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
    journals = MemoryJournals()
    hub, _ = await hub_of(Script(["x"]), archive=Archive(journals))
    for _ in range(5):
        await everything(hub.open(ASK))
    await asyncio.sleep(0.01)
    assert len(journals) == 0


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


# -- tool calls, and channels that the prompt opens ------------------------------------------------

TOOLS = ({"type": "function", "function": {"name": "f"}},)
CALLING = Request(messages=ASK.messages, tools=TOOLS)
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>'


async def asked(
    request: Request, said: Sequence[str | Piece], *, finish: FinishReason = FinishReason.STOP
) -> list[Event]:
    """What comes of a model that writes calls as Hermes does."""
    engine = Scripted(Script(said, finish=finish), channels="think", calls="hermes")
    hub = Hub(engine)
    await hub.start()
    return await everything(hub.open(request))


def tools(events: Sequence[Event]) -> list[ToolDelta]:
    return [event.tool for event in events if isinstance(event, Delta) and event.tool]


def ends(events: Sequence[Event]) -> list[Finished]:
    return [event for event in events if isinstance(event, Finished)]


async def test_calls_are_read_where_tools_were_given() -> None:
    events = await asked(CALLING, ["Let me see.\n", *CALL, *CALL])
    told = tools(events)
    assert [(tool.index, tool.name) for tool in told if tool.id] == [(0, "f"), (1, "f")]
    for index in (0, 1):
        arguments = "".join(tool.arguments for tool in told if tool.index == index)
        assert arguments == '{"a": "b"}'
    assert text(events) == "Let me see.\n"
    assert ends(events) == [Finished(FinishReason.TOOL_CALLS)]


@pytest.mark.parametrize(
    "request_",
    [ASK, Request(messages=ASK.messages, tools=TOOLS, tool_choice="none")],
    ids=["no tools", "tools that are not wanted"],
)
async def test_calls_stay_text_where_nobody_asked_for_them(request_: Request) -> None:
    events = await asked(request_, [*CALL])
    assert not tools(events)
    assert text(events) == '{"name": "f", "arguments": {"a": "b"}}'
    assert ends(events) == [Finished(FinishReason.STOP)]


async def test_a_call_that_the_limit_cut_is_no_reason_to_run_it() -> None:
    events = await asked(CALLING, [*CALL[:-17]], finish=FinishReason.LENGTH)
    assert "".join(tool.arguments for tool in tools(events)) == '{"a": "'
    assert ends(events) == [Finished(FinishReason.LENGTH)]
    events = await asked(CALLING, [CALL, "and th"], finish=FinishReason.LENGTH)
    assert ends(events) == [Finished(FinishReason.LENGTH)]


async def test_a_call_that_is_none_is_text_and_no_call() -> None:
    events = await asked(CALLING, ["<tool_call>{'name': 'f'}</tool_call>"])
    assert (text(events), tools(events)) == ("{'name': 'f'}", [])
    assert ends(events) == [Finished(FinishReason.STOP)]


async def test_stops_do_not_act_on_calls_and_a_call_before_one_counts() -> None:
    request = Request(messages=ASK.messages, tools=TOOLS, stop=('"a"', "so"))
    events = await asked(request, [*CALL, "And so on"])
    assert "".join(tool.arguments for tool in tools(events)) == '{"a": "b"}'
    assert text(events) == "And "
    assert ends(events) == [Finished(FinishReason.TOOL_CALLS, stop="so")]


async def test_each_choice_has_calls_of_its_own() -> None:
    said = [Piece(CALL, choice=0), Piece("Hm.", choice=1)]
    ending = [Piece(finish=FinishReason.STOP, choice=choice) for choice in (0, 1)]
    script = Script([], finish=None)

    class Two(Scripted):
        async def generate(self, request: Request) -> AsyncGenerator[Piece, None]:
            for piece in [*said, *ending]:
                yield piece

    hub = Hub(Two(script, channels="think", calls="hermes"))
    await hub.start()
    events = await everything(hub.open(Request(messages=ASK.messages, tools=TOOLS, n=2)))
    assert ends(events) == [
        Finished(FinishReason.TOOL_CALLS, 0),
        Finished(FinishReason.STOP, 1),
    ]


async def test_the_channel_that_the_prompt_opened_is_told_by_the_engine() -> None:
    said: list[str | Piece] = [Piece(opened=Channel.REASONING), "stop?", "</think>", "no: stop"]
    events = await asked(Request(messages=ASK.messages, stop=("stop",)), said)
    parts = [event for event in events if isinstance(event, Delta)]
    assert "".join(d.text for d in parts if d.channel is Channel.REASONING) == "stop?"
    assert "".join(d.text for d in parts if d.channel is Channel.ANSWER) == "no: "


async def test_the_models_own_ends_stop_its_chats() -> None:
    engine = Scripted(Script(["Hi.<", "|end|", ">User: "]), stop=("<|end|>",))
    hub = Hub(engine)
    await hub.start()
    events = await everything(hub.open(Request(messages=ASK.messages, stop=("x",))))
    assert text(events) == "Hi."
    assert ends(events) == [Finished(FinishReason.STOP, stop="<|end|>")]
    for whole in (Request(prompt="Say"), Request(messages=ASK.messages, ignore_eos=True)):
        assert text(await everything(hub.open(whole))) == "Hi.<|end|>User: "


async def test_two_hundred_streams_left_at_random_moments_leave_nothing_behind() -> None:
    journals = MemoryJournals()
    hub, engine = await hub_of(
        Script([Piece("x", tokens=1)] * 50, delay=0.001, prompt_steps=5, prompt_delay=0.001),
        slots=4,
        archive=Archive(journals),
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
    assert len(journals) == 0
