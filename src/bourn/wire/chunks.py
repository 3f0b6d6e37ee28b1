"""The chunks of an answer on OpenAI's wire, in: JSON objects become pieces.

JSON ends here; what leaves is ours. It knows no connection and no framing, and not where a stream
ends: that is for `wire.reply`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from bourn.errors import EngineError
from bourn.types import Channel, FinishReason, Piece, TokenLogprob, ToolDelta, Usage

_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "tool_use": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
    "safety": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.CONTENT_FILTER,
    "cancelled": FinishReason.CANCELLED,
    "abort": FinishReason.CANCELLED,
}
"""What is not here (`eos`, `eos_token`, `end_turn`, `stop_sequence` …) is a way to say `stop`."""

_NO_LOGPROB = -9999.0
"""What OpenAI and vLLM write for "so unlikely that it was not computed"."""


class _Part(NamedTuple):
    channel: Channel
    text: str
    tool: ToolDelta | None = None


class _Choice:
    """What was read of one choice: its tokens, the ids of its tool calls, whether it has ended."""

    def __init__(self) -> None:
        self.tokens = 0
        self.spoke = False
        self.finish: FinishReason | None = None
        self.calls: list[str] = []
        self._places: dict[int, int] = {}
        self._named: set[int] = set()

    def reason(self, said: str) -> FinishReason:
        reason = _REASONS.get(said.lower(), FinishReason.STOP)
        return FinishReason.TOOL_CALLS if self.calls and reason is FinishReason.STOP else reason

    def tool(self, call: Mapping[str, Any]) -> ToolDelta:
        """A part of a call, under an index of its own. The id and the name are given once.

        There are servers that send no index, or always 0: a new id is a new call all the same.
        """
        said, id_ = call.get("index"), call.get("id") or None
        function = call.get("function") or {}
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        index = self._place_of(said, id_)
        new = index is None
        if index is None:
            index = len(self.calls)
            self.calls.append(id_ or f"call_{secrets.token_hex(12)}")
            self._places[said if isinstance(said, int) else index] = index
        name = None if index in self._named else function.get("name") or None
        if name is not None:
            self._named.add(index)
        return ToolDelta(index, self.calls[index] if new else None, name, arguments)

    def _place_of(self, said: object, id_: str | None) -> int | None:
        if id_ is not None:
            return self.calls.index(id_) if id_ in self.calls else None
        if isinstance(said, int):
            return self._places.get(said)
        return len(self.calls) - 1 if self.calls else None


class ChunkReader:
    """Reads the chunks of one answer, in order, into pieces. A whole answer is one big chunk.

    Tokens are counted as the server tells them: by llama.cpp's `timings` or vLLM's continuous usage
    in each chunk, for that choice; else by the logprobs; else each chunk with text is one, and the
    sum `estimated` until the server's last word, its usage.

    top: alternatives wanted beside each logprob; None leaves all.
    """

    def __init__(self, top: int | None = None) -> None:
        self._top = top
        self._choices: dict[int, _Choice] = {}
        self._prompt = 0
        self._cached = 0
        self._told_total = 0
        self._tokens = 0
        self._counted = False  # whether the server counts for us

    @property
    def usage(self) -> Usage:
        """The counts so far, over all choices."""
        total = self._told_total
        if self._counted or not total:  # llama.cpp's last word is for one choice of several
            total = max(total, self._tokens)
        known = self._counted or self._told_total > 0
        return Usage(self._prompt, total, self._cached, estimated=not known)

    def finished(self, n: int) -> bool:
        """Whether each of `n` choices has its finish reason."""
        return all(self._choice(index).finish is not None for index in range(n))

    def unfinished(self, n: int) -> Iterator[tuple[int, FinishReason | None]]:
        """The choices without a reason; beside each the one to assume, if it generated anything."""
        for index in range(n):
            choice = self._choice(index)
            if choice.finish is None:
                yield index, choice.reason("stop") if choice.spoke else None

    def pieces_of(self, chunk: Mapping[str, Any]) -> list[Piece]:
        """What a chunk says, of all its choices. Nothing for one without news, as a role chunk.

        Raises:
            EngineError: a choice ended in an error.
        """
        choices = chunk.get("choices") or ()
        if progress := chunk.get("prompt_progress"):
            index = choices[0].get("index") or 0 if choices else 0
            return [_progress(progress, index)]
        count = self._hear(chunk, alone=len(choices) == 1)
        pieces: list[Piece] = []
        for place, choice in enumerate(choices):
            index = choice.get("index")
            pieces += self._read(place if index is None else index, choice, count)
        return pieces

    def _choice(self, index: int) -> _Choice:
        if index not in self._choices:
            self._choices[index] = _Choice()
        return self._choices[index]

    def _hear(self, chunk: Mapping[str, Any], *, alone: bool) -> int | None:
        """Take in the counts; the choice's own count of tokens so far, where it is told."""
        count: int | None = None
        if usage := chunk.get("usage"):
            self._prompt = usage.get("prompt_tokens") or self._prompt
            details = usage.get("prompt_tokens_details") or {}
            self._cached = details.get("cached_tokens") or self._cached
            count = usage.get("completion_tokens")
            if not alone:
                self._told_total = count or 0
                count = None
        if timings := chunk.get("timings"):
            self._cached = timings.get("cache_n") or 0
            self._prompt = timings.get("prompt_n", 0) + self._cached
            count = timings.get("predicted_n") if alone else None
        return count or None  # 0 beside text is no count

    def _read(self, index: int, raw: Mapping[str, Any], count: int | None) -> list[Piece]:
        choice = self._choice(index)
        if choice.finish is not None:
            return []
        said = raw.get("delta") or raw.get("message") or raw
        parts = _texts(said)
        for call in said.get("tool_calls") or ():
            delta = choice.tool(call)
            parts.append(_Part(Channel.TOOL, "", delta))
        told = raw.get("logprobs")
        logprobs = _logprobs(told, self._top) if told else ()
        pieces = []
        if parts or logprobs:
            choice.spoke = True
            tokens = self._count(choice, count, len(logprobs) or 1)
            channel, text, tool = parts[0] if parts else _Part(Channel.ANSWER, "")
            pieces.append(Piece(text, channel, index, tokens, logprobs, tool, usage=self.usage))
            for channel, text, tool in parts[1:]:
                pieces.append(Piece(text, channel, index, tool=tool))
        if reason := raw.get("finish_reason"):
            pieces.append(self._finish(index, choice, reason, count))
        return pieces

    def _count(self, choice: _Choice, told: int | None, guess: int) -> int:
        """Tokens since the last piece. A told count is the sum of all until now."""
        if told is not None:
            self._counted = True
            new = max(0, told - choice.tokens)
        else:
            new = 0 if self._counted else guess
        choice.tokens += new
        self._tokens += new
        return new

    def _finish(self, index: int, choice: _Choice, reason: str, count: int | None) -> Piece:
        if reason == "error":
            raise EngineError("the endpoint ended the answer with an error, and does not say which")
        choice.finish = choice.reason(reason)
        tokens = self._count(choice, count, 0)
        return Piece(choice=index, tokens=tokens, finish=choice.finish, usage=self.usage)


