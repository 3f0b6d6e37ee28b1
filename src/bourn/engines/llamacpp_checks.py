"""What llama.cpp's server must not be asked, since it would drop it, stumble or choke over it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from bourn.engines.grammars import check_format, check_tools
from bourn.errors import InvalidRequest, UnsupportedField
from bourn.types import Message, Request

_NAME = "llama.cpp"


def check_request(request: Request, *, takes_tools: bool) -> None:
    """takes_tools: whether the chat template does.

    Raises:
        InvalidRequest: it is refused; the error names the field.
    """
    if request.prompt is not None and not request.prompt:
        raise InvalidRequest("`prompt` is empty", hint="give a first character", field="prompt")
    if request.logprobs is not None:
        _check_logprobs(request)
    if request.response_format is not None:
        check_format(request.response_format)
    if request.tool_choice != "none":
        check_tools(request.tools)
    if takes_tools:
        _check_calls(request.messages)


def _check_logprobs(request: Request) -> None:
    """Of a parsed answer it gives some of them, beside other tokens than theirs."""
    if request.tools:
        raise UnsupportedField("logprobs", _NAME, hint="it gives none beside tools")
    if request.response_format is not None:
        raise UnsupportedField("logprobs", _NAME, hint="it gives none beside a `response_format`")


def _check_calls(messages: Sequence[Message]) -> None:
    for place, message in enumerate(messages):
        for call in message.tool_calls:
            try:
                json.loads(call.arguments or "{}")
            except (ValueError, RecursionError) as error:
                raise InvalidRequest(
                    f"the arguments of a call in messages[{place}] are no JSON",
                    hint="give them as the model wrote them, or leave the call out",
                    field=f"messages[{place}].tool_calls",
                ) from error
