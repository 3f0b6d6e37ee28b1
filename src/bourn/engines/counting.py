"""How many tokens a prompt is: asked of the servers that can tell without reading it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bourn.engines.dialects import LLAMACPP, SGLANG, VLLM
from bourn.types import Request
from bourn.wire.dialect import Dialect
from bourn.wire.openai import body_of

if TYPE_CHECKING:
    from bourn.engines.http import Endpoint

_PROMPT = ("model", "messages", "prompt", "tools", "chat_template_kwargs")


async def count(endpoint: Endpoint, request: Request, model: str, dialect: Dialect) -> int | None:
    """Tokens of the prompt with its template; None where this kind of server does not tell.

    Raises:
        BournError: the server refuses the prompt, or cannot be reached.
    """
    if isinstance(request.prompt, tuple):
        return len(request.prompt)
    body = body_of(request, model, dialect)
    asked = {name: body[name] for name in _PROMPT if name in body}
    if dialect is LLAMACPP:
        return await _llamacpp(endpoint, asked)
    if dialect in (VLLM, SGLANG):
        told = await endpoint.ask("/tokenize", asked)
        return told.get("count") if isinstance(told, dict) else None
    return None


async def _llamacpp(endpoint: Endpoint, asked: dict[str, Any]) -> int | None:
    if "prompt" not in asked:
        asked = await endpoint.ask("/apply-template", asked) or {}
    # its beginning-of-text token, where the template has written it, is not added a second time
    text = {"content": asked.get("prompt", ""), "add_special": True, "parse_special": True}
    told = await endpoint.ask("/tokenize", text)
    return len(told["tokens"]) if isinstance(told, dict) and "tokens" in told else None
