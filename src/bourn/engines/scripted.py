"""An engine that says what it was told to: for laws, faults and load, and for trying things out.

It knows no model. What it yields, when, and how it fails are all in its `Script`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl

from bourn.engines.base import ModelInfo
from bourn.errors import EngineError, SettingsError
from bourn.types import FinishReason, Piece, Request, Sampling, Usage

_TEXT = "The quick brown fox jumps over the lazy dog. "


@dataclass(frozen=True, slots=True)
class Script:
    """What one generation does.

    pieces: texts, each one token, or whole pieces. delay: seconds before each.
    prompt: tokens the prompt counts, read in `prompt_steps` steps of `prompt_delay` seconds.
    fail_at: raise `error` instead of piece number k (from 0); len(pieces) fails before the end.
    finish: how it ends; None ends without a reason, as a broken connection does.
    """

    pieces: Sequence[str | Piece] = ()
    delay: float = 0.0
    prompt: int = 8
    prompt_steps: int = 0
    prompt_delay: float = 0.0
    fail_at: int | None = None
    error: Exception | None = None
    finish: FinishReason | None = FinishReason.STOP


ALL_FIELDS = frozenset(
    {
        *(field.name for field in fields(Sampling)),
        *("n", "logprobs", "ignore_eos", "tools", "tool_choice", "response_format"),
        *("template_kwargs", "prompt", "images"),
    }
)


class Scripted:
    """Takes every setting and follows `max_new_tokens` and `n` only.

    script: the same for all, or made for each request. facts: fields of its `ModelInfo`.
    """

    def __init__(self, script: Script | Callable[[Request], Script], **facts: Any) -> None:
        self._script = script
        self._info = replace(ModelInfo("scripted", "scripted", honours=ALL_FIELDS), **facts)
        self.running = 0
        self.started = 0

    async def start(self) -> ModelInfo:
        return self._info

    async def count(self, request: Request) -> int | None:
        """A word is a token."""
        if isinstance(request.prompt, tuple):
            return len(request.prompt)
        texts = [message.text for message in request.messages] or [request.prompt or ""]
        return sum(len(text.split()) for text in texts)

    async def aclose(self) -> None:
        """Nothing is held."""

    async def generate(self, request: Request) -> AsyncGenerator[Piece, None]:
        self.running += 1
        self.started += 1
        try:
            script = self._script if isinstance(self._script, Script) else self._script(request)
            async for piece in _read_prompt(script):
                yield piece
            for choice in range(request.n):
                async for piece in _speak(script, request.max_new_tokens):
                    yield replace(piece, choice=choice) if choice else piece
        finally:
            self.running -= 1


async def _read_prompt(script: Script) -> AsyncGenerator[Piece, None]:
    for step in range(1, script.prompt_steps + 1):
        await asyncio.sleep(script.prompt_delay)
        done = script.prompt * step // script.prompt_steps
        yield Piece(prompt_done=done, prompt_total=script.prompt)


async def _speak(script: Script, limit: int | None) -> AsyncGenerator[Piece, None]:
    tokens = 0
    for number, said in enumerate(script.pieces):
        if number == script.fail_at:
            break
        await asyncio.sleep(script.delay)
        piece = Piece(said, tokens=1) if isinstance(said, str) else said
        tokens += piece.tokens
        yield piece
        if limit is not None and tokens >= limit and number + 1 < len(script.pieces):
            yield Piece(finish=FinishReason.LENGTH, usage=Usage(script.prompt, tokens))
            return
    if script.fail_at is not None and script.fail_at <= len(script.pieces):
        raise script.error or EngineError("the script says: fail here")
    if script.finish is not None:
        yield Piece(finish=script.finish, usage=Usage(script.prompt, tokens))


def scripted(spec: str) -> Scripted:
    """The engine of a name like `scripted:Hello there?delay=0.05&fail_at=3&slots=2`.

    Without a text it says a sentence about a fox, ten times over. Each word is a token.

    Raises:
        SettingsError: an unknown key, or a value that is no number.
    """
    text, _, query = spec.partition("?")
    words = (text or _TEXT * 10).split(" ")
    pieces = [word + " " for word in words[:-1]] + [words[-1]]
    options = dict(parse_qsl(query))
    kinds = {
        "delay": float,
        "prompt": int,
        "prompt_steps": int,
        "prompt_delay": float,
        "fail_at": int,
    }
    try:
        slots = int(options.pop("slots", "0"))
        given = {name: kinds[name](value) for name, value in options.items()}
        return Scripted(Script([p for p in pieces if p], **given), slots=slots or None)
    except (KeyError, ValueError) as wrong:
        raise SettingsError(
            f"scripted:{spec} has a wrong setting: {wrong}",
            hint=f"known: {', '.join(kinds)}, slots",
        ) from None
