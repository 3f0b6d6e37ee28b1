"""An answer on OpenAI's wire, out: as the chunks of a stream, or whole.

Events become JSON objects; framing them is for `wire.sse`. It knows no server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bourn.errors import BournError, describe
from bourn.stream import Choice
from bourn.types import Channel, Delta, Event, Finished, TokenLogprob, ToolCall, ToolDelta, Usage
from bourn.wire.events import usage_object
from bourn.wire.sse import encode

DONE = encode("[DONE]")
"""The frame that ends every stream, also one that failed."""


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

    def chunks_of(self, event: Event) -> list[dict[str, Any]]:
        """None for what OpenAI's wire has no word for: places in a queue, progress, the end of all.

        The finish reason is a chunk of its own, with nothing in it.
        """
        match event:
            case Delta() if event.text or event.tool or event.logprobs:
                said = _said(event) if self._head.chat else _completed(event)
                return [*self._greet(event.choice), self._chunk(event.choice, said, event.logprobs)]
            case Finished():
                chunk = self._chunk(event.choice, {} if self._head.chat else {"text": ""}, ())
                chunk["choices"][0]["finish_reason"] = event.reason.value
                return [*self._greet(event.choice), chunk]
            case _:
                return []

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        """The last chunk, for those who asked for it (`stream_options.include_usage`)."""
        return self._head.object(whole=False) | {"choices": [], "usage": usage_object(usage)}

    def _greet(self, choice: int) -> list[dict[str, Any]]:
        if not self._head.chat or choice in self._greeted:
            return []
        self._greeted.add(choice)
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


def error_object(error: BaseException) -> dict[str, Any]:
    """The body of an error, or the frame of one inside a stream."""
    status = error.status if isinstance(error, BournError) else 500
    return {"error": {**describe(error), "status": status}}


def frame(chunk: Mapping[str, Any]) -> bytes:
    """A chunk as an event of a stream."""
    return encode(json.dumps(chunk, ensure_ascii=False, separators=(",", ":")))


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
