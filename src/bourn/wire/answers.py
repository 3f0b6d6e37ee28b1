"""An answer on OpenAI's wire, out: as the chunks of a stream, or whole.

Events become JSON objects; framing them is for `wire.sse`. It knows no server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bourn.errors import BournError, EngineCrashed, InvalidRequest, describe
from bourn.stream import Choice
from bourn.types import (
    Channel,
    Delta,
    Event,
    Finished,
    FinishReason,
    Metrics,
    TokenLogprob,
    ToolCall,
    ToolDelta,
    Usage,
)
from bourn.wire.events import usage_object
from bourn.wire.sse import encode

DONE = encode("[DONE]")
"""The frame that ends every stream, also one that failed."""

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Head:
    """What every chunk repeats. created: seconds since 1970. chat: else an old-style completion."""

    id: str
    model: str
    created: int
    chat: bool = True

    def object(self, *, whole: bool) -> dict[str, Any]:
        kind = "chat.completion" if self.chat else "text_completion"
        return {
            "id": self.id,
            "object": kind if whole or not self.chat else f"{kind}.chunk",
            "created": self.created,
            "model": self.model,
        }


class ChunkWriter:
    """Writes the events of one answer as chunks: of each choice the role, its texts, its end."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._greeted: set[int] = set()
        self._finished: set[int] = set()

    def chunks_of(self, event: Event) -> list[dict[str, Any]]:
        """None for what OpenAI's wire has no word for: places in a queue, progress, the end of all.

        The finish reason is a chunk of its own, with nothing in it.
        """
        match event:
            case Delta() if event.text or event.tool or event.logprobs:
                said = _said(event) if self._head.chat else _completed(event)
                return [*self._greet(event.choice), self._chunk(event.choice, said, event.logprobs)]
            case Finished():
                self._finished.add(event.choice)
                chunk = self._chunk(event.choice, {} if self._head.chat else {"text": ""}, ())
                chunk["choices"][0]["finish_reason"] = event.reason.value
                return [*self._greet(event.choice), chunk]
            case _:
                return []

    def broken_off(self) -> list[dict[str, Any]]:
        """The ends of what was cancelled: of the first choice, and of all that had begun."""
        left = sorted(({0} | self._greeted) - self._finished)
        ends = [Finished(FinishReason.CANCELLED, choice) for choice in left]
        return [chunk for end in ends for chunk in self.chunks_of(end)]

    def bare_chunk(self, **more: Any) -> dict[str, Any]:
        """A chunk without choices."""
        return self._head.object(whole=False) | {"choices": [], **more}

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        """The last chunk, for those who asked for it (`stream_options.include_usage`)."""
        return self.bare_chunk(usage=usage_object(usage))

    def _greet(self, choice: int) -> list[dict[str, Any]]:
        if choice in self._greeted:
            return []
        self._greeted.add(choice)
        if not self._head.chat:
            return []
        return [self._chunk(choice, {"role": "assistant", "content": ""}, ())]

    def _chunk(
        self, choice: int, said: Mapping[str, Any], logprobs: Sequence[TokenLogprob]
    ) -> dict[str, Any]:
        told = {"delta": dict(said)} if self._head.chat else dict(said)
        made = {
            "index": choice,
            **told,
            "logprobs": _logprobs(logprobs, chat=self._head.chat) if logprobs else None,
            "finish_reason": None,
        }
        return self._head.object(whole=False) | {"choices": [made]}


def whole_answer(head: Head, choices: Sequence[Choice], usage: Usage) -> dict[str, Any]:
    """An answer that is not streamed. Its texts are the joined texts of the stream."""
    return head.object(whole=True) | {
        "choices": [_whole_choice(head, index, choice) for index, choice in enumerate(choices)],
        "usage": usage_object(usage),
    }


