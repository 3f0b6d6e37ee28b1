"""Whatever an engine does, a reader sees a well-formed journal and every certain character once."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from bourn.engines.scripted import Script, Scripted
from bourn.errors import EngineError
from bourn.hub import Hub
from bourn.stream import Answer
from bourn.types import Delta, Done, Event, Finished, FinishReason, Message, Request, Started

texts = st.lists(
    st.text(alphabet="abU\u0e2a\uac00🇫\u200d\ufffd\0 ", min_size=1, max_size=4), max_size=12
)
stops = st.lists(st.text(alphabet="ab\u0e2a ", min_size=1, max_size=3), max_size=3).map(tuple)


async def run(script: Script, request: Request) -> list[Event]:
    hub = Hub(Scripted(script))
    await hub.start()
    reader = hub.open(request)
    events: list[Event] = []
    while batch := await reader.next():
        events += batch
    assert hub.live == 0
    return events


def first_stop(text: str, among: tuple[str, ...]) -> int | None:
    """Where the stop that ends earliest begins; of several ending there, the longest."""
    ends = [(text.find(stop) + len(stop), -len(stop)) for stop in among if stop in text]
    return sum(min(ends)) if ends else None


@settings(max_examples=150, deadline=None)
@given(texts, stops, st.integers(1, 15), st.one_of(st.none(), st.integers(0, 12)), st.booleans())
def test_any_script_makes_a_well_formed_journal(
    pieces: list[str], stop: tuple[str, ...], limit: int, fail_at: int | None, ends: bool
) -> None:
    finish = FinishReason.STOP if ends else None
    script = Script(pieces, fail_at=fail_at, finish=finish)
    request = Request(messages=(Message("user", "?"),), stop=stop, max_new_tokens=limit)
    events = asyncio.run(run(script, request))
    assert isinstance(events[0], Started)
    assert [type(event) for event in events].count(Done) == 1
    done = events[-1]
    assert isinstance(done, Done)

    broken = min(len(pieces), 12 if fail_at is None else fail_at)
    said = "".join(pieces[: min(broken, limit)])
    cut = first_stop(said, stop)
    shown = "".join(event.text for event in events if isinstance(event, Delta))
    finished = [event for event in events if isinstance(event, Finished)]
    if cut is not None:
        assert shown == said[:cut]
        assert [event.reason for event in finished] == [FinishReason.STOP]
    elif finished:
        assert shown == said
    else:
        assert shown == said, "what is held when it breaks off was generated all the same"
        assert isinstance(done.error, EngineError)
    assert (done.state == "complete") == bool(finished)


@settings(max_examples=50, deadline=None)
@given(texts)
def test_the_answer_adds_up_to_what_was_said(pieces: list[str]) -> None:
    events = asyncio.run(run(Script(pieces), Request(messages=(Message("user", "?"),))))
    answer = Answer("x")
    for event in events:
        answer._see(event)
    assert answer.text == "".join(pieces)
    assert answer.usage.completion_tokens == len(pieces)
