"""What a page shows of an answer, as values that Gradio's chat takes. It knows no model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any

Yielded = str | list[dict[str, Any]]
"""What `gr.ChatInterface` takes: a text, or messages where there is more to show than a text."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What there is to see. seconds: how long it thought, once it has. error: and what to do."""

    status: str = ""
    notice: str = ""
    reasoning: str = ""
    seconds: float | None = None
    text: str = ""
    error: tuple[str, str] | None = None
    ended: bool = False

    @property
    def yielded(self) -> Yielded:
        messages = list(self._messages())
        if self.ended and not messages:
            return ""
        if len(messages) == 1 and self.text and _untouched(self.text):
            return self.text
        return messages

    def _messages(self) -> Iterator[dict[str, Any]]:
        if self.notice:
            yield _aside(self.notice)
        if self.status:
            yield _aside(self.status)
        if self.reasoning:
            done = {} if self.seconds is None else {"status": "done", "duration": self.seconds}
            yield _aside("Reasoning", self.reasoning, **done)
        if self.text:
            yield {"role": "assistant", "content": [_part(self.text)]}
        if self.error:
            what, hint = self.error
            yield _aside(f"⚠ {what}", hint)


def _aside(title: str, text: str = "", **marks: Any) -> dict[str, Any]:
    """A message that Gradio folds under its title, and that the model is not shown again."""
    return {"role": "assistant", "content": [_part(text)], "metadata": {"title": title, **marks}}


def _part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _untouched(text: str) -> bool:
    """Whether Gradio leaves it alone: it cleans a bare text of tabs and indents as a docstring."""
    return cleandoc(text) == text.rstrip("\n")
