"""What transformers would tell the terminal while it loads: its bars become progress of ours."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any

from bourn.engines import OnProgress

VERBOSITY = "TRANSFORMERS_VERBOSITY"
"""The variable with which somebody asks transformers to speak."""


@contextmanager
def quietly(on_progress: OnProgress | None = None) -> Iterator[None]:
    """Nothing that transformers says in this thread is shown, but errors, and what was asked for.

    Other threads keep their bars and warnings: they may be the user's own.
    """
    from transformers.utils import logging as theirs

    here = threading.get_ident()

    def bar(make: Callable[..., Any], args: Any, kwargs: Any) -> Any:  # as tqdm's
        if threading.get_ident() != here:
            return before(make, args, kwargs) if before else make(*args, **kwargs)
        counted = [_counted(items, on_progress) for items in args[:1]]
        return theirs.EmptyTqdm(*counted, **kwargs)

    asked = bool(os.environ.get(VERBOSITY)) or theirs.get_verbosity() < logging.WARNING
    filtered = _Errors(None if asked else here)
    handlers = list(logging.getLogger("transformers").handlers)
    before = theirs.set_tqdm_hook(bar)
    for handler in handlers:
        handler.addFilter(filtered)
    try:
        yield
    finally:
        theirs.set_tqdm_hook(before)
        for handler in handlers:
            handler.removeFilter(filtered)


def _counted(items: Iterable[object], on_progress: OnProgress | None) -> Iterable[object]:
    if on_progress is None or not isinstance(items, Sized) or not len(items):
        return items
    return _telling(items, len(items), on_progress)


def _telling(items: Iterable[object], total: int, on_progress: OnProgress) -> Iterator[object]:
    for done, item in enumerate(items):
        on_progress(done, total)
        yield item
    on_progress(total, total)


class _Errors(logging.Filter):
    """Of one thread lets errors pass only."""

    def __init__(self, thread: int | None) -> None:
        super().__init__()
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread or record.levelno >= logging.ERROR
