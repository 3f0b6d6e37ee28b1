"""One short question to the model itself, through bourn's own engine: does it stop by itself?"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from bourn import aio
from bourn.doctor.finding import (
    CannotTell,
    Checks,
    Finding,
    broken,
    note,
    ok,
    run,
    skipped,
    warning,
)
from bourn.engines.base import Engine
from bourn.errors import BournError, SettingsError
from bourn.metrics import feel_of_speed, feel_of_start
from bourn.settings import Settings
from bourn.types import FinishReason, Metrics

LIMIT = 200
"""Tokens within which a short answer must have come to its end."""

QUESTION = "What is the capital of France? Answer in one short sentence."
BEGINNING = "The capital of France is"


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer, and how it came. marks: texts that belong to the template, and in no answer.

    chat: whether a question was answered, and no text gone on with. error: why there is none.
    """

    text: str = ""
    finish: FinishReason | None = None
    metrics: Metrics = field(default_factory=Metrics)
    chat: bool = True
    marks: frozenset[str] = field(default_factory=frozenset)
    error: BournError | None = None


async def examine(
    engine: Callable[[], Engine], settings: Settings, marks: frozenset[str] = frozenset()
) -> AsyncGenerator[Finding]:
    """Load the model, ask it, and look at what it says. marks: see `Heard`."""
    heard = await ask(engine, settings, marks)
    for finding in run(CHECKS, heard):
        yield finding


async def ask(
    engine: Callable[[], Engine], settings: Settings, marks: frozenset[str] = frozenset()
) -> Heard:
    """The answer to a short question, greedy; where it cannot chat, how it goes on with a text.

    Raises:
        SettingsError: the settings are wrong for this model.
    """
    chat = True
    try:
        async with aio.Model(engine(), settings) as model:
            chat = model.info.chat_template
            stream = model.stream(
                QUESTION if chat else BEGINNING,
                temperature=0.0,
                max_new_tokens=LIMIT,
                raw=not chat,
                system=None,
                stop=(),
            )
            text = await stream.read()
    except SettingsError:  # it was used wrongly, which says nothing of the model
        raise
    except BournError as error:
        return Heard(chat=chat, error=error)
    return Heard(text, stream.finish_reason, stream.metrics, chat, marks)


# -- checks ----------------------------------------------------------------------------------------


def stops(heard: Heard) -> Finding:
    if heard.error is not None:
        return broken(f"it fails: {heard.error}", "nothing can be asked of it", heard.error.hint)
    tokens = heard.metrics.tokens
    if heard.finish is not FinishReason.LENGTH:
        return ok(f"after {tokens} tokens")
    if not heard.chat:
        return note(
            f"it was still going on after {tokens} tokens",
            "a model that is not made for chat has no reason to end; the limit does",
        )
    return broken(
        f"it was still going on after {tokens} tokens, asked for one short sentence",
        "each answer runs to its limit",
        "see the findings above; a stop string may help: --stop TEXT",
    )


_MARKS = re.compile(r"<\|[\w-]{1,40}\|>|<\w+_of_\w+>|\[/?INST\]|<</?SYS>>")
_ROLES = re.compile(r"\n(?:user|assistant|system|human|### \w+) *:? *(?:\n|$)", re.IGNORECASE)


def clean_text(heard: Heard) -> Finding:
    said = _said(heard)
    found = sorted(mark for mark in heard.marks if mark in said.text)
    found += [match for match in _MARKS.findall(said.text) if match not in found]
    if found:
        return warning(
            f"the answer holds {found[0]!r}",
            "a reader sees marks that are meant for the model",
            "look at the end tokens and the chat template",
        )
    if role := _ROLES.search(said.text):
        return warning(
            f"the answer goes on as somebody else: {role[0].strip()!r}",
            "the model plays the whole conversation by itself, since nothing ends its turn",
            "look at the end of turn, and at the generation prompt",
        )
    if "\ufffd" in said.text:
        return warning("the answer holds broken characters", "its bytes are no UTF-8", "")
    return ok(f"{_short(said.text)}")


def speed(heard: Heard) -> Finding:
    told = _said(heard).metrics
    parts = []
    if told.ttft is not None:
        parts.append(f"first token after {told.ttft:.2f} s ({feel_of_start(told.ttft)})")
    if told.tokens_per_second is not None:
        rate = told.tokens_per_second
        parts.append(f"{rate:.1f} tokens/s ({feel_of_speed(rate)})")
    return ok(", ".join(parts)) if parts else skipped("it said nothing to be measured by")


def _said(heard: Heard) -> Heard:
    if heard.error is not None:
        raise CannotTell("there was no answer")
    return heard


def _short(text: str) -> str:
    shown = " ".join(text.split())
    return f"“{shown[:60]}{'…' if len(shown) > 60 else ''}”"


CHECKS: Checks[Heard] = {
    "stops by itself": stops,
    "clean text": clean_text,
    "speed": speed,
}
