"""Messages for templates that are particular about roles. Pure; it knows no template.

Some refuse a system message, some want the user and the assistant to take turns. What a template
refuses is an error that names the message, or is put right where the user asked for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from bourn.chat.turn import SYSTEM, Messages
from bourn.errors import TemplateError
from bourn.types import ImagePart, Message, TextPart

_BETWEEN = "\n\n"

Remedy = Literal["keep", "refuse", "mend"]
"""keep: the template takes it. refuse: it does not, which is an error. mend: put it right."""


def suited(messages: Sequence[Message], *, system: Remedy, repeats: Remedy) -> Messages:
    """The messages as a template takes them.

    system: system messages; mended, each is put before the user's message that follows it.
    repeats: a second message of the same role, or an assistant who begins; mended, neighbours of
        the same role become one message.

    Raises:
        TemplateError: names the message, counted from 1.
    """
    if system == "mend":
        messages = fold_system(messages)
    elif system == "refuse":
        _refuse_system(messages)
    if repeats == "mend":
        messages = join_repeats(messages)
    if repeats != "keep":
        _refuse_repeats(messages)
    return tuple(messages)


def fold_system(messages: Iterable[Message]) -> Messages:
    """Each system message, put before the text of the user's message that follows it."""
    folded: list[Message] = []
    held: list[Message] = []
    for message in messages:
        if message.role in SYSTEM:
            held.append(replace(message, role="user", name=None))
        elif message.role == "user":
            folded.append(replace(_joined(*held, message), name=message.name))
            held.clear()
        else:
            folded += _alone(held)
            folded.append(message)
    return (*folded, *_alone(held))


def _alone(held: list[Message]) -> Messages:
    """What waited for the user's next message, as a message of the user's own."""
    alone = (_joined(*held),) if held else ()
    held.clear()
    return alone


def join_repeats(messages: Iterable[Message]) -> Messages:
    """Neighbours of the same role as one message; results of tools stay apart."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].role == message.role != "tool":
            joined[-1] = _joined(joined[-1], message)
        else:
            joined.append(message)
    return tuple(joined)


def _joined(*messages: Message) -> Message:
    first, *others = messages
    for other in others:
        first = replace(
            first,
            content=_contents(first, other),
            name=first.name if first.name == other.name else None,
            reasoning=_BETWEEN.join(filter(None, (first.reasoning, other.reasoning))),
            tool_calls=first.tool_calls + other.tool_calls,
        )
    return first


def _contents(first: Message, second: Message) -> str | tuple[TextPart | ImagePart, ...]:
    if isinstance(first.content, str) and isinstance(second.content, str):
        return _BETWEEN.join(filter(None, (first.content, second.content)))
    before, after = _parts(first), _parts(second)
    between = (TextPart(_BETWEEN),) if before and after else ()
    return (*before, *between, *after)


def _parts(message: Message) -> tuple[TextPart | ImagePart, ...]:
    if isinstance(message.content, str):
        return (TextPart(message.content),) if message.content else ()
    return message.content


def _refuse_system(messages: Iterable[Message]) -> None:
    for number, message in enumerate(messages, 1):
        if message.role in SYSTEM:
            raise TemplateError(
                f"message {number} is a system message, which this model's template refuses",
                hint="leave it out, or ask for it to be folded into the question after it",
            )


def _refuse_repeats(messages: Iterable[Message]) -> None:
    speaking = [(n, each.role) for n, each in enumerate(messages, 1) if each.role not in SYSTEM]
    if speaking and speaking[0][1] == "assistant":
        raise TemplateError(
            f"message {speaking[0][0]} is the assistant's, and this model's template wants the "
            "user to begin",
            hint="put a message of the user before it",
        )
    for (_, before), (number, role) in pairwise(speaking):
        if before == role != "tool":
            raise TemplateError(
                f"message {number} is the second of role `{role}` in a row, and this model's "
                "template wants the roles to alternate",
                hint="join the two, or ask for that",
            )
