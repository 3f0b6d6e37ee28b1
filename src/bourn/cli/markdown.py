"""A streamed answer in Markdown, on a terminal: when to draw, and how large the terminal is.

Cheap to import: the parser and the painter are loaded where an answer is shown.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TextIO

from bourn.cli.neutral import neutral
from bourn.cli.thinking import Thinking
from bourn.types import Event, text_of

if TYPE_CHECKING:
    from bourn.stream import Answer

DRAWS_PER_SECOND = 30.0


class MarkdownWriter:
    """The answer on the terminal `out`, each block once; what is still open is drawn again.

    draws_per_second: tokens that come faster are drawn together. size: columns and lines.
    """

    def __init__(
        self,
        out: TextIO,
        thinking: Thinking | None = None,
        *,
        draws_per_second: float = DRAWS_PER_SECOND,
        size: Callable[[], tuple[int, int]] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        from bourn.cli.render.draft import Draft
        from bourn.cli.render.painter import Glyphs, Painter
        from bourn.cli.render.region import Region

        self._out = out
        self._thinking = thinking or Thinking()
        self._size = size or (lambda: terminal_size(out))
        self._pause = 1 / draws_per_second
        painter = Painter(Glyphs.of(out.encoding or "ascii"), light=has_light_background(environ))
        self._draft = Draft(painter, Region(reflows=reflows(environ)))
        self._lock = threading.Lock()
        self._next_draw = 0.0
        self._timer: threading.Timer | None = None
        self._failure: OSError | None = None
        self._open = False  # there is text that has not ended

    def event(self, event: Event) -> None:
        """Raises OSError: the terminal is gone."""
        if self._thinking.takes(event):
            self._end_text()
            self._thinking.event(event)
        elif text := text_of(event):
            self._thinking.end()
            with self._lock:
                self._check()
                self._draft.feed(neutral(text))
                self._open = True
                self._draw_in_time()

    def end(self, answer: Answer) -> None:  # noqa: ARG002 (it is all here already)
        self._thinking.end()
        self._end_text()

    def _end_text(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._check()
            if self._open:
                self._draft.resize(*self._size())
                self._write(self._draft.end())
                self._open = False

    def _draw_in_time(self) -> None:
        wait = self._next_draw - time.monotonic()
        if wait <= 0:
            self._draw()
        elif self._timer is None:
            self._timer = threading.Timer(wait, self._draw_late)
            self._timer.start()

    def _draw_late(self) -> None:
        """In the timer's thread: no token has come since that would have done it."""
        with self._lock:
            if self._timer is None:
                return
            self._timer = None
            try:
                self._draw()
            except OSError as error:
                self._failure = error

    def _draw(self) -> None:
        self._draft.resize(*self._size())
        self._write(self._draft.draw())
        self._next_draw = time.monotonic() + self._pause

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def terminal_size(out: TextIO) -> tuple[int, int]:
    """Columns and lines now; 80 and 24 where the terminal does not say."""
    try:
        columns, lines = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):
        columns, lines = 0, 0
    return columns or 80, lines or 24


def reflows(environ: Mapping[str, str]) -> bool:
    """Whether the terminal wraps anew what it shows when it is resized; most do."""
    if "TMUX" in environ:
        return True
    term = environ.get("TERM", "")
    return "XTERM_VERSION" not in environ and not term.startswith(("linux", "rxvt", "screen", "st"))


def has_light_background(environ: Mapping[str, str]) -> bool:
    """As far as the terminal says so."""
    return environ.get("COLORFGBG", "").rpartition(";")[2] in {"7", "15"}
