"""A conversation as text: JSON to load back, Markdown to read. It knows no file.

The `messages` of the JSON are those of OpenAI's API, so that other programs can take them; what
bourn knows beyond them is beside them, a mark for each turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeVar

from bourn.chat.turn import SYSTEM, Messages, Turn, parted
from bourn.errors import InvalidRequest
from bourn.types import FinishReason, Message, Metrics, Request, ToolCall
from bourn.values import codec
from bourn.wire.body import request_of
from bourn.wire.dialect import Dialect
from bourn.wire.openai import body_of

FORMAT = "bourn.chat"
VERSION = 1

_DIALECT = Dialect(FORMAT, fields=frozenset({"images"}), reasoning="reasoning_content")
_HINT = "give what `Chat.to_json` wrote, or a list of messages as in OpenAI's API"


_WORDS: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a whole number",
    bool: "true or false",
}

T = TypeVar("T")


class Saved(NamedTuple):
    """What is kept of a conversation."""

    system: str | None = None
    turns: tuple[Turn, ...] = ()
    max_turns: int | None = None
    keep_first: bool = False
    bridge: str | None = None


# -- written ---------------------------------------------------------------------------------------


def to_json(saved: Saved, indent: int | None = None) -> str:
    """As JSON; readable in any script, and escaped only where UTF-8 could not hold it."""
    head = [] if saved.system is None else [Message("system", saved.system)]
    messages = [*head, *(message for turn in saved.turns for message in turn.messages)]
    told = {
        "format": FORMAT,
        "version": VERSION,
        "messages": list(map(_written, messages)),
        "turns": list(map(_marks, saved.turns)),
        **_told(max_turns=saved.max_turns, keep_first=saved.keep_first or None),
        **_told(bridge=saved.bridge),
    }
    text = json.dumps(told, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, from a badly decoded input
        return json.dumps(told, indent=indent)
    return text


def _written(message: Message) -> Any:
    return body_of(Request(messages=(message,)), FORMAT, _DIALECT)["messages"][0]


def _marks(turn: Turn) -> dict[str, Any]:
    """`messages` says how many of them are this turn's."""
    marks = _told(finish_reason=turn.finish_reason, seed=turn.seed, model=turn.model)
    metrics = None if turn.metrics is None else codec(Metrics).write(turn.metrics)
    return {"messages": len(turn.messages), **marks, **_told(metrics=metrics, error=turn.error)}


