"""What each line of a batch asks for. Knows neither models nor files.

A line that cannot be read is a job all the same: one that has failed, so that each line in has a
line out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jiter

from bourn.asking import Options, request_for, with_system
from bourn.errors import InvalidRequest
from bourn.settings import Settings
from bourn.types import Request
from bourn.wire.body import request_of

Id = str | int


@dataclass(frozen=True, slots=True)
class Job:
    """One line. id: None where it has none of its own that could be used. line: from 1.

    asked: what is wanted, or why that cannot be said. openai: whether the line is in the form of
    OpenAI's batch files, and what comes of it is to be.
    """

    id: Id | None
    line: int
    asked: Request | InvalidRequest
    openai: bool = False


def jobs(lines: Iterable[bytes], settings: Settings) -> Iterator[Job]:
    """The jobs of all lines but the blank ones. Only the ids are kept.

    settings: the user's own, for what a line does not say.
    """
    known: dict[Id | None, int] = {}
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        job = _job(line, number, settings)
        first = known.setdefault(job.id, number)
        if first != number:
            twice = InvalidRequest(
                f"line {number} has the id of line {first}: {job.id!r}",
                hint="give each line an id of its own, or none at all",
            )
            job = replace(job, id=None, asked=twice)
        yield job


def count_lines(path: Path) -> int:
    """How many jobs a file holds."""
    with path.open("rb") as lines:
        return sum(not line.isspace() for line in lines)


def _job(line: bytes, number: int, settings: Settings) -> Job:
    try:
        told = jiter.from_json(line.removeprefix(b"\xef\xbb\xbf"))
    except ValueError as error:
        wrong = InvalidRequest(f"line {number} is no JSON: {error}", hint="one object on each line")
        return Job(number, number, wrong)
    if not isinstance(told, dict):
        wrong = InvalidRequest(
            f"line {number} is no object: {told!r:.80}", hint='write {"prompt": "…"}'
        )
        return Job(number, number, wrong)
    openai = "body" in told
    id_ = told.pop("custom_id" if openai else "id", None)
    id_ = number if id_ is None else id_
    if not isinstance(id_, Id) or isinstance(id_, bool):
        wrong = InvalidRequest(f"the id is {id_!r:.80}", hint="give a text or a whole number")
        return Job(number, number, wrong, openai)
    return Job(id_, number, _asked(told, settings, _wire if openai else _plain), openai)


def _asked(
    told: dict[str, Any], settings: Settings, read: Callable[[dict[str, Any], Settings], Request]
) -> Request | InvalidRequest:
    try:
        return read(told, settings)
    except InvalidRequest as error:
        return error
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # of another shape
        return InvalidRequest(f"it cannot be read: {error!r}", hint="see OpenAI's API for messages")


# -- bourn's own form ------------------------------------------------------------------------------


def _plain(told: dict[str, Any], settings: Settings) -> Request:
    both = [name for name in ("prompt", "messages") if name in told]
    if len(both) != 1:
        raise InvalidRequest(
            "there are a prompt and messages" if both else "there is no prompt",
            hint="give either `prompt`, a text, or `messages`, a list",
        )
    (name,) = both
    asked = told.pop(name)
    kind = str if name == "prompt" else list
    if not isinstance(asked, kind):
        words = "a text" if kind is str else "a list of messages"
        raise InvalidRequest(f"`{name}` is {asked!r:.80}", hint=f"give {words}")
    return request_for(asked, _options(told), settings)


def _options(told: dict[str, Any]) -> Options:
    """The options of a line, each of its kind. Those that JSON cannot say are unknown here."""
    for name, value in told.items():
        if name in Options.__annotations__ and name not in _KINDS:
            raise InvalidRequest(f"`{name}` cannot be said in a file", hint="leave it out")
        words, fits = _KINDS.get(name, _ANYTHING)  # request_for knows who is unknown
        if not fits(value):
            raise InvalidRequest(f"`{name}` is {value!r:.80}", hint=f"give {words}")
    if "logit_bias" in told:  # JSON has no numbers for keys
        told["logit_bias"] = {int(token): bias for token, bias in told["logit_bias"].items()}
    options: Options = told  # type: ignore[assignment]  # each was checked
    return options


def _is(*kinds: type) -> Callable[[object], bool]:
    """Whether a value is of one of these kinds exactly: a bool is no int here."""
    return lambda value: type(value) in kinds


def _texts(value: object) -> bool:
    return isinstance(value, str) or _listed(str)(value)


def _listed(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(type(each) is kind for each in value)


def _biases(value: object) -> bool:
    return isinstance(value, dict) and all(
        token.isdecimal() and type(bias) in (int, float) for token, bias in value.items()
    )


_Kind = tuple[str, Callable[[object], bool]]
_NULL = type(None)
_ANYTHING: _Kind = ("", lambda _: True)
_SWITCH: _Kind = ("true or false", _is(bool))
_WHOLE: _Kind = ("a whole number", _is(int))
_WHOLE_OR_NULL: _Kind = ("a whole number or null", _is(int, _NULL))
_NUMBER: _Kind = ("a number", _is(int, float, _NULL))
_OBJECT: _Kind = ("an object", _is(dict))

_KINDS: Mapping[str, _Kind] = {
    "system": ("a text", _is(str, _NULL)),
    "stop": ("a text or a list of texts", _texts),
    **dict.fromkeys(("raw", "ignore_eos", "reuse_prompt"), _SWITCH),
    **dict.fromkeys(("min_new_tokens", "n"), _WHOLE),
    **dict.fromkeys(("max_new_tokens", "logprobs", "top_k", "seed"), _WHOLE_OR_NULL),
    **dict.fromkeys(("temperature", "top_p", "min_p"), _NUMBER),
    **dict.fromkeys(("repetition_penalty", "presence_penalty", "frequency_penalty"), _NUMBER),
    "stop_token_ids": ("a list of whole numbers", _listed(int)),
    "logit_bias": ('an object of numbers by token id, such as {"50256": -100}', _biases),
    "tools": ("a list of objects", _listed(dict)),
    "tool_choice": ("a text or an object", _is(str, dict, _NULL)),
    "response_format": ("an object", _is(dict, _NULL)),
    "template_kwargs": _OBJECT,
}


# -- OpenAI's form ---------------------------------------------------------------------------------

_URLS = ("/v1/chat/completions", "/v1/completions")


def _wire(told: dict[str, Any], settings: Settings) -> Request:
    body = told.pop("body")
    for name, right in (("method", ("POST",)), ("url", _URLS)):
        value = told.pop(name, right[0])
        if value not in right:
            raise InvalidRequest(f"`{name}` is {value!r:.80}", hint=f"give {' or '.join(right)}")
    if told:
        raise InvalidRequest(f"there is no field `{next(iter(told))}`", hint="leave it out")
    if not isinstance(body, dict):
        raise InvalidRequest(f"`body` is {body!r:.80}", hint="give an object")
    request = request_of(body)
    return replace(
        request,
        messages=with_system(request.messages, settings.system),
        max_new_tokens=request.max_new_tokens or settings.max_new_tokens,
        stop=request.stop or settings.stop,
    )
