"""Asking a model from the terminal: load it, let Ctrl-C stop the answer, write events down."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from bourn.cli.neutral import neutral
from bourn.cli.show import Status, is_styled, say
from bourn.cli.thinking import Reasoning, Thinking
from bourn.types import Done, Event, text_of
from bourn.wire.events import done_object, event_object

if TYPE_CHECKING:
    from bourn.engines.base import Engine
    from bourn.settings import Settings
    from bourn.stream import Answer
    from bourn.sync import Model, Stream


@contextmanager
def opened(engine: Engine, settings: Settings, status: Status) -> Iterator[Model]:
    """The model, once it is ready. status: where the engine tells how far it is, if it does."""
    from bourn import aio
    from bourn.sync import Model

    named = "the model" if "://" in settings.model else settings.model  # a URL may hold a secret
    status.show(f"loading {named} …")
    with Model(aio.Model(engine, settings)) as model:
        try:
            model.start()
        finally:
            status.clear()
        if model.info.notice:
            say(f"bourn: {model.info.notice}")
        yield model


class Interrupt:
    """Ctrl-C while an answer runs: the first stops the answer, the second everything."""

    def __init__(self, stream: Stream) -> None:
        self.pressed = False
        self._stream = stream

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _press(self, *_: object) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
        self._stream.cancel(wait=False)


class Writer(Protocol):
    def event(self, event: Event) -> None: ...

    def end(self, answer: Answer) -> None: ...


def writer_for(
    out: TextIO, *, plain: bool = False, reasoning: Reasoning = "show", ends_line: bool = False
) -> Writer:
    """Markdown where a terminal shows it and nobody said otherwise; else the text as it is.

    ends_line: a line feed at the end of an answer that has none, on a pipe too.
    """
    thinking = Thinking(reasoning, styled=is_styled(sys.stderr))
    if plain or not is_styled(out):
        return TextWriter(out, thinking, ends_line=ends_line)
    from bourn.cli.markdown import MarkdownWriter  # a pipe needs none

    return MarkdownWriter(out, thinking)


class TextWriter:
    """The answer as it comes, to `out`. Nothing in it acts on a terminal; a file gets all of it."""

    def __init__(self, out: TextIO, thinking: Thinking, *, ends_line: bool = False) -> None:
        self._out = out
        self._thinking = thinking
        self._shown = neutral if out.isatty() else str
        self._ends_line = ends_line or out.isatty()
        self._last = "\n"

    def event(self, event: Event) -> None:
        if self._thinking.takes(event):
            self._thinking.event(event)
        elif text := text_of(event):
            self._thinking.end()
            self._out.write(self._shown(text))
            self._out.flush()
            self._last = text[-1]

    def end(self, answer: Answer) -> None:  # noqa: ARG002 (it is all out already)
        self._thinking.end()
        if self._ends_line and self._last != "\n":
            self._out.write("\n")
            self._out.flush()


class WholeWriter:
    """The answer once it is whole."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def event(self, event: Event) -> None:
        """Wait."""

    def end(self, answer: Answer) -> None:
        self._out.write(neutral(answer.text) if self._out.isatty() else answer.text)
        if self._out.isatty() and not answer.text.endswith("\n"):
            self._out.write("\n")


class JsonWriter:
    """An object a line; the last one is the whole answer."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def event(self, event: Event) -> None:
        if not isinstance(event, Done):
            self._line(event_object(event))

    def end(self, answer: Answer) -> None:
        self._line(done_object(answer))

    def _line(self, told: dict[str, object]) -> None:
        self._out.write(json.dumps(told, ensure_ascii=False) + "\n")
        self._out.flush()