def _told(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def to_markdown(system: str | None, turns: Iterable[Turn]) -> str:
    """Each message under a heading that says whose it is, and how it ended."""
    parts = [] if system is None else [_part("System", system)]
    for turn in turns:
        parts += [_part(_who(message, turn), _shown(message)) for message in turn.messages]
        if turn.answer is not None and turn.finish_reason in _ENDS:
            parts.append(f"*({_ENDS[turn.finish_reason]})*\n")
        if turn.error is not None:
            parts.append(f"*(broken off: {' '.join(turn.error.split())})*\n")
    return "\n".join(parts)


_ENDS: Mapping[FinishReason | None, str] = {
    FinishReason.CANCELLED: "stopped here",
    FinishReason.LENGTH: "cut here by the limit",
    FinishReason.CONTENT_FILTER: "cut here by a content filter",
}
_NAMES = {"user": "You", "assistant": "Assistant", "tool": "Tool"} | dict.fromkeys(SYSTEM, "System")


def _who(message: Message, turn: Turn) -> str:
    name = _NAMES.get(message.role, message.role)
    return f"{name} ({turn.model})" if message is turn.answer and turn.model else name


def _part(heading: str, text: str) -> str:
    return f"## {heading}\n\n{text}\n"


def _shown(message: Message) -> str:
    quoted = "\n".join(f"> {line}" for line in message.reasoning.splitlines())
    images = ["*(an image)*" for _ in message.images]
    return "\n\n".join(
        filter(None, (quoted, *images, message.text, *map(_call, message.tool_calls)))
    )


def _call(call: ToolCall) -> str:
    return f"    {call.name}({call.arguments})"


# -- read ------------------------------------------------------------------------------------------


def from_json(text: str | bytes) -> Saved:
    """What `to_json` wrote, or messages in OpenAI's format.

    Raises:
        InvalidRequest: it is something else; says where.
    """
    told = _parsed(text)
    if isinstance(told, list):
        return Saved(*parted(_messages(told)))
    told = _kind("all of it", told, dict)
    messages = _messages(_kind("`messages`", told.get("messages"), list))
    if told.get("format") != FORMAT:
        return Saved(*parted(messages))
    _check_version(told.get("version"))
    system, turns = _turns(messages, _kind("`turns`", told.get("turns"), list))
    return Saved(
        system,
        turns,
        max_turns=_maybe("`max_turns`", told.get("max_turns"), int),
        keep_first=_maybe("`keep_first`", told.get("keep_first"), bool) or False,
        bridge=_maybe("`bridge`", told.get("bridge"), str),
    )


def _parsed(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidRequest(f"this is no JSON: {where}: {error.msg}", hint=_HINT) from None
    except (ValueError, RecursionError) as error:  # not UTF-8, or nested beyond all sense
        raise InvalidRequest(f"this is no JSON: {error}", hint=_HINT) from None


def _check_version(version: object) -> None:
    if version != VERSION:
        raise InvalidRequest(
            f"this conversation has version {version!r:.20}, and this bourn reads {VERSION}",
            hint="upgrade bourn",
        )


def _messages(listed: Sequence[object]) -> Messages:
    return tuple(_message(number, value) for number, value in enumerate(listed, 1))


def _message(number: int, value: object) -> Message:
    try:
        (message,) = request_of({"messages": [_kind("it", value, dict)]}).messages
    except InvalidRequest as error:
        told = re.sub(r"messages\[0\](\.|: )", "", str(error))
        raise InvalidRequest(f"message {number} is wrong: {told}", hint=error.hint) from None
    return message


def _turns(messages: Messages, marks: Sequence[object]) -> tuple[str | None, tuple[Turn, ...]]:
    """The messages, cut into turns by their marks; what is before the first is the system's."""
    known = [_kind(f"turn {number}", mark, dict) for number, mark in enumerate(marks, 1)]
    counts = [_count(number, mark) for number, mark in enumerate(known, 1)]
    start = len(messages) - sum(counts)
    system, unmarked = parted(messages[: max(start, 0)])
    if start < 0 or unmarked:
        raise InvalidRequest(
            f"`turns` speak of {sum(counts)} messages, and there are {len(messages)}",
            hint="leave out `turns` and `format` to load the messages alone",
        )
    ends = pairwise(accumulate(counts, initial=start))
    cut = zip(ends, known, strict=True)
    turns = (
        _turn(number, messages[begin:end], mark)
        for number, ((begin, end), mark) in enumerate(cut, 1)
    )
    return system, tuple(turns)


def _count(number: int, mark: Mapping[str, Any]) -> int:
    count = _kind(f"`messages` of turn {number}", mark.get("messages"), int)
    if count < 1:
        raise InvalidRequest(f"`messages` of turn {number} is {count}", hint="give 1 or more")
    return count


def _turn(number: int, messages: Messages, mark: Mapping[str, Any]) -> Turn:
    reason = _maybe(f"`finish_reason` of turn {number}", mark.get("finish_reason"), str)
    if reason is not None and reason not in set(FinishReason):
        raise InvalidRequest(
            f"`finish_reason` of turn {number} is {reason!r:.60}",
            hint=f"give one of {', '.join(FinishReason)}",
        )
    return Turn(
        messages,
        None if reason is None else FinishReason(reason),
        seed=_maybe(f"`seed` of turn {number}", mark.get("seed"), int),
        model=_maybe(f"`model` of turn {number}", mark.get("model"), str),
        metrics=_metrics(number, mark.get("metrics")),
        error=_maybe(f"`error` of turn {number}", mark.get("error"), str),
    )


def _metrics(number: int, told: object) -> Metrics | None:
    """What is not known is passed over: a newer bourn may measure more."""
    said = _maybe(f"`metrics` of turn {number}", told, dict)
    if said is None:
        return None
    told_of = {field.name: said.get(field.name) for field in fields(Metrics)}
    known = {name: value for name, value in told_of.items() if value is not None}
    if not all(isinstance(value, int | float) for value in known.values()):
        raise InvalidRequest(
            f"`metrics` of turn {number} is {said!r:.60}", hint="give numbers, or leave it out"
        )
    read: Metrics = codec(Metrics).read(known)
    return read


def _kind(what: str, value: object, kind: type[T]) -> T:
    """The value, of that type and no other: a bool is no number here."""
    if type(value) is kind:
        return value
    shown = "missing" if value is None else f"{value!r:.60}"
    raise InvalidRequest(f"{what} is {shown}", hint=f"give {_WORDS[kind]}")


def _maybe(what: str, value: object, kind: type[T]) -> T | None:
    return None if value is None else _kind(what, value, kind)