def _progress(progress: Mapping[str, Any], choice: int) -> Piece:
    return Piece(
        choice=choice,
        prompt_done=progress.get("processed", 0),
        prompt_total=progress.get("total", 0),
    )


def _texts(said: Mapping[str, Any]) -> list[_Part]:
    """The stretches of text in a delta, a message, or a choice of a completion."""
    parts = []
    for name in ("reasoning_content", "reasoning", "thinking"):  # some send it under two names
        if isinstance(text := said.get(name), str) and text:
            parts.append(_Part(Channel.REASONING, text))
            break
    content = said.get("content") or said.get("text") or said.get("refusal")
    if isinstance(content, str):
        parts.append(_Part(Channel.ANSWER, content))
    elif content:
        parts += _listed(content, Channel.ANSWER)
    return parts


def _listed(content: Iterable[Mapping[str, Any]], channel: Channel) -> Iterator[_Part]:
    """Content as a list of parts: Mistral's reasoning models send their thinking so."""
    for part in content:
        if text := part.get("text"):
            yield _Part(channel, text)
        yield from _listed(part.get("thinking") or (), Channel.REASONING)


def _logprobs(raw: Mapping[str, Any], top: int | None) -> tuple[TokenLogprob, ...]:
    if (entries := raw.get("content")) is not None:
        return tuple(_logprob(entry, top) for entry in entries)
    return _legacy_logprobs(raw, top)


def _logprob(entry: Mapping[str, Any], top: int | None) -> TokenLogprob:
    told = entry.get("bytes")
    token, logprob = entry.get("token") or "", entry.get("logprob")
    return TokenLogprob(
        token,
        _NO_LOGPROB if logprob is None else logprob,
        token.encode() if told is None else bytes(told),
        tuple(_logprob(other, None) for other in (entry.get("top_logprobs") or ())[:top]),
    )


def _legacy_logprobs(raw: Mapping[str, Any], top: int | None) -> tuple[TokenLogprob, ...]:
    """Those of old completions: parallel lists, and the alternatives as objects."""
    tokens = raw.get("tokens") or ()
    values = raw.get("token_logprobs") or ()
    others = raw.get("top_logprobs") or [{}] * len(tokens)
    return tuple(
        _logprob({"token": token, "logprob": value, "top_logprobs": _pairs(near)}, top)
        for token, value, near in zip(tokens, values, others, strict=False)
    )


def _pairs(near: Mapping[str, float] | None) -> list[dict[str, Any]]:
    return [{"token": token, "logprob": value} for token, value in (near or {}).items()]
