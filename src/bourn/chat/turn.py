"""One turn of a conversation: what was asked, and what came of it. A value that knows no chat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from unicodedata import east_asian_width

from bourn.errors import InvalidRequest
from bourn.types import FinishReason, Message, Metrics, TextPart

Messages = tuple[Message, ...]

SYSTEM = ("system", "developer")
"""The roles of a system message: the second is what newer APIs call it."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A question, and perhaps its answer.

    messages: at least one. The question first, the answer last; between them what tools were called
        and what they gave.
    finish_reason: why the answer ended, `cancelled` where somebody stopped it; None where nobody
        knows, or it broke off. seed, model: what it was made with, where known.
    """

    messages: Messages
    finish_reason: FinishReason | None = None
    seed: int | None = None
    model: str | None = None
    metrics: Metrics | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        if not self.messages:
            raise InvalidRequest("a turn has no message", hint="leave the turn out")

    @property
    def question(self) -> Message | None:
        """What the user said; None where the model spoke first."""
        return next((each for each in self.messages if each.role == "user"), None)

    @property
    def answer(self) -> Message | None:
        """The answer so far, which may be a call of tools; None while there is none."""
        last = self.messages[-1]
        return last if last.role == "assistant" else None

    @property
    def stopped(self) -> bool:
        """Whether somebody stopped the answer before its end."""
        return self.finish_reason is FinishReason.CANCELLED

    @property
    def broken_off(self) -> bool:
        """Whether the answer ended before the model had said all."""
        return self.finish_reason in (FinishReason.CANCELLED, FinishReason.LENGTH, None)

    def unanswered(self) -> Turn:
        """Only what was asked.

        Raises:
            InvalidRequest: nothing was.
        """
        if self.question is None:
            raise InvalidRequest("nothing was asked in this turn", hint="choose another one")
        return Turn(self.messages[: self.messages.index(self.question) + 1])

    def reworded(self, text: str) -> Turn:
        """Only what was asked, in other words; images stay. Raises as `unanswered` does."""
        *before, question = self.unanswered().messages
        return Turn((*before, with_text(question, text)))

    def and_then(self, message: Message, marks: Turn | None = None) -> Turn:
        """One message more; `marks` gives all but the messages."""
        return replace(marks or self, messages=(*self.messages, message))

    def lengthened(self, more: Message, marks: Turn, *, exactly: bool) -> Turn:
        """With more of the answer; `exactly`: without a space where two words would meet."""
        *before, answer = self.messages
        seam = "" if exactly else _seam(answer.text, more.text)
        longer = replace(
            answer,
            content=answer.text + seam + more.text,
            reasoning=answer.reasoning + more.reasoning,
            tool_calls=answer.tool_calls + more.tool_calls,
        )
        return replace(marks, messages=(*before, longer))


def with_text(message: Message, text: str) -> Message:
    """The message with another text, and the same images."""
    if isinstance(message.content, str):
        return replace(message, content=text)
    return replace(message, content=(TextPart(text), *message.images))


def _seam(before: str, after: str) -> str:
    """A space, where a model that was asked to go on began with a new word."""
    if not before or not after or before[-1].isspace() or not after[0].isalnum():
        return ""
    return "" if _unspaced(after[0]) else " "


def _unspaced(letter: str) -> bool:
    """Whether its script has no spaces between words: East Asia's, and Thai to Burmese."""
    return east_asian_width(letter) in "WF" or "\u0e00" <= letter < "\u10a0"


def parted(messages: Sequence[Message]) -> tuple[str | None, tuple[Turn, ...]]:
    """The system message's text, and the turns.

    System messages at the beginning become one. A turn begins where the user speaks; a later system
    message belongs to what follows it.

    Raises:
        InvalidRequest: a system message holds an image.
    """
    head = list(takewhile(lambda each: each.role in SYSTEM, messages))
    if any(each.images for each in head):
        raise InvalidRequest("the system message holds an image", hint="move it to a question")
    system = "\n\n".join(each.text for each in head) if head else None
    return system, tuple(map(Turn, _groups(messages[len(head) :])))


def _groups(messages: Iterable[Message]) -> list[Messages]:
    groups: list[list[Message]] = []
    for message in messages:
        begins = message.role in (*SYSTEM, "user")
        if not groups or (begins and groups[-1][-1].role not in SYSTEM):
            groups.append([])
        groups[-1].append(message)
    return [tuple(group) for group in groups]
