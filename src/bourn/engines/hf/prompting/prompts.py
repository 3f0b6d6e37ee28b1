"""From a request to the prompt that the model reads: its chat template, and its tokenizer.

One beginning-of-text token, always: the one that the template writes, else the one that the
tokenizer begins each text with. (transformers leaves it out where the template does; but models
are trained with it, and llama.cpp puts it there too.)

What a template cannot do is refused here, by name. It knows nothing of models and of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from bourn.catalog.templates import NAMES
from bourn.engines.hf.prompting.rendering import ChatTemplate, Told, templates_of, told
from bourn.engines.hf.prompting.vocabulary import Vocabulary
from bourn.errors import InvalidRequest, TemplateError, UnsupportedField
from bourn.text.calls import notation_of
from bourn.text.channels import Channels, family_of, opened_by
from bourn.text.span import Span
from bourn.types import Channel, Message, Request

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_ENGINE = "transformers"


class Prompts:
    """Renders requests, and encodes them. Safe from many threads at once.

    template: Jinja text; None is the tokenizer's own, of which there may be several by name: with
        tools `tool_use` is taken, else `default`.

    family: of the marks that the model writes (`text.families`), None where it writes none.
    calls: how it writes tool calls (`text.calls`), None where that is not known.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, vocabulary: Vocabulary, template: str | None
    ) -> None:
        self._vocabulary = vocabulary
        self._templates = templates_of(tokenizer, template)
        self._plain = self._templates.get("default")
        self._with_tools = self._templates.get("tool_use", self._plain)
        shown = [each.text for each in (self._plain, self._with_tools) if each is not None]
        self.family = family_of(shown[0]) if shown else None
        self.calls = notation_of(shown[-1]) if shown else None

    @property
    def takes_tools(self) -> bool:
        return self._with_tools is not None and self._with_tools.takes_tools

    @property
    def variables(self) -> frozenset[str]:
        """What `template_kwargs` can set."""
        return frozenset[str]().union(*(each.variables for each in self._templates.values()))

    @cached_property
    def prefills(self) -> bool:
        """Whether a message of the assistant's can be gone on with."""
        begun = [Message("user", "What says the fox?"), Message("assistant", "The fox says")]
        try:
            text = self._chosen(tools=False).render(
                list(map(told, begun)), continue_final_message=True
            )
        except TemplateError:
            return False
        return text.endswith(begun[-1].text)

    def text(self, request: Request) -> str:
        """A chat as its template writes it.

        Raises:
            TemplateError: there is no template, or it refuses the messages.
            UnsupportedField: images, tools that it does not show, a choice that is not free.
            InvalidRequest: a variable that it does not read.
        """
        tools = [] if request.tool_choice == "none" else list(map(dict, request.tools))
        template = self._chosen(tools=bool(tools))
        self._check(request)
        goes_on = _goes_on(request)
        if goes_on and not self.prefills:
            raise TemplateError(
                "this model's chat template cannot go on with a message of the assistant's",
                hint="end the messages with one of the user's",
            )
        how = "continue_final_message" if goes_on else "add_generation_prompt"
        options = {**request.template_kwargs, "tools": tools or None, how: True}
        return _written(template, request.messages, options)

    def ids(self, request: Request) -> list[int]:
        """The prompt, at least one id.

        Raises:
            InvalidRequest: an id that is no token, or a prompt of nothing; else as `text`.
        """
        if isinstance(request.prompt, tuple):
            ids = self._known(request.prompt)
        elif request.prompt is not None:
            ids = self._vocabulary.encode_raw(request.prompt)
        else:
            ids = self.encode(self.text(request))
        if not ids:
            raise InvalidRequest(
                "the prompt is empty, and this model's tokenizer puts nothing before it",
                hint="give at least one token to go on from",
            )
        return ids

    def encode(self, text: str) -> list[int]:
        """The ids of a rendered chat."""
        vocabulary = self._vocabulary
        return (vocabulary.encode if self._begins else vocabulary.encode_raw)(text)

    def opened(self, text: str, request: Request | None = None) -> Channel:
        """The channel that a rendered prompt leaves open.

        request: the one that it was rendered for, whose last message may be gone on with.
        """
        if self.family is None:
            return Channel.ANSWER
        begun = request.messages[-1].text.strip() if request and _goes_on(request) else ""
        before, _, _ = text.rpartition(begun) if begun in text and begun else (text, "", "")
        channels = Channels(self.family, opened=opened_by(before, self.family))
        said = Span(Channel.ANSWER, text[len(before) :] + ".")  # what would come next
        return [*channels.feed(said), *channels.flush()][-1].channel

    @cached_property
    def _begins(self) -> bool:
        """Whether the template writes what the tokenizer begins each text with.

        Told by a chat of our own, lest what people say decides it.
        """
        template, before = self._plain or self._with_tools, self._vocabulary.before
        if template is None or not before:
            return False
        try:
            ids = self._vocabulary.encode(template.render([told(Message("user", "Who?"))]))
        except TemplateError:
            return False
        return any(tuple(ids[at : at + len(before)]) == before for at in range(len(ids)))

    def _check(self, request: Request) -> None:
        if any(message.images for message in request.messages):
            raise UnsupportedField("images", _ENGINE, hint="this engine reads text only")
        if request.tool_choice not in (None, "auto", "none"):
            raise UnsupportedField(
                "tool_choice",
                _ENGINE,
                hint="a call cannot be forced here; `auto` and `none` can be honoured",
            )
        if request.tools and request.tool_choice != "none" and not self.takes_tools:
            raise UnsupportedField(
                "tools", _ENGINE, hint="this model's chat template does not show them to the model"
            )
        for name in sorted(request.template_kwargs.keys() - self.variables):
            raise InvalidRequest(
                f"the chat template reads no variable `{name}`",
                hint=f"it reads {', '.join(sorted(self.variables)) or 'none'}",
            )

    def _chosen(self, *, tools: bool) -> ChatTemplate:
        template = self._with_tools if tools else self._plain
        if template is not None:
            return template
        if self._templates:
            raise TemplateError(
                f"none of this model's chat templates is the default: {', '.join(self._templates)}",
                hint="give the text of one of them with --chat-template (chat_template=)",
            )
        raise TemplateError(
            "this model carries no chat template, so it cannot chat",
            hint="use --raw (raw=True), or name a template with --chat-template (chat_template=): "
            + ", ".join(NAMES),
        )

    def _known(self, prompt: Sequence[int]) -> list[int]:
        size = self._vocabulary.size
        for token in prompt:
            if not 0 <= token < size:
                raise InvalidRequest(
                    f"the prompt has token {token}",
                    hint=f"this model's tokens are 0 to {size - 1}",
                )
        return list(prompt)


def _goes_on(request: Request) -> bool:
    """Whether the messages end in an answer that is not finished."""
    last = request.messages[-1:]
    return bool(last) and last[0].role == "assistant" and not last[0].tool_calls


def _written(template: ChatTemplate, messages: Sequence[Message], options: Told) -> str:
    """Arguments of calls are given as objects, as most templates want them, else as text."""
    try:
        return template.render(list(map(told, messages)), **options)
    except TemplateError as refusal:
        unparsed = [told(message, parsed=False) for message in messages]
        called = any(message.tool_calls for message in messages)
        if called and template.takes(unparsed, **options):
            return template.render(unparsed, **options)
        refusal.hint = _advice(template, messages, options) or refusal.hint
        raise


def _advice(template: ChatTemplate, messages: Sequence[Message], options: Told) -> str:
    """What would help, found by trying."""
    others = [message for message in messages if message.role not in ("system", "developer")]
    if 0 < len(others) < len(messages) and template.takes(list(map(told, others)), **options):
        return (
            "this template takes no system message there: fold it into the first question "
            "(--fold-system)"
        )
    roles = [message.role for message in others]
    if roles[:1] != ["user"] or any(a == b for a, b in pairwise(roles)):
        return "let user and assistant take turns, the user first"
    return ""
