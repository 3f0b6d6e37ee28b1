"""A loaded model, taken apart: what it can do, and who does what for it. Runs in a thread."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, NamedTuple

from bourn.engines.base import ModelInfo
from bourn.engines.hf.batcher import Batcher
from bourn.engines.hf.engine import HONOURED, NAME, Parts
from bourn.engines.hf.forward.packing import pack
from bourn.engines.hf.forward.runner import Runner
from bourn.engines.hf.forward.support import slots_refusal
from bourn.engines.hf.generating import Generating
from bourn.engines.hf.memory import available
from bourn.engines.hf.outbox import Outbox
from bourn.engines.hf.prompting.ending import Ends, ends
from bourn.engines.hf.prompting.prompts import Prompts
from bourn.engines.hf.prompting.rendering import templates_of
from bourn.engines.hf.prompting.vocabulary import Vocabulary, marks_of
from bourn.engines.hf.sampling.generation_config import defaults_of, own_processors
from bourn.engines.hf.sampling.sampler import Sampler
from bourn.engines.hf.step import Backend
from bourn.engines.hf.weights.loading import Loaded
from bourn.errors import LoadFailed

logger = logging.getLogger("bourn.engines")

UNSTATED = 4096
"""Tokens of window, where the model states none."""

SHARE = 0.5
"""How much of the memory that is free keys and values may take in all."""

WHY = {
    "tools": "this model's chat template does not show them to the model",
    "tool_choice": "this model's chat template takes no tools",
    "images": "this engine reads text only",
}


class Size(NamedTuple):
    """slots: requests at once. window: tokens of each; None is as many as model and memory have."""

    slots: int
    window: int | None = None
    compiled: bool = False


def assemble(loaded: Loaded, size: Size, *, name: str, outbox: Outbox) -> Parts:
    """Who does what for this model: on slots where it can be served so, else by `generate`.

    Raises:
        LoadFailed: it is to be compiled and cannot be.
        EngineError: there is no memory for the slots.
    """
    model, tokenizer = loaded.model, loaded.tokenizer
    if loaded.own:
        pack(model)
    template, config = _template(loaded), model.generation_config
    vocabulary = Vocabulary(
        tokenizer,
        marks=marks_of(template),
        own=loaded.own,
        closes=model.config.is_encoder_decoder,
    )
    prompts = Prompts(tokenizer, vocabulary, loaded.template)
    its_ends = ends(tokenizer, model.config, config, loaded.template)
    backend, facts = _backend(model, size, Sampler(vocabulary, vocabulary.size), outbox)
    return Parts(
        info=replace(
            _info(model, prompts, its_ends, name),
            chat_template=template is not None,
            prefills=template is not None and prompts.prefills,
            **facts,
        ),
        vocabulary=vocabulary,
        prompts=prompts,
        ends=its_ends,
        outbox=outbox,
        backend=backend,
        generation_config=config,
        processors=own_processors(config),
    )


def _backend(
    model: Any, size: Size, sampler: Sampler, outbox: Outbox
) -> tuple[Backend, dict[str, Any]]:
    """What makes tokens, and what there is to know of it."""
    window = size.window or stated_window(model.config) or UNSTATED
    if (why := slots_refusal(model)) is not None:
        if size.compiled:
            raise LoadFailed(f"it cannot be compiled: {why}", hint="leave --compile out")
        notice = f"it is served one answer at a time: {why}"
        logger.info(notice)
        facts = {"window": window, "slots": 1, "notice": notice}
        return Generating(model, sampler, told=outbox.send), facts
    runner = Runner(model, slots=size.slots, window=window, compiled=size.compiled)
    each = size.slots * runner.bytes_per_token
    if size.window is None:
        window = _affordable(window, each, model.get_input_embeddings().weight.device)
    taken = window * each
    logger.info(
        "%d slots of %d tokens: %.1f GB of keys and values", size.slots, window, taken / 1e9
    )
    facts = {"window": window, "slots": size.slots, "kv_bytes": taken}
    return Batcher(runner, sampler, slots=size.slots, told=outbox.send), facts


def stated_window(config: Any) -> int | None:
    """How many tokens a model's configuration says that it can read and write, in all."""
    text = config.get_text_config(decoder=True)
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        stated = getattr(text, name, None)
        if isinstance(stated, int) and stated > 0:
            return stated
    return None


def _info(model: Any, prompts: Prompts, its_ends: Ends, name: str) -> ModelInfo:
    tools = {"tools", "tool_choice"} if prompts.takes_tools else set[str]()
    return ModelInfo(
        name=name,
        engine=NAME,
        honours=HONOURED | tools,
        defaults=defaults_of(model.generation_config),
        channels=prompts.family,
        calls=prompts.calls,
        stop=its_ends.texts,
        why={field: why for field, why in WHY.items() if field not in tools},
    )


def _template(loaded: Loaded) -> str | None:
    """The text of the chat template that is for all, else of any."""
    templates = templates_of(loaded.tokenizer, loaded.template)
    texts = [templates[name].text for name in sorted(templates, key=lambda name: name != "default")]
    return texts[0] if texts else None


def _affordable(window: int, bytes_per_position: int, device: Any) -> int:
    """As much of a window as memory allows, in steps of 256 tokens."""
    free = available(device)
    if free is None:
        return window
    return max(256, min(window, int(SHARE * free / bytes_per_position) // 256 * 256))
