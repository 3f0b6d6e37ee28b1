"""A chat template at work, in transformers' sandbox: messages in, one text out.

It knows what templates expect and how they refuse; what is asked of them it does not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateSyntaxError, meta, nodes
from jinja2.exceptions import TemplateError as Refusal
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bourn.errors import TemplateError
from bourn.types import Message, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Told = dict[str, Any]
"""A message as templates take it, with its content as a text."""

_OURS = frozenset({"messages", "tools", "add_generation_prompt", "continue_final_message"})
_GIVEN = frozenset({"raise_exception", "strftime_now"})
"""Functions that transformers gives every template."""

_DEVELOPER = re.compile("""['"]developer['"]""")

_PROBE = "What says the fox?"


class ChatTemplate:
    """One template of a tokenizer, or for it. `text`: Jinja."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, text: str) -> None:
        self.text = text
        self._tokenizer = tokenizer

    @cached_property
    def takes_tools(self) -> bool:
        return "tools" in self._read

    @cached_property
    def variables(self) -> frozenset[str]:
        """What a user can set in it; nothing where it is no Jinja."""
        read = self._read - _OURS - _GIVEN
        return frozenset(name for name in read if not name.endswith("_token"))

    def render(self, messages: Sequence[Told], **options: Any) -> str:
        """The text that it makes.

        Raises:
            TemplateError: it refuses them, in its own words, or fails.
        """
        suited = [self._suited(message) for message in messages]
        return self._render(suited, options)

    def takes(self, messages: Sequence[Told], **options: Any) -> bool:
        try:
            self.render(messages, **options)
        except TemplateError:
            return False
        return True

    @cached_property
    def _read(self) -> frozenset[str]:
        jinja = ImmutableSandboxedEnvironment(extensions=[loopcontrols, _Generation])
        try:
            return frozenset(meta.find_undeclared_variables(jinja.parse(self.text)))
        except TemplateSyntaxError:
            return frozenset()

    @cached_property
    def _parted(self) -> bool:
        """Whether it shows a text only as the one part of a list, as some made for images do."""
        return not self._shows(_PROBE) and self._shows(_parts(_PROBE))

    def _shows(self, content: str | list[Told]) -> bool:
        try:
            return _PROBE in self._render([{"role": "user", "content": content}], {})
        except TemplateError:
            return False

    def _suited(self, message: Told) -> Told:
        if message["role"] == "developer" and not _DEVELOPER.search(self.text):
            message = {**message, "role": "system"}  # OpenAI's newer name for it
        return {**message, "content": _parts(message["content"])} if self._parted else message

    def _render(self, messages: list[Told], options: Mapping[str, Any]) -> str:
        try:
            text = self._tokenizer.apply_chat_template(
                messages, chat_template=self.text, tokenize=False, **options
            )
        except Refusal as refusal:
            own = type(refusal) is Refusal
            said = str(refusal) if own else f"{type(refusal).__name__}: {refusal}"
            raise _error(f"the chat template refuses these messages: {said}") from None
        except Exception as fault:  # noqa: BLE001  # a template is a program: it can fail in any way
            said = f"{type(fault).__name__}: {fault}"
            raise _error(f"the chat template fails on these messages: {said}") from None
        return str(text)


def templates_of(
    tokenizer: PreTrainedTokenizerBase, template: str | None
) -> dict[str, ChatTemplate]:
    """The chat templates to use, by name; `default` is the one for all. template: instead of own.

    A tokenizer's own may be one, several by name, or none.
    """
    found = template if template is not None else tokenizer.chat_template
    named = {"default": found} if isinstance(found, str) else dict(found or {})
    return {name: ChatTemplate(tokenizer, text) for name, text in named.items()}


def told(message: Message, *, parsed: bool = True) -> Told:
    """A message as OpenAI writes it. parsed: arguments of calls as objects, where they are JSON."""
    written: Told = {"role": message.role, "content": message.text}
    if message.name is not None:
        written["name"] = message.name
    if message.reasoning:
        written["reasoning_content"] = message.reasoning
    if message.tool_calls:
        written["tool_calls"] = [_call(call, parsed=parsed) for call in message.tool_calls]
    if message.tool_call_id is not None:
        written["tool_call_id"] = message.tool_call_id
    return written


def _call(call: ToolCall, *, parsed: bool) -> Told:
    arguments = _json(call.arguments) if parsed else call.arguments
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _json(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text  # as the model wrote it, broken


def _parts(text: str) -> list[Told]:
    return [{"type": "text", "text": text}]


def _error(message: str) -> TemplateError:
    return TemplateError(message, hint="change them, or name another one with --chat-template")


class _Generation(Extension):
    """`{% generation %}` marks what a model is trained on, and writes nothing."""

    tags = {"generation"}  # noqa: RUF012  # as jinja wants it

    def parse(self, parser: Any) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))
