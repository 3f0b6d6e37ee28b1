"""A request on OpenAI's wire, in: the JSON body of a chat or a completion becomes ours.

What bourn cannot honour is refused by name, never dropped. It knows no server and no model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from bourn.errors import InvalidRequest, UnsupportedField
from bourn.messages import messages_of
from bourn.types import Message, Request, Sampling
from bourn.wire.fields import Fields, ill, whole_of

MOST_MESSAGES = 10_000
MOST_CHOICES = 128
LARGEST_LIMIT = 2**31 - 1
"""Tokens, to generate."""
MOST_BIASES = 1024
MOST_VARIABLES = 256
"""Of a chat template, for which a request may give values."""
MOST_STOPS = 64
LONGEST_STOP = 1000
"""Characters. What is looked for in every text is kept small, whoever asks."""

_LIMITS = ("max_completion_tokens", "max_tokens")
_WHOLE = {*_LIMITS, "min_tokens", "n", "seed", "top_k", "top_logprobs"}
_SAMPLING = {field.name for field in fields(Sampling)}
_REPEAT = "repeat_penalty"  # llama.cpp's name
_OPTIONS = {
    "messages",
    "prompt",
    "stop",
    "stop_token_ids",
    "logit_bias",
    "logprobs",
    "ignore_eos",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "chat_template_kwargs",
    "cache_prompt",
}
_NOT_FOR_THE_MODEL = {
    "model",
    "stream",
    "stream_options",
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "moderation",
}
"""Taken by the server itself, or only there to tell callers apart."""

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": (),
    "functions": ([],),
    "modalities": (["text"],),
    "prediction": (),
    "reasoning_effort": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "verbosity": (),
    "web_search_options": (),
}
"""Fields of OpenAI's that bourn cannot honour, with the values at which they ask for nothing."""

KNOWN = _OPTIONS | _WHOLE | _SAMPLING | {_REPEAT} | _NOT_FOR_THE_MODEL | NEUTRAL.keys()
"""All that a body may have."""


OURS = {
    "min_new_tokens": "min_tokens",
    "template_kwargs": "chat_template_kwargs",
}
"""Fields of a `Request` that have another name on this wire."""


def request_of(body: Mapping[str, Any]) -> Request:
    """The request that the body of a chat or a completion means. `null` is "not said".

    Without a token limit it is the rest of the window; `max_completion_tokens` goes before its old
    name. `top_k` may be -1 for off, as in vLLM; `cache_prompt` is llama.cpp's.

    Raises:
        InvalidRequest: a field is unknown, or of a wrong type or size; the message names it.
        UnsupportedField: a field of OpenAI's that bourn cannot honour.
    """
    told = Fields({name: value for name, value in body.items() if value is not None})
    _refuse_unknown(told)
    prompt = _prompt(told)
    limit = _limit(told)
    tools = tuple(map(_tool, told.listed("tools")))
    return Request(
        messages=_messages(told.listed("messages")),
        prompt=prompt,
        sampling=_sampling_of(told),
        max_new_tokens=limit,
        min_new_tokens=_least(told, limit),
        stop=_stop(told),
        stop_token_ids=_ids("stop_token_ids", told.listed("stop_token_ids")),
        logit_bias=_biases(told),
        n=_choices(told),
        logprobs=_logprobs(told, chat=prompt is None),
        ignore_eos=told.flag("ignore_eos"),
        tools=tools,
        tool_choice=_tool_choice(told, tools),
        parallel_tool_calls=told.flag("parallel_tool_calls", default=True),
        response_format=_response_format(told),
        template_kwargs=_entries(told, "chat_template_kwargs", MOST_VARIABLES),
        reuse_prompt=told.flag("cache_prompt", default=True),
    )


