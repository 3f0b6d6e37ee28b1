"""`bourn.gradio.chat`: the function that Gradio's chat wants, for people's own Gradio code.

    import bourn, gradio as gr

    gr.ChatInterface(bourn.gradio.chat("smollm2")).launch()

The function only waits: the answer is made in the model's own event loop, and told here some twenty
times a second. Stop and a closed tab end it there, while words come, while the prompt is read, and
in the queue. Importing this imports nothing of Gradio.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from inspect import unwrap
from typing import Any

from bourn import aio, sync
from bourn.asking import Options
from bourn.engines import SERVING_SLOTS
from bourn.errors import InvalidRequest
from bourn.gradio.answers import Answers
from bourn.gradio.shown import Yielded
from bourn.settings import Settings

__all__ = ["INPUTS", "Respond", "Yielded", "chat"]

logger = logging.getLogger(__name__)

Respond = Callable[..., AsyncGenerator[Yielded, None]]
"""(message, history, *additional inputs), as `gr.ChatInterface` calls it."""

INPUTS = ("system", "max_new_tokens", "temperature", "top_p")
"""What the additional inputs are, unless something else is said: those of the template that
Hugging Face gives for a chat."""


def chat(
    model: sync.Model | aio.Model | str | None = None,
    *,
    inputs: Sequence[str] = INPUTS,
    **options: Any,
) -> Respond:
    """A function for `gr.ChatInterface`, which answers with `model`.

    model: what `bourn.load` and `bourn.hf` give, or their namesakes of `bourn.aio`, started; or a
        name, which is loaded now, with slots for several as a server's; None is the default one.
    inputs: which options Gradio's `additional_inputs` are, in their order. What somebody leaves
        empty there is not said.
    options: see `bourn.asking.Options`; `system` is the system message.

    It yields what is to be shown of the answer so far: its text; or a list of messages, where there
    is reasoning to be folded, a place in the queue, or an error, which keeps the text before it.

    Raises:
        InvalidRequest: an option is unknown or wrong.
        ModelNotFound, LoadFailed: as `bourn.load` does, where a name is given.
    """
    for name in set(inputs) - Options.__annotations__.keys():
        raise InvalidRequest(f"there is no option `{name}`", hint="see bourn.asking.Options")
    if model is None or isinstance(model, str):
        model = _loaded(model)
    answers = Answers(model, tuple(inputs), options)

    async def respond(message: Any, history: Any, *given: Any) -> AsyncGenerator[Yielded, None]:
        _let_in(respond)
        async with aclosing(answers.watch(message, history, given)) as watched:
            async for shown in watched:
                yield shown.yielded

    return respond


def _loaded(name: str | None) -> sync.Model:
    settings = Settings.load({"model": name})
    settings = replace(settings, slots=settings.slots or SERVING_SLOTS)
    model = sync.Model(aio.Model(settings=settings))
    try:
        return model.start()
    except BaseException:  # an interrupt too must leave no process behind
        model.close()
        raise


def _let_in(respond: Respond) -> None:
    """Lets others in beside the one who asks: bourn has a queue of its own, with slots.

    Gradio runs one call of a function at a time, unless somebody says otherwise. Where nobody did,
    this says it for the events of `respond`, and for no others: what `concurrency_limit=None` would
    have said. Where these names of Gradio's are gone, it stays at one at a time.
    """
    context = sys.modules.get("gradio.context")  # which is there where Gradio calls
    if context is None or "GRADIO_DEFAULT_CONCURRENCY_LIMIT" in os.environ:
        return
    try:
        blocks = context.LocalContext.blocks.get()
        queue = blocks._queue
        for event in blocks.fns.values() if queue.default_concurrency_limit == 1 else ():
            alone = event.concurrency_id == str(id(event.fn))  # in no group with others
            if event.concurrency_limit == "default" and alone and unwrap(event.fn) is respond:
                event.concurrency_limit = None
                if waiting := queue.event_queue_per_concurrency_id.get(event.concurrency_id):
                    waiting.concurrency_limit = None
    except (LookupError, AttributeError) as missing:
        logger.debug("not called by Gradio's queue: %r", missing)
