"""A request on OpenAI's wire, in: the JSON body of a chat or a completion becomes ours.

What bourn cannot honour is refused by name, never dropped. It knows no server and no model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypeVar

from bourn.errors import InvalidRequest, UnsupportedField
from bourn.messages import messages_of
from bourn.types import Message, Request, Sampling

T = TypeVar("T")

_WHOLE = {"max_tokens", "max_completion_tokens", "n", "seed", "top_k", "top_logprobs"}
_SAMPLING = {field.name: field.name for field in fields(Sampling)} | {
    "repeat_penalty": "repetition_penalty"
}
_OPTIONS = {
    "messages",
    "prompt",
    "stop",
    "logprobs",
    "ignore_eos",
    "tools",
    "tool_choice",
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
}
"""Taken by the server itself, or only there to tell callers apart."""

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": (),
    "functions": ([],),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True,),
    "prediction": (),
    "reasoning_effort": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "verbosity": (),
    "web_search_options": (),
}
"""Fields of OpenAI's that bourn cannot honour, with the values at which they ask for nothing."""


def request_of(body: Mapping[str, Any]) -> Request:
    """The request that the body of a chat or a completion means. `null` is "not said".

    Without a token limit it is the rest of the window; `max_completion_tokens` goes before its old
    name. `top_k` may be -1 for off, as in vLLM; `cache_prompt` is llama.cpp's.

    Raises:
        InvalidRequest: a field is unknown, or of a wrong type or size; the message names it.
        UnsupportedField: a field of OpenAI's that bourn cannot honour.
    """
    told = _Body({name: value for name, value in body.items() if value is not None})
    _refuse_unknown(told.fields)
    prompt = _prompt(told)
    return Request(
        messages=_messages(told.listed("messages")),
        prompt=prompt,
        sampling=_sampling_of(told),
        max_new_tokens=_limit(told),
        stop=_stop(told),
        n=1 if (n := told.whole("n")) is None else n,
        logprobs=_logprobs(told, chat=prompt is None),
        ignore_eos=told.flag("ignore_eos"),
        tools=tuple(map(_tool, told.listed("tools"))),
        tool_choice=_tool_choice(told),
        response_format=_response_format(told),
        template_kwargs=told.object("chat_template_kwargs") or {},
        reuse_prompt=told.flag("cache_prompt", default=True),
    )


def wants_usage(body: Mapping[str, Any]) -> bool:
    """Whether a stream shall end with a chunk of usage."""
    options = _Body(body).object("stream_options") or {}
    return _Body(options).flag("include_usage")


class _Body:
    """Fields by type. Each raises `InvalidRequest`, naming the field, where the type is wrong."""

    def __init__(self, fields: Mapping[str, Any], where: str = "") -> None:
        self.fields = fields
        self._where = where

    def whole(self, name: str) -> int | None:
        return self._of(name, int, "a whole number")

    def number(self, name: str) -> float | None:
        value = self.fields.get(name)
        if type(value) is int:  # and no bool, which is an int to Python
            return value
        return self._of(name, float, "a number")

    def text(self, name: str) -> str | None:
        return self._of(name, str, "a text")

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._of(name, bool, "true or false")
        return default if value is None else value

    def object(self, name: str) -> Mapping[str, Any] | None:
        return self._of(name, dict, "an object")

    def listed(self, name: str) -> Sequence[Any]:
        return self._of(name, list, "a list") or ()

    def _of(self, name: str, kind: type[T], words: str) -> T | None:
        value = self.fields.get(name)
        if value is None or type(value) is kind:
            return value
        raise _ill_typed(self._where + name, value, words)


def _ill_typed(name: str, value: object, words: str) -> InvalidRequest:
    return InvalidRequest(f"`{name}` is {json.dumps(value, default=str):.80}", hint=f"give {words}")


def _refuse_unknown(told: Mapping[str, Any]) -> None:
    known = _OPTIONS | _NOT_FOR_THE_MODEL | _SAMPLING.keys() | _WHOLE
    for name, value in told.items():
        if name in _NEUTRAL and value not in _NEUTRAL[name]:
            raise UnsupportedField(name, "bourn")
        if name not in known and name not in _NEUTRAL:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean `{near[0]}`?" if near else "leave it out"
            raise InvalidRequest(f"there is no field `{name}`", hint=hint)


def _sampling_of(told: _Body) -> Sampling:
    given = {
        ours: told.whole(name) if name in _WHOLE else told.number(name)
        for name, ours in _SAMPLING.items()
        if name in told.fields
    }
    if given.get("top_k") == -1:
        given["top_k"] = 0
    return Sampling(**given)  # type: ignore[arg-type]  # checked one by one


def _prompt(told: _Body) -> str | None:
    prompt = told.fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if prompt is not None and not isinstance(prompt, str):
        raise _ill_typed("prompt", prompt, "one text; several prompts are several requests")
    return prompt


def _limit(told: _Body) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        if (limit := told.whole(name)) is not None:
            if limit < 1:
                raise _ill_typed(name, limit, "1 or more, or leave it out")
            return limit
    return None


def _messages(listed: Sequence[Any]) -> tuple[Message, ...]:
    for place, message in enumerate(listed):
        if not isinstance(message, Mapping):
            raise _ill_typed(f"messages[{place}]", message, "an object")
        fields = _Body(message, f"messages[{place}].")
        for name in ("role", "name", "tool_call_id", "reasoning_content", "reasoning"):
            fields.text(name)
        for call in fields.listed("tool_calls"):
            _check_call(call, f"messages[{place}].tool_calls")
    return messages_of(listed)


def _check_call(call: Any, where: str) -> None:
    match call:
        case {"id": str(), "function": {"name": str(), "arguments": str()}}:
            return
    raise _ill_typed(where, call, '{"id": …, "function": {"name": …, "arguments": "JSON"}}')


def _stop(told: _Body) -> tuple[str, ...]:
    stop = told.fields.get("stop")
    if isinstance(stop, str):
        return (stop,)
    listed = told.listed("stop")
    if not all(isinstance(text, str) for text in listed):
        raise _ill_typed("stop", stop, "a text or a list of texts")
    return tuple(listed)


def _logprobs(told: _Body, *, chat: bool) -> int | None:
    if chat:
        top = told.whole("top_logprobs")
        if not told.flag("logprobs"):
            if top is not None:
                raise InvalidRequest(
                    "`top_logprobs` without `logprobs`", hint='set "logprobs": true'
                )
            return None
        top = top or 0
    else:
        top = told.whole("logprobs")
    if top is not None and not 0 <= top <= 20:
        raise _ill_typed("top_logprobs" if chat else "logprobs", top, "a number from 0 to 20")
    return top


def _tool(tool: Any) -> Mapping[str, Any]:
    match tool:
        case {"type": "function", "function": {"name": str()}}:
            return tool  # type: ignore[no-any-return]  # matched as a mapping
    raise _ill_typed("tools", tool, '{"type": "function", "function": {"name": …}}')


def _tool_choice(told: _Body) -> str | Mapping[str, Any] | None:
    choice = told.fields.get("tool_choice")
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        raise _ill_typed("tool_choice", choice, '"none", "auto", "required" or one function')
    return choice if isinstance(choice, str) else told.object("tool_choice")


def _response_format(told: _Body) -> Mapping[str, Any] | None:
    """None for plain text, which is no format to keep to."""
    wanted = told.object("response_format")
    kind = wanted and wanted.get("type")
    if wanted is not None and kind not in ("text", "json_object", "json_schema"):
        raise _ill_typed("response_format", wanted, '{"type": "json_object"} or a "json_schema"')
    return None if kind == "text" else wanted