def wants_usage(body: Mapping[str, Any]) -> bool:
    """Whether a stream shall end with a chunk of usage."""
    options = Fields(Fields(body).object("stream_options") or {}, "stream_options.")
    options.refuse_unknown(("include_usage", "include_obfuscation"))
    if options.flag("include_obfuscation"):
        raise UnsupportedField("stream_options.include_obfuscation", "bourn")
    return options.flag("include_usage")


def _refuse_unknown(told: Fields) -> None:
    for name, value in told.fields.items():
        if name in NEUTRAL and not any(
            _same(value, asks_nothing) for asks_nothing in NEUTRAL[name]
        ):
            raise UnsupportedField(name, "bourn")
    told.refuse_unknown(KNOWN)


def _same(value: object, other: object) -> bool:
    """As JSON means it: true is no 1."""
    return value == other and isinstance(value, bool) is isinstance(other, bool)


def _sampling_of(told: Fields) -> Sampling:
    given: dict[str, Any] = {
        name: told.whole(name) if name in _WHOLE else told.number(name) for name in _SAMPLING
    }
    if given["top_k"] == -1:
        given["top_k"] = 0
    by_its_other_name = Sampling(repetition_penalty=told.number(_REPEAT))
    return Sampling(**given).over(by_its_other_name)


def _prompt(told: Fields) -> str | tuple[int, ...] | None:
    """A text or token ids; one of either may stand in a list."""
    prompt = told.fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if prompt is None or isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], str | list):
        raise ill("prompt", prompt, "one text, or one list of token ids; ask for each by itself")
    return _ids("prompt", prompt)


def _ids(name: str, listed: Sequence[Any]) -> tuple[int, ...]:
    ids = listed
    if set(map(type, listed)) - {int}:
        ids = [whole for token in listed if (whole := whole_of(token)) is not None]
    if len(ids) < len(listed) or (ids and not 0 <= min(ids) <= max(ids) < 2**31):
        raise ill(name, listed, "a list of token ids")
    return tuple(ids)


def _biases(told: Fields) -> Mapping[int, float]:
    """By token id, which JSON makes a text of."""
    biases = _entries(told, "logit_bias", MOST_BIASES)
    for token, bias in biases.items():
        fits = type(bias) in (int, float) and -100 <= bias <= 100
        if not fits or not re.fullmatch(r"[0-9]{1,9}", token):
            raise ill("logit_bias", biases, "token ids, and beside each a number from -100 to 100")
    return {int(token): bias for token, bias in biases.items()}


def _entries(told: Fields, name: str, most: int) -> Mapping[str, Any]:
    """An object whose names anybody may choose; what is done for each takes time."""
    entries = told.object(name) or {}
    if len(entries) > most:
        raise InvalidRequest(
            f"`{name}` has {len(entries)} entries", hint=f"give at most {most}", field=name
        )
    return entries


def _choices(told: Fields) -> int:
    n = told.whole("n")
    if n is not None and not 1 <= n <= MOST_CHOICES:
        raise ill("n", n, f"a number from 1 to {MOST_CHOICES}")
    return 1 if n is None else n


def _limit(told: Fields) -> int | None:
    """The newer name goes before the older."""
    limits = [told.whole(name) for name in _LIMITS]
    for name, limit in zip(_LIMITS, limits, strict=True):
        if limit is not None and not 1 <= limit <= LARGEST_LIMIT:
            raise ill(name, limit, f"1 to {LARGEST_LIMIT}, or leave it out")
    return next((limit for limit in limits if limit is not None), None)


def _least(told: Fields, limit: int | None) -> int:
    least = told.whole("min_tokens") or 0
    if not 0 <= least <= (LARGEST_LIMIT if limit is None else limit):
        raise ill("min_tokens", least, "0 or more, and no more than the limit")
    return least


def _messages(listed: Sequence[Any]) -> tuple[Message, ...]:
    if len(listed) > MOST_MESSAGES:
        raise ill("messages", len(listed), f"at most {MOST_MESSAGES} messages")
    return tuple(_message(message, f"messages[{n}]") for n, message in enumerate(listed))


