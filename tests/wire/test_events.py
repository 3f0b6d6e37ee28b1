from __future__ import annotations

import json

from bourn.errors import Interrupted
from bourn.stream import Answer
from bourn.types import (
    Channel,
    Delta,
    Done,
    Finished,
    FinishReason,
    Metrics,
    Progress,
    Queued,
    Sampling,
    Started,
    TokenLogprob,
    ToolDelta,
    Usage,
)
from bourn.wire.events import done_object, event_object


def test_every_kind_of_event() -> None:
    assert event_object(Queued(3)) == {"type": "queued", "place": 3}
    assert event_object(Started(Sampling(seed=7))) == {"type": "start", "seed": 7}
    assert event_object(Progress(5, 9)) == {"type": "progress", "done": 5, "total": 9}
    assert event_object(Delta("a")) == {"type": "delta", "text": "a"}
    assert event_object(Delta("b", Channel.REASONING, choice=1)) == {
        "type": "reasoning",
        "text": "b",
        "choice": 1,
    }
    tool = event_object(Delta("", Channel.TOOL, tool=ToolDelta(0, "id", "f", "{}")))
    assert tool["tool"] == {"index": 0, "id": "id", "name": "f", "arguments": "{}"}
    assert event_object(Finished(FinishReason.STOP, stop="END")) == {
        "type": "finish",
        "finish_reason": "stop",
        "stop": "END",
    }
    assert event_object(Done("complete"))["state"] == "complete"


def test_logprobs_carry_the_bytes_of_half_a_character() -> None:
    half = TokenLogprob("\ufffd", -0.5, b"\xf0\x9f", top=(TokenLogprob("a", -1.0, b"a"),))
    told = event_object(Delta("", logprobs=(half,)))["logprobs"][0]
    assert told["bytes"] == [0xF0, 0x9F]
    assert told["top"] == [{"token": "a", "logprob": -1.0, "bytes": [97]}]


def test_done_holds_the_whole_answer_and_milliseconds() -> None:
    answer = Answer("x")
    usage = Usage(5, 2, cached_tokens=4)
    metrics = Metrics(ttft=0.25, total=1.0, tokens=2, tokens_per_second=2.0, prompt_tokens=5)
    for event in (
        Started(Sampling(seed=3)),
        Delta("hm", Channel.REASONING),
        Delta("a"),
        Delta("b"),
        Finished(FinishReason.LENGTH),
        Done("complete", usage, metrics),
    ):
        answer._see(event)
    told = json.loads(json.dumps(done_object(answer)))
    assert (told["text"], told["reasoning"], told["finish_reason"]) == ("ab", "hm", "length")
    assert (told["seed"], told["metrics"]["ttft_ms"], told["metrics"]["itl_p50_ms"]) == (
        3,
        250,
        None,
    )
    assert told["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def test_a_failure_is_described() -> None:
    answer = Answer("x")
    answer._see(Done("failed", error=Interrupted("cut off", hint="ask again")))
    told = done_object(answer)
    assert told["error"] == {
        "message": "cut off",
        "type": "Interrupted",
        "code": "interrupted",
        "retryable": True,
        "hint": "ask again",
    }
    assert told["finish_reason"] is None
