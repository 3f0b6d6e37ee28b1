"""A request on OpenAI's wire, out: ours becomes a JSON body. For the way back: `wire.body`.

It knows no connection, and what kinds of endpoint there are only by their `Dialect`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bourn.errors import InvalidRequest, UnsupportedField
from bourn.types import ImagePart, Message, Request, TextPart
from bourn.wire.dialect import Dialect, spoken


def body_of(request: Request, model: str, dialect: Dialect) -> dict[str, Any]:
    """The JSON body of a chat, or of a completion where the request has a raw prompt.

    Stop strings are not in it: bourn's own filter acts on the answer alone, never on reasoning, and
    then closes the connection. Two mechanisms for one rule would differ.

    Raises:
        UnsupportedField: the dialect has no word for a field that the request uses.
    """
    for name in sorted(request.asks() - dialect.honours):
        raise UnsupportedField(name, spoken(dialect.name))
    chat = request.prompt is None
    body: dict[str, Any] = {"model": model, "stream": True, **dialect.extra}
    if chat:
        body["messages"] = [_message(message, dialect) for message in request.messages]
        body |= dialect.chat_extra
    else:
        body["prompt"] = request.prompt
    if request.max_new_tokens is not None:
        body[dialect.limit if chat else "max_tokens"] = request.max_new_tokens
    if dialect.reuse is not None:
        body[dialect.reuse] = request.reuse_prompt
    return body | _sampling(request, dialect) | _options(request, dialect)


def _sampling(request: Request, dialect: Dialect) -> dict[str, Any]:
    given = request.sampling.given()
    if given.get("top_k") == 0:
        given["top_k"] = dialect.top_k_off
    return {dialect.sampling[name]: value for name, value in given.items()}


def _options(request: Request, dialect: Dialect) -> dict[str, Any]:
    tools, choice = list(request.tools), request.tool_choice
    if isinstance(choice, Mapping) and not dialect.names_call:
        tools, choice = [_named(choice, tools)], "required"
    wanted: dict[str, Any] = {
        "n": request.n if request.n > 1 else None,
        "ignore_eos": request.ignore_eos or None,
        "min_tokens": request.min_new_tokens or None,
        "stop_token_ids": request.stop_token_ids or None,
        "logit_bias": {str(token): bias for token, bias in request.logit_bias.items()} or None,
        "tools": tools or None,
        "tool_choice": choice,
        "response_format": request.response_format,
        "chat_template_kwargs": request.template_kwargs or None,
    }
    if request.logprobs is not None:
        top = max(request.logprobs, dialect.least_top)
        wanted |= {"logprobs": True, "top_logprobs": top} if request.messages else {"logprobs": top}
    return {name: value for name, value in wanted.items() if value is not None}


def _named(choice: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The tool that is to be called."""
    match choice:
        case {"function": {"name": str(name)}}:
            for tool in tools:
                if tool["function"]["name"] == name:
                    return tool
    hint = 'name one of `tools`: {"type": "function", "function": {"name": …}}'
    raise InvalidRequest("`tool_choice` names none of the tools", hint=hint, field="tool_choice")


def _message(message: Message, dialect: Dialect) -> dict[str, Any]:
    told: dict[str, Any] = {"role": message.role, "content": _content(message)}
    if message.name is not None:
        told["name"] = message.name
    if message.reasoning and dialect.reasoning is not None:
        told[dialect.reasoning] = message.reasoning
    if message.tool_call_id is not None:
        told["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        told["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": call.arguments or dialect.no_arguments,
                },
            }
            for call in message.tool_calls
        ]
    return told


def _content(message: Message) -> str | list[dict[str, Any]]:
    if isinstance(message.content, str):
        return message.content
    return [_part(part) for part in message.content]


def _part(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    detail = {} if part.detail is None else {"detail": part.detail}
    return {"type": "image_url", "image_url": {"url": part.url, **detail}}
