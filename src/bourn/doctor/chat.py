"""A chat template, looked at by what it writes: for folders and for GGUF files alike.

It renders small conversations and compares the texts; it counts no tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol

from bourn.catalog import templates
from bourn.doctor.finding import NEEDS_EXTRA, CannotTell, Checks, Finding, broken, note, ok, warning
from bourn.errors import TemplateError

if TYPE_CHECKING:
    from bourn.engines.hf.prompting.rendering import ChatTemplate as Template

Said = tuple[str, str]
"""A message: its role and its text."""

_SYSTEM = ("system", "Be brief, says the owl.")
_QUESTION = ("user", "What says the fox?")
_ANSWER = ("assistant", "Nothing, says the fox.")
_AGAIN = ("user", "And the hen?")


class Renders(Protocol):
    """What turns messages into text: a tokenizer of transformers, or `jinja.Sandbox`."""

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...


@dataclass(frozen=True)
class Chat:
    """A model's chat template, and what is needed to judge it.

    text: Jinja; None where the model has none. renders: gives what renders it.
    called: the model's name and its architecture. vocabulary: its tokens' texts.
    """

    text: str | None
    renders: Callable[[], Renders]
    called: tuple[str, str] = ("", "")
    vocabulary: Collection[str] = frozenset()

    def write(self, *messages: Said, prompt: bool = False) -> str:
        """What it makes of messages.

        Raises:
            TemplateError: it refuses them, or fails.
            CannotTell: there is none, or nothing here to render it with.
        """
        told = [{"role": role, "content": text} for role, text in messages]
        return self._template.render(told, add_generation_prompt=prompt)

    @cached_property
    def _template(self) -> Template:
        if self.text is None:
            raise CannotTell("there is no chat template")
        try:
            from bourn.engines.hf.prompting.rendering import ChatTemplate
        except ImportError:
            raise CannotTell(NEEDS_EXTRA) from None
        return ChatTemplate(self.renders(), self.text)

    @cached_property
    def after_answer(self) -> str:
        """What it writes after an answer, when nothing follows.

        Raises:
            TemplateError, CannotTell: as `write`; or the answer is not in what it writes.
        """
        whole = self.write(_QUESTION, _ANSWER)
        _, found, tail = whole.rpartition(_ANSWER[1])
        if not found:
            raise CannotTell("the chat template leaves the answer out")
        return tail

    @cached_property
    def before_question(self) -> str:
        """What it writes between an answer and the next question; nothing where it refuses one.

        Raises:
            CannotTell: there is none, or nothing here to render it with.
        """
        try:
            whole = self.write(_QUESTION, _ANSWER, _AGAIN)
        except TemplateError:
            return ""
        return whole.rpartition(_ANSWER[1])[2].partition(_AGAIN[1])[0]

    @cached_property
    def before_answer(self) -> str:
        """What it writes between a question and its answer. Raises as `after_answer`."""
        asked = self.write(_QUESTION)
        whole = self.write(_QUESTION, _ANSWER)
        if not whole.startswith(asked) or _ANSWER[1] not in whole:
            whole = whole[whole.find(_QUESTION[1]) + len(_QUESTION[1]) :]
            return whole.partition(_ANSWER[1])[0]
        return whole[len(asked) :].partition(_ANSWER[1])[0]

    @cached_property
    def prompt(self) -> str:
        """What it writes more when it is asked for a generation prompt. Raises as `write`."""
        without, begun = self.write(_QUESTION), self.write(_QUESTION, prompt=True)
        pairs = zip(without, begun, strict=False)
        return begun[sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) :]

    @cached_property
    def marks(self) -> frozenset[str]:
        """Texts that it writes and that look like marks: no answer should hold them."""
        return frozenset(_MARK.findall(self.text or ""))

    @property
    def proposal(self) -> str | None:
        """A template of ours by name, for a model that has none or a broken one."""
        return proposal(self.called, self.vocabulary)


# -- proposing one ---------------------------------------------------------------------------------

_MARK = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]|\[\|\w+\|\]")


def proposal(called: tuple[str, str], vocabulary: Collection[str]) -> str | None:
    """A template of ours whose marks are in the vocabulary; by name first, then by marks alone.

    `[INST]` is a token to some and plain text to others, so that a name is believed without it.
    """
    named = templates.proposal(*called)
    if named is not None:
        needed = [mark for mark in marks_of(named) if mark.startswith("<")]
        if not vocabulary or all(mark in vocabulary for mark in needed):
            return named
    fits = [
        (len(marks), name)
        for name in templates.NAMES
        if (marks := marks_of(name)) and all(mark in vocabulary for mark in marks)
    ]
    return max(fits, key=lambda fit: fit[0])[1] if fits else None


def marks_of(name: str) -> frozenset[str]:
    """The control marks that a template of ours writes around a question and an answer."""
    turns = templates.FAMILIES[name]
    around = (*turns.user, *turns.assistant, turns.reply)
    return frozenset(mark for text in around for mark in _MARK.findall(text))


# -- checks ----------------------------------------------------------------------------------------


def chat_template(chat: Chat) -> Finding:
    if chat.text is None:
        return _without(chat)
    try:
        said = chat.write(_QUESTION, prompt=True)
    except TemplateError as refusal:
        return broken(
            f"asked one plain question: {refusal}",
            "no chat is possible",
            _other(chat),
        )
    if _QUESTION[1] not in said:
        return broken(
            "the template leaves the question out", "the model never sees it", _other(chat)
        )
    return ok(f"it has one, of {len(chat.text):,} characters")


def _without(chat: Chat) -> Finding:
    return warning(
        "there is no chat template",
        "it cannot chat, only go on with a text (--raw); a base model is made so",
        f"if it is made for chat: {_other(chat)}",
    )


def _other(chat: Chat) -> str:
    if chat.proposal is None:
        return "name one with --chat-template; its page on the hub says which"
    marks = sorted(marks_of(chat.proposal) & set(chat.vocabulary), key=len)
    known = f", since {marks[-1]} is a token of it" if marks else ""
    return f"try --chat-template {chat.proposal}{known}"


def generation_prompt(chat: Chat) -> Finding:
    """Told by how an answer begins in a finished conversation: that must be written before it."""
    wanted = chat.before_answer
    mark, written = wanted.strip(), chat.prompt.strip()
    if not mark:
        return ok("none is needed: an answer begins where a question has ended")
    if written.startswith(mark) or (written and mark.startswith(written)):
        return ok(f"it is {_shown(chat.prompt)}")
    if written:
        return note(
            f"it is {_shown(chat.prompt)}, where an answer begins with {_shown(wanted)}",
            "the model is asked in another way than it was answered in training",
        )
    lacking = "{% if add_generation_prompt %}{{ " + _shown(wanted) + " }}{% endif %}"
    return broken(
        f"an answer begins with {_shown(wanted)}, which the template does not write when asked to",
        "the model is not told that it is its turn: it goes on as the user, or writes such marks",
        f"end the template in {lacking}" + (f", or {_other(chat)}" if chat.proposal else ""),
    )


def system_message(chat: Chat) -> Finding:
    chat.write(_QUESTION)  # a template that fails at all is another check's matter
    try:
        said = chat.write(_SYSTEM, _QUESTION)
    except TemplateError as refusal:
        return note(
            f"with one, {refusal}",
            "a request with a system message fails",
            "leave it out, or `bourn chat --fold-system` puts it into the first question",
        )
    if _SYSTEM[1] not in said:
        return warning(
            "the template leaves it out without a word",
            "the model never sees what it was told to be",
            "put such instructions into the first question (`bourn chat --fold-system`)",
        )
    return ok("it is passed on")


def role_order(chat: Chat) -> Finding:
    chat.write(_QUESTION)
    orders = {
        "two questions in a row": (_QUESTION, _AGAIN),
        "an assistant who begins": (_ANSWER, _QUESTION),
        "a system message further down": (_QUESTION, _ANSWER, _SYSTEM, _AGAIN),
    }
    refused = [what for what, messages in orders.items() if not _takes(chat, *messages)]
    if not _takes(chat, _QUESTION, _ANSWER, _AGAIN):
        return broken(
            "the template refuses a second turn", "no conversation is possible", _other(chat)
        )
    if refused:
        return note(
            f"the template refuses {', '.join(refused)}",
            "such requests fail",
            "let user and assistant take turns, the user first",
        )
    return ok("any order is taken")


def _takes(chat: Chat, *messages: Said) -> bool:
    try:
        chat.write(*messages)
    except TemplateError:
        return False
    return True


def _shown(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


CHECKS: Checks[Chat] = {
    "chat template": chat_template,
    "generation prompt": generation_prompt,
    "system message": system_message,
    "role order": role_order,
}