def _message(told: Any, where: str) -> Message:
    if not isinstance(told, Mapping):
        raise ill(where, told, "an object")
    fields = Fields(told, f"{where}.")
    for name in ("role", "name", "tool_call_id", "reasoning_content", "reasoning"):
        fields.text(name)
    for call in fields.listed("tool_calls"):
        _check_call(call, f"{where}.tool_calls")
    try:
        (message,) = messages_of(told)
    except InvalidRequest as error:
        field = f"{where}.{error.field}"
        raise InvalidRequest(f"{where}: {error}", hint=error.hint, field=field) from None
    return message


def _check_call(call: Any, where: str) -> None:
    match call:
        case {"id": str(), "function": {"name": str(), "arguments": str()}}:
            return
    raise ill(where, call, '{"id": …, "function": {"name": …, "arguments": "JSON"}}')


def _stop(told: Fields) -> tuple[str, ...]:
    stop = told.fields.get("stop")
    listed = [stop] if isinstance(stop, str) else told.listed("stop")
    if not all(isinstance(text, str) for text in listed):
        raise ill("stop", stop, "a text or a list of texts")
    if len(listed) > MOST_STOPS or any(not 0 < len(text) <= LONGEST_STOP for text in listed):
        raise ill("stop", stop, f"at most {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters")
    return tuple(listed)


def _logprobs(told: Fields, *, chat: bool) -> int | None:
    if chat:
        top = told.whole("top_logprobs")
        if not told.flag("logprobs"):
            if top is not None:
                raise InvalidRequest(
                    "`top_logprobs` without `logprobs`",
                    hint='set "logprobs": true',
                    field="top_logprobs",
                )
            return None
        top = top or 0
    else:
        top = told.whole("logprobs")
    if top is not None and not 0 <= top <= 20:
        raise ill("top_logprobs" if chat else "logprobs", top, "a number from 0 to 20")
    return top


def _tool(tool: Any) -> Mapping[str, Any]:
    match tool:
        case {"type": "function", "function": {"name": str()}}:
            return tool  # type: ignore[no-any-return]  # matched as a mapping
    raise ill("tools", tool, '{"type": "function", "function": {"name": …}}')


def _tool_choice(
    told: Fields, tools: Sequence[Mapping[str, Any]]
) -> str | Mapping[str, Any] | None:
    """None, too, where there is no tool and none is wanted."""
    choice = told.fields.get("tool_choice")
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        raise ill("tool_choice", choice, '"none", "auto", "required" or one function')
    choice = choice if isinstance(choice, str) else told.object("tool_choice")
    if tools:
        return choice
    if choice not in (None, "none", "auto"):
        raise InvalidRequest(
            "`tool_choice` wants a call, but there are no `tools`",
            hint="give the tools, or leave `tool_choice` out",
            field="tool_choice",
        )
    return None


def _response_format(told: Fields) -> Mapping[str, Any] | None:
    """None for plain text, which is no format to keep to."""
    wanted = told.object("response_format")
    if wanted is None:
        return None
    kind = wanted.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise ill("response_format", wanted, '{"type": "json_object"} or a "json_schema"')
    fields = Fields(wanted, "response_format.")
    fields.refuse_unknown(("type", "json_schema") if kind == "json_schema" else ("type",))
    if kind == "json_schema":
        _check_shape(fields)
    return None if kind == "text" else wanted


def _check_shape(wanted: Fields) -> None:
    """That there is a schema; what may stand in it depends on the engine."""
    where = "response_format.json_schema"
    shape = Fields(wanted.object("json_schema") or {}, f"{where}.")
    shape.refuse_unknown(("name", "description", "schema", "strict"))
    shape.text("name")
    shape.text("description")
    shape.flag("strict")
    if shape.object("schema") is None:
        raise ill(f"{where}.schema", shape.fields.get("schema"), "a JSON schema, an object")
