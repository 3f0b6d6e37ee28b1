"""A conversation as the page shows it: each turn as messages of a Gradio chat box.

Values only, no Gradio: a message is a dict of the form that `gr.Chatbot` takes. Texts are given as
parts, since a bare string would lose the blanks at its beginning. What bourn itself says (numbers,
marks, errors) is a part of its own, with the button that copies the model's words: beside such a
part Gradio has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from bourn.chat import Turn
from bourn.types import Message
from bourn.web.blocks import parts
from bourn.web.formulas import formulas
from bourn.web.verbatim import verbatim
from bourn.web.words import meter

Shown = dict[str, Any]
"""A message of the chat box."""


def past(turns: Sequence[Turn]) -> list[Shown]:
    """All turns but the last one, which is shown apart, so that only that is drawn as it grows."""
    return [message for turn in turns[:-1] for message in shown(turn)]


def now(turns: Sequence[Turn], *, live: bool = False) -> list[Shown]:
    """The last turn; `live`: its answer is being made."""
    return shown(turns[-1], live=live) if turns else []


def shown(turn: Turn, *, live: bool = False) -> list[Shown]:
    """The messages of a turn, and under the last one how it went."""
    messages = [part for message in turn.messages for part in _message(message, live=live)]
    told = [] if live else _told(turn)
    if told and messages[-1]["role"] == "assistant" and "metadata" not in messages[-1]:
        messages[-1]["content"] += told
    elif told:
        messages.append(_said("assistant", told))
    return messages


def question_at(turns: Sequence[Turn], index: int) -> int | None:
    """Of which turn the message at `index` is the question, in what `past` shows of them."""
    seen = 0
    for number, turn in enumerate(turns):
        messages = shown(turn)
        if index < seen + len(messages):
            return number if messages[index - seen]["role"] == "user" else None
        seen += len(messages)
    return None


def _message(message: Message, *, live: bool) -> list[Shown]:
    if message.role == "user":
        return [_said("user", [_text(verbatim(message.text))])]  # in one part, as it is edited
    messages = []
    if message.reasoning:
        thinks = live and not message.text
        metadata = {"title": "Thinking", "status": "pending" if thinks else "done"}
        thoughts = _said("assistant", _texts(formulas(message.reasoning)))
        messages.append(thoughts | {"metadata": metadata})
    calls = [_text(_code(f"{call.name}({call.arguments})")) for call in message.tool_calls]
    content = [*_texts(formulas(message.text)), *calls]
    return [*messages, _said("assistant", content)] if content else messages


def _told(turn: Turn) -> list[Shown]:
    """How the answer of a turn went: its numbers, why it ended early, what went wrong."""
    told = []
    if turn.error:
        told.append(html(f'<p class="wrong" role="alert">{escape(turn.error)}</p>'))
    facts = escape(" · ".join(meter(turn.metrics, turn)))
    copied = _copy(turn.answer.text) if turn.answer is not None and turn.answer.text else ""
    if facts or copied:
        told.append(html(f'<p class="meter">{facts} {copied}</p>'))
    return told


def _copy(text: str) -> str:
    return f'<button type="button" class="copy" data-copy="{escape(text)}">Copy</button>'


def _said(role: str, content: Iterable[Shown]) -> Shown:
    return {"role": role, "content": list(content)}


def _texts(text: str) -> list[Shown]:
    """In parts, of which a browser draws anew only those that have changed."""
    return [_text(part) for part in parts(text) if part]


def _text(text: str) -> Shown:
    return {"type": "text", "text": sound(text)}


def sound(text: str) -> str:
    """Without halves of characters, as some engines send them: no browser can be sent any."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _code(text: str) -> str:
    return f"```\n{text}\n```"


def html(value: str) -> Shown:
    """A part of bourn's own; nothing of a model's may be in it unescaped."""
    empty: dict[str, Any] = {}
    part = {"component": "html", "value": sound(value), "constructor_args": empty, "props": empty}
    return {"type": "component", **part}
