from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bourn.errors import EngineError
from bourn.types import (
    Channel,
    Delta,
    Done,
    Event,
    Finished,
    FinishReason,
    Metrics,
    Progress,
    Queued,
    Sampling,
    Started,
    Usage,
)
from bourn.wire.answers import Head, speed_object
from bourn.wire.frames import Frames

CHAT = Head("chatcmpl-1.2", 'a "model"', 1_800_000_000)
SPEED = Metrics(queue_time=0.5, ttft=0.75, total=1.5, tokens_per_second=10.0, itl_mean=0.1)
END: Event = Done("complete", Usage(3, 4), SPEED)
STOP: Event = Finished(FinishReason.STOP)


def written(events: Sequence[Event], **how: Any) -> str:
    made = Frames(CHAT, **how)
    return "".join(made.frames_of(number, event) for number, event in enumerate(events, 1))


def told(text: str) -> list[Any]:
    *data, end = [block.rpartition("data: ")[2] for block in text.split("\n\n")[:-1]]
    assert end == "[DONE]"
    return [json.loads(each) for each in data]


def ids(text: str) -> list[str]:
    """Of each frame."""
    blocks = text.split("\n\n")[:-1]
    return [block.partition("\n")[0] if block.startswith("id: ") else "" for block in blocks]


def test_the_last_frame_of_an_event_has_its_number() -> None:
    events: list[Event] = [
        Queued(1),
        Started(Sampling()),
        Delta("a"),
        Progress(1, 2),
        Delta("b"),
        STOP,
        END,
    ]
    where = "id: chatcmpl-1.2:"
    expected = ["", where + "3", where + "5", where + "6", ""]  # role, a, b, finish, [DONE]
    assert ids(written(events)) == expected
    expected = ["", where + "3", where + "5", where + "6", where + "7", ""]
    assert ids(written(events, usage=True)) == expected


def test_numbers_about_speed_are_in_the_last_chunk() -> None:
    *_, finish = told(written([Delta("a"), STOP, END]))
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert finish["metrics"] == speed_object(SPEED)
    assert "usage" not in finish
    *_, finish, usage = told(written([Delta("a"), STOP, END], usage=True))
    assert "metrics" not in finish
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 7)
    assert usage["metrics"] == {
        "time_to_first_token_ms": 750,
        "generation_time_ms": 1000,
        "queue_time_ms": 500,
        "mean_itl_ms": 100,
        "tokens_per_second": 10,
        "total_time_ms": 1500,
        "itl_p50_ms": None,
        "itl_p99_ms": None,
    }
    *_, finish = told(written([Delta("a"), STOP, END], earlier=True))
    assert finish["metrics"]["cached"] is True


def test_of_several_choices_only_the_last_finish_waits() -> None:
    made = Frames(CHAT)
    first = made.frames_of(1, Delta("a")) + made.frames_of(2, STOP)
    assert 'finish_reason":"stop' not in first
    later = made.frames_of(3, Delta("b", choice=1))
    assert later.index('"finish_reason":"stop"') < later.index('"content":"b"')
    made.frames_of(4, Finished(FinishReason.LENGTH, 1))
    last = told(made.frames_of(5, END))
    assert [chunk["choices"][0]["finish_reason"] for chunk in last] == ["length"]


def test_what_was_cancelled_says_so() -> None:
    *_, finish = told(written([Delta("a"), Done("cancelled", Usage(3, 1), SPEED)]))
    assert finish["choices"][0]["finish_reason"] == "cancelled"
    assert finish["metrics"]["tokens_per_second"] == 10
    role, finish = told(written([Queued(1), Done("cancelled")]))
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert finish["choices"][0]["finish_reason"] == "cancelled"
    made = told(written([STOP, Delta("b", choice=1), Done("cancelled")], usage=True))
    ends = [c["choices"][0]["finish_reason"] for c in made if c["choices"]]
    assert [end for end in ends if end] == ["stop", "cancelled"]


def test_an_error_is_a_frame_and_then_comes_the_end() -> None:
    *_, error = told(written([Delta("a"), Done("failed", error=EngineError('a "b"\nc'))]))
    assert error["error"]["message"] == 'a "b"\nc'
    assert error["error"]["code"] == "engine_error"


def test_places_in_the_queue_only_for_those_who_ask() -> None:
    events: list[Event] = [Queued(2), Queued(1), STOP, END]
    assert all(chunk["choices"] for chunk in told(written(events)))
    first, second, *_ = told(written(events, places=True))
    assert (first["choices"], first["bourn"]) == ([], {"place": 2})
    assert second["bourn"] == {"place": 1}


def test_wherever_it_is_cut_the_rest_is_what_was_not_seen() -> None:
    for usage in (False, True):
        events: list[Event] = [
            Started(Sampling()),
            Delta("a"),
            Delta("b", Channel.REASONING),
            Progress(1, 2),
            STOP,
            Delta("c", choice=1),
            Finished(FinishReason.LENGTH, 1),
            END,
        ]
        whole = written(events, usage=usage)
        for seen in range(len(events) + 1):
            rest = written(events, usage=usage, after=seen)
            assert whole.endswith(rest)
            gone = whole.removesuffix(rest)
            numbers = [int(id_.rpartition(":")[2]) for id_ in ids(gone) if id_]
            assert all(number <= seen for number in numbers)
            numbers = [int(id_.rpartition(":")[2]) for id_ in ids(rest) if id_]
            assert all(number > seen for number in numbers)
    assert written(events, after=99) == "data: [DONE]\n\n"


def test_a_lone_surrogate_is_no_trouble() -> None:
    assert "?" in written([Delta("\ud800"), END]).encode("utf-8", "replace").decode()