def speed_object(metrics: Metrics, *, earlier: bool = False) -> dict[str, Any]:
    """How fast an answer was, by the names that vLLM gives these numbers; milliseconds.

    generation_time_ms is from the slot to the end, mean_itl_ms between two tokens. earlier: the
    answer was there already, and these are the times of when it was made; `cached` says so.
    """
    rate = metrics.tokens_per_second
    told: dict[str, Any] = {
        "time_to_first_token_ms": _ms(metrics.ttft),
        "generation_time_ms": _ms(metrics.total - metrics.queue_time),
        "queue_time_ms": _ms(metrics.queue_time),
        "mean_itl_ms": _ms(metrics.itl_mean),
        "tokens_per_second": rate and round(rate, 2),
        "total_time_ms": _ms(metrics.total),
        "itl_p50_ms": _ms(metrics.itl_p50),
        "itl_p99_ms": _ms(metrics.itl_p99),
    }
    return told | ({"cached": True} if earlier else {})


def error_object(error: BaseException) -> dict[str, Any]:
    """The body of an error, or the frame of one inside a stream.

    The last words of a process are for its owner: they may tell of its files, and of others' texts.
    """
    told = describe(error)
    if isinstance(error, EngineCrashed):
        told["message"] = error.message
    status = error.status if isinstance(error, BournError) else 500
    field = error.field if isinstance(error, InvalidRequest) else None
    return {"error": {**told, "param": field, "status": status}}


def json_text(value: object) -> str:
    """JSON as it is written on this wire: short, and its letters as they are."""
    return _JSON.encode(value)


def frame(chunk: Mapping[str, Any]) -> bytes:
    """A chunk as an event of a stream."""
    return encode(json_text(chunk))


def _said(delta: Delta) -> dict[str, Any]:
    if delta.tool is not None:
        return {"tool_calls": [_tool_part(delta.tool)]}
    return {_NAMES.get(delta.channel, "content"): delta.text}


def _completed(delta: Delta) -> dict[str, Any]:
    if delta.channel is Channel.REASONING:
        return {"text": "", _NAMES[delta.channel]: delta.text}
    return {"text": delta.text}


_NAMES = {Channel.REASONING: "reasoning_content"}


def _tool_part(part: ToolDelta) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": part.arguments}
    told: dict[str, Any] = {"index": part.index, "function": function}
    if part.name is not None:
        function["name"] = part.name
    if part.id is not None:
        told |= {"id": part.id, "type": "function"}
    return told


def _whole_choice(head: Head, index: int, choice: Choice) -> dict[str, Any]:
    logprobs = _logprobs(choice.logprobs, chat=head.chat) if choice.logprobs else None
    reason = choice.finish_reason and choice.finish_reason.value
    said = {"message": _message(choice)} if head.chat else {"text": choice.content}
    return {"index": index, **said, "logprobs": logprobs, "finish_reason": reason}


def _message(choice: Choice) -> dict[str, Any]:
    calls = choice.tool_calls
    told: dict[str, Any] = {
        "role": "assistant",
        "content": None if calls and not choice.content else choice.content,
    }
    if choice.reasoning:
        told["reasoning_content"] = choice.reasoning
    if calls:
        told["tool_calls"] = [_tool_call(call) for call in calls]
    return told


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _logprobs(entries: Sequence[TokenLogprob], *, chat: bool) -> dict[str, Any]:
    """For completions also in the old way, as parallel lists."""
    told: dict[str, Any] = {"content": [_logprob(entry) for entry in entries]}
    if not chat:
        told["tokens"] = [entry.token for entry in entries]
        told["token_logprobs"] = [entry.logprob for entry in entries]
        told["top_logprobs"] = [
            {other.token: other.logprob for other in entry.top} for entry in entries
        ]
    return told


def _logprob(entry: TokenLogprob) -> dict[str, Any]:
    return {
        "token": entry.token,
        "logprob": entry.logprob,
        "bytes": list(entry.bytes),
        "top_logprobs": [
            {"token": other.token, "logprob": other.logprob, "bytes": list(other.bytes)}
            for other in entry.top
        ],
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)
