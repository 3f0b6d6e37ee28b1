"""Events as JSON objects: one a line with `--json`, and what a journal on disk keeps.

The texts of all `delta` objects, joined, are the `text` of `done`. Times are milliseconds here.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bourn.errors import describe
from bourn.types import (
    Channel,
    Delta,
    Done,
    Event,
    Finished,
    Metrics,
    Progress,
    Queued,
    Started,
    TokenLogprob,
    Usage,
)

if TYPE_CHECKING:
    from bourn.stream import Answer

_KINDS = {Channel.ANSWER: "delta", Channel.REASONING: "reasoning", Channel.TOOL: "tool"}


def event_object(event: Event) -> dict[str, Any]:
    """One event. `choice` is there from the second choice on."""
    match event:
        case Queued():
            return {"type": "queued", "place": event.place}
        case Started():
            return {"type": "start", **event.sampling.given()}
        case Progress():
            return {"type": "progress", "done": event.done, "total": event.total}
        case Delta():
            return _delta(event)
        case Finished():
            told = {"type": "finish", "finish_reason": event.reason.value, "stop": event.stop}
            return _with_choice(told, event.choice)
        case Done():
            return {"type": "done", **_end(event)}


def done_object(answer: Answer) -> dict[str, Any]:
    """The last line: the whole answer and its numbers."""
    done = Done(answer.state or "lost", answer.usage, answer.metrics, answer.error)
    told: dict[str, Any] = {"type": "done", "text": answer.text}
    if answer.reasoning:
        told["reasoning"] = answer.reasoning
    if answer.tool_calls:
        told["tool_calls"] = [asdict(call) for call in answer.tool_calls]
    reason = answer.finish_reason
    told["finish_reason"] = reason and reason.value
    told["seed"] = answer.seed
    return told | _end(done)


def metrics_object(metrics: Metrics) -> dict[str, Any]:
    return {
        "ttft_ms": _ms(metrics.ttft),
        "first_text_ms": _ms(metrics.first_text),
        "total_ms": _ms(metrics.total),
        "queue_time_ms": _ms(metrics.queue_time),
        "tokens": metrics.tokens,
        "tokens_per_second": metrics.tokens_per_second and round(metrics.tokens_per_second, 2),
        "itl_p50_ms": _ms(metrics.itl_p50),
        "itl_p99_ms": _ms(metrics.itl_p99),
        "prompt_tokens": metrics.prompt_tokens,
        "cached_tokens": metrics.cached_tokens,
    }


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage as in OpenAI's API; `estimated` only where it is."""
    told: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    return told | ({"estimated": True} if usage.estimated else {})


def _delta(delta: Delta) -> dict[str, Any]:
    told: dict[str, Any] = {"type": _KINDS[delta.channel], "text": delta.text}
    if delta.tool is not None:
        told["tool"] = asdict(delta.tool)
    if delta.logprobs:
        told["logprobs"] = [logprob_object(entry) for entry in delta.logprobs]
    return _with_choice(told, delta.choice)


def logprob_object(entry: TokenLogprob) -> dict[str, Any]:
    """A token, with the alternatives to it as `top` where there are some."""
    told: dict[str, Any] = {
        "token": entry.token,
        "logprob": entry.logprob,
        "bytes": list(entry.bytes),
    }
    return told | ({"top": [logprob_object(other) for other in entry.top]} if entry.top else {})


def _end(done: Done) -> dict[str, Any]:
    told = {
        "state": done.state,
        "usage": usage_object(done.usage),
        "metrics": metrics_object(done.metrics),
    }
    return told | ({} if done.error is None else {"error": describe(done.error)})


def _with_choice(told: dict[str, Any], choice: int) -> dict[str, Any]:
    return told | ({"choice": choice} if choice else {})


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)
