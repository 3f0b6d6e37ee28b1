"""`chat_stream`: the method that Qwen's first models had, for any chat model.

for response in bourn.chat_stream(model, tokenizer, "Tell me a story", history=None): ...
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, Unpack

from bourn.asking import Options
from bourn.sync import Model, hf
from bourn.types import Message

KEPT = 60.0
"""Seconds after its last answer for which a model stays on its slots, what it has read with it."""

Pair = tuple[str, str]
"""A question and its answer."""


def chat_stream(
    model: Any,
    tokenizer: Any,
    query: str,
    history: Iterable[Pair] | None = None,
    *,
    slots: int = 8,
    **options: Unpack[Options],
) -> Generator[str, None, None]:
    """The whole answer so far, again and again, the last time complete.

    Many may run on one model at once, from any thread; leaving the loop ends the computing.

    history: the questions and answers before, oldest first. options: as `Model.stream` takes them,
    `system` and `generation_config` among them. slots: for the first call on a model.

    Raises:
        BournError: the request is refused, or the generation failed.
    """
    messages = [*_messages(history or ()), Message("user", query)]
    with (
        _engines.engine(model, tokenizer, slots) as engine,
        engine.stream(messages, **options) as stream,
    ):
        yield from stream.snapshots(interval=0)


def _messages(history: Iterable[Pair]) -> Iterable[Message]:
    for question, answer in history:
        yield Message("user", question)
        yield Message("assistant", answer)


class _Engines:
    """The engines of models that were asked, each until it was left alone for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: dict[tuple[int, int], Model] = {}
        self._users: dict[tuple[int, int], int] = {}
        self._timers: dict[tuple[int, int], threading.Timer] = {}

    @contextmanager
    def engine(self, model: Any, tokenizer: Any, slots: int) -> Generator[Model, None, None]:
        key = id(model), id(tokenizer)  # an engine holds both, so that no other can have their ids
        with self._lock:
            if timer := self._timers.pop(key, None):
                timer.cancel()
            if key not in self._engines:
                self._engines[key] = hf(model, tokenizer, slots=slots)
            self._users[key] = self._users.get(key, 0) + 1
        try:
            yield self._engines[key]
        finally:
            with self._lock:
                self._users[key] -= 1
                if not self._users[key]:
                    self._timers[key] = timer = threading.Timer(KEPT, self._drop, (key,))
                    timer.daemon = True
                    timer.start()

    def _drop(self, key: tuple[int, int]) -> None:
        with self._lock:
            if self._users[key]:
                return
            self._timers.pop(key, None)
            del self._users[key]
            engine = self._engines.pop(key)
        engine.close()


_engines = _Engines()
