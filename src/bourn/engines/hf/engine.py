"""The engine of Hugging Face checkpoints: from a request to rows of ids, and their pieces back.

Everything heavy happens in threads: loading in one of its own, tokens in the backend's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from bourn.engines.base import ModelInfo, check
from bourn.engines.hf.outbox import Mailbox, Outbox
from bourn.engines.hf.sequence import Hook, Hooks, Sequence, Wishes
from bourn.engines.hf.step import Backend
from bourn.errors import EngineError, PromptTooLong
from bourn.types import Channel, Piece, Request, Sampling, Usage

if TYPE_CHECKING:
    from bourn.engines.hf.prompting.ending import Ends
    from bourn.engines.hf.prompting.prompts import Prompts
    from bourn.engines.hf.prompting.vocabulary import Vocabulary
    from bourn.engines.hf.weights.loading import Loaded

NAME = "transformers"

HONOURED = frozenset(
    {
        *(field.name for field in fields(Sampling)),
        *("min_new_tokens", "stop_token_ids", "logit_bias", "logprobs", "ignore_eos"),
        *("n", "prompt", "token ids as prompt", "template_kwargs"),
        *("logits_processor", "stopping_criteria"),
    }
)


@dataclass(frozen=True, slots=True)
class Parts:
    """A loaded model, taken apart into what each does."""

    info: ModelInfo
    vocabulary: Vocabulary
    prompts: Prompts
    ends: Ends
    outbox: Outbox
    backend: Backend
    generation_config: Any
    processors: tuple[Hook, ...]  # what that forbids or forces


class Transformers:
    """A checkpoint on transformers. What slots cannot serve goes through `generate`, one by one.

    load: gives the model and its tokenizer; called once, in a thread. slots: requests at once.
    window: tokens of prompt and answer together; None is the model's own, as far as memory goes.
    compiled: see `runner.Runner`.
    """

    def __init__(
        self,
        load: Callable[[], Loaded],
        *,
        slots: int = 8,
        window: int | None = None,
        name: str,
        compiled: bool = False,
    ) -> None:
        self._compiled = compiled
        self._load = load
        self._slots = slots
        self._window = window
        self._name = name
        self._parts: Parts | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    @property
    def generation_config(self) -> Any:
        """The model's own, of transformers; None before it is loaded."""
        return self._parts and self._parts.generation_config

    async def start(self) -> ModelInfo:
        """Load it. Idempotent.

        Raises:
            LoadFailed: with what to do.
        """
        return (await self._started()).info

    async def generate(self, request: Request) -> AsyncGenerator[Piece, None]:
        """The pieces of one request, whose sampling is resolved.

        Raises:
            InvalidRequest: it asks for what this model cannot do.
            PromptTooLong: it leaves no room for an answer.
            Exception: what the user's own processor or criterion raised.
        """
        parts = await self._started()
        check(request, parts.info)
        prompt, opened = await asyncio.to_thread(_read, parts.prompts, request)
        mailbox = Mailbox()
        sink = parts.outbox.sink(mailbox)
        rows = [
            Sequence(wishes, parts.vocabulary.detokenizer(prompt), sink, choice=n)
            for n, wishes in enumerate(_wishes(request, prompt, parts))
        ]
        try:
            parts.backend.submit(*rows)
            if opened is not Channel.ANSWER:
                for row in rows:
                    yield Piece(choice=row.choice, opened=opened)
            async for piece in _pieces(mailbox, rows):
                yield piece
        finally:
            for row in rows:
                row.cancel()
            parts.backend.wake()

    async def count(self, request: Request) -> int | None:
        """How many tokens its prompt is, template included.

        Raises:
            TemplateError: there is no template, or it refuses the messages.
        """
        parts = await self._started()
        check(request, parts.info)
        prompt, _ = await asyncio.to_thread(_read, parts.prompts, request)
        return len(prompt)

    async def aclose(self) -> None:
        """End its thread, and give the cache's memory back. Idempotent.

        The model itself is its owner's.
        """
        self._closed = True
        async with self._starting:
            parts, self._parts = self._parts, None
        if parts is not None:
            await asyncio.to_thread(parts.backend.close)

    async def _started(self) -> Parts:
        async with self._starting:
            if self._closed:
                raise EngineError("this engine was closed", hint="load the model anew")
            if self._parts is None:
                outbox = Outbox(asyncio.get_running_loop())
                self._parts = await asyncio.to_thread(self._take_apart, outbox)
            return self._parts

    def _take_apart(self, outbox: Outbox) -> Parts:
        from bourn.engines.hf.assembly import Size, assemble

        size = Size(self._slots, self._window, compiled=self._compiled)
        return assemble(self._load(), size, name=self._name, outbox=outbox)


def _read(prompts: Prompts, request: Request) -> tuple[list[int], Channel]:
    """The prompt's ids, and the channel it leaves open."""
    if request.prompt is not None:
        return prompts.ids(request), Channel.ANSWER
    text = prompts.text(request)
    return prompts.encode(text), prompts.opened(text, request)


def _wishes(request: Request, prompt: Many[int], parts: Parts) -> list[Wishes]:
    """What is asked of each choice; each has a seed of its own."""
    window = parts.info.window
    room = None if window is None else window - len(prompt)
    if room is not None and room < 1:
        raise PromptTooLong(
            f"the prompt is {len(prompt)} tokens long, the window is {window}, answer included",
            prompt_tokens=len(prompt),
            window=window,
        )
    limits = [limit for limit in (request.max_new_tokens, room) if limit is not None]
    ends = frozenset() if request.ignore_eos else parts.ends.ids
    options: dict[str, Any] = dict(request.engine_options)
    wishes = Wishes(
        prompt=tuple(prompt),
        sampling=request.sampling,
        max_new_tokens=min(limits),
        min_new_tokens=request.min_new_tokens,
        end_ids=ends | set(request.stop_token_ids),
        logit_bias=request.logit_bias,
        logprobs=request.logprobs,
        reuse=request.reuse_prompt,
        hooks=Hooks(
            (*parts.processors, *options.get("logits_processor", ())),
            tuple(options.get("stopping_criteria", ())),
        ),
    )
    seed = request.sampling.seed or 0
    return [
        replace(wishes, sampling=replace(wishes.sampling, seed=(seed + n) % (2**32 - 1)))
        for n in range(request.n)
    ]


async def _pieces(mailbox: Mailbox, rows: list[Sequence]) -> AsyncGenerator[Piece, None]:
    """Until each row has ended; the usage is over all of them."""
    going = len(rows)
    generated = cached = 0
    while going:
        said = await mailbox.take()
        if isinstance(said, Exception):
            raise said
        generated += said.tokens
        if said.usage is not None:
            cached = cached or said.usage.cached_tokens
            said = replace(said, usage=Usage(said.usage.prompt_tokens, generated, cached))
        going -= said.finish is not None
        yield said
