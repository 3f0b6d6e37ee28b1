"""From what a caller writes to a `Request`: the options of `stream`, and the user's defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypedDict

from bourn.errors import InvalidRequest
from bourn.messages import messages_of
from bourn.settings import Settings
from bourn.types import DEFAULT_MAX_NEW_TOKENS, Message, Request, Sampling

Asked = str | Message | Mapping[str, Any] | Sequence[Message | Mapping[str, Any]]
"""A text, a message, or messages; dicts as in OpenAI's API."""


class Options(TypedDict, total=False):
    """Options of one answer. The fields of `Request` and of `Sampling`, and:

    system: a system message before the others; not where they begin with one.
    raw: the text is a prompt to go on with, as it is, without the chat template.
    stop: one text, or several.
    generation_config: of transformers; its fields go below the options said beside it.
    logits_processor, stopping_criteria: of transformers, called with this answer's ids and scores;
        for a model that runs in this process.
    """

    system: str | None
    raw: bool
    stop: str | Sequence[str]
    max_new_tokens: int | None
    min_new_tokens: int
    stop_token_ids: Sequence[int]
    logit_bias: Mapping[int, float]
    n: int
    logprobs: int | None
    ignore_eos: bool
    tools: Sequence[Mapping[str, Any]]
    tool_choice: str | Mapping[str, Any] | None
    response_format: Mapping[str, Any] | None
    template_kwargs: Mapping[str, Any]
    reuse_prompt: bool
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    seed: int | None
    generation_config: Any
    logits_processor: Sequence[Any]
    stopping_criteria: Sequence[Any]


_HOOKS = ("logits_processor", "stopping_criteria")
_SAMPLING = frozenset(field.name for field in fields(Sampling))


def request_for(asked: Asked, options: Options, settings: Settings, own: Any = None) -> Request:
    """The request that `asked` and `options` mean, above the user's own settings.

    own: the model's own generation configuration of transformers, where it has one.

    Raises:
        InvalidRequest: an unknown option, or one of a wrong kind or size.
    """
    given: dict[str, Any] = dict(options)
    _refuse_unknown(given)
    _unfold(given, own)
    stop = given.pop("stop", settings.stop)
    given["stop"] = (stop,) if isinstance(stop, str) else tuple(stop or ())
    given.setdefault("max_new_tokens", settings.max_new_tokens or DEFAULT_MAX_NEW_TOKENS)
    for name in ("tools", "stop_token_ids"):
        if name in given:
            given[name] = tuple(given[name])
    system = given.pop("system", settings.system)
    if given.pop("raw", False):
        given["prompt"] = _text(asked)
    else:
        given["messages"] = with_system(messages_of(asked), system)
    drawn = {name: given.pop(name) for name in _SAMPLING & given.keys()}
    return Request(sampling=Sampling(**drawn), **given)


def _unfold(given: dict[str, Any], own: Any) -> None:
    """What is transformers' own: its configuration's fields, and hooks for the engine."""
    config = given.pop("generation_config", None)
    if config is not None:
        from bourn.engines.hf.sampling.generation_config import options_of  # only where it is used

        said = options_of(config, own)
        processors = [*said.pop("logits_processor", ()), *given.pop("logits_processor", ())]
        given |= {**said, **given, "logits_processor": processors}
    hooks = {name: tuple(given.pop(name, None) or ()) for name in _HOOKS}
    given["engine_options"] = {name: each for name, each in hooks.items() if each}


def with_system(messages: tuple[Message, ...], system: str | None) -> tuple[Message, ...]:
    if not system or not messages or messages[0].role in ("system", "developer"):
        return messages
    return (Message("system", system), *messages)


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    for name in given.keys() - Options.__annotations__.keys():
        near = get_close_matches(name, Options.__annotations__, 1)
        hint = f"did you mean `{near[0]}`?" if near else "see bourn.asking.Options"
        raise InvalidRequest(f"there is no option `{name}`", hint=hint)


def _text(asked: Asked) -> str:
    if not isinstance(asked, str):
        raise InvalidRequest("a raw prompt is one text", hint="give a str, or leave `raw` out")
    return asked
