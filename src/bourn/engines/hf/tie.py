"""What ties one `generate`, run by somebody else, to one reader: each learns how the other ended.

transformers neither tells a streamer of a failure, nor lets it end a generation in peace. So, once
this is imported, `generate` is watched in the whole process: given a streamer that is `Tied`, it
hands over what it raises, and obeys one stopping criterion more; given none it does as ever. So are
threads that end by an error, for what happens on the way to `generate`. Knows nothing of text.
"""

from __future__ import annotations

import inspect
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationMixin, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from bourn.errors import Interrupted, StreamConsumed

if TYPE_CHECKING:
    from torch import Tensor


class Tie:
    """It ends once: by the end of `generate`, by its failure, or by the reader, who leaves.

    on_end: called then, in the thread that ends it.
    """

    def __init__(self, on_end: Callable[[], object]) -> None:
        self.cancelled = False
        self._on_end = on_end
        self._once = threading.Lock()  # taken for good
        self._error: Exception | None = None
        self._error_id: int | None = None  # once it was taken, it is not to be kept alive
        self._server: threading.Thread | None = None
        self._serving = False
        self._report: Callable[[], object] = bool

    @property
    def over(self) -> bool:
        return self._once.locked()

    @property
    def served(self) -> bool:
        """Whether a `generate` that is watched was given the streamer."""
        return self._server is not None

    def end(self, error: BaseException | None = None, *, cancelled: bool = False) -> bool:
        """Only the first end counts. Whether this was it."""
        if not self._once.acquire(blocking=False):
            return False
        if error is None or isinstance(error, Exception):
            self._error = error
        else:  # SystemExit, say: it is not the reader's thread that should end by it
            self._error = Interrupted(f"generate was ended by {type(error).__name__}")
        self._error_id = None if error is None else id(error)
        self.cancelled = cancelled
        self._on_end()
        return True

    def check(self) -> None:
        """Raise what `generate` raised, once."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame

    @contextmanager
    def serve(self) -> Generator[None, None, None]:
        """Around `generate`: whatever becomes of it, the reader is told.

        Raises:
            StreamConsumed: there was one before.
        """
        if self._server is not None:
            raise StreamConsumed("this streamer has served already", hint="make one for each call")
        self._server, self._serving = threading.current_thread(), True
        try:
            yield
        except BaseException as error:
            self.end(error)
            raise
        finally:
            self._serving = False
            self.end()

    @property
    def within(self) -> bool:
        """Whether it is being served by this thread, as when one `generate` calls another."""
        return self._serving and self._server is threading.current_thread()

    def criterion(self, input_ids: Tensor, _scores: object, **_: object) -> Tensor:
        return torch.full((len(input_ids),), self.over, device=input_ids.device)

    def adopt(self, error: BaseException, report: Callable[[], object]) -> bool:
        """This thread, which knew the streamer, has ended by `error`. Whether the reader is told.

        report: what else is done about errors of threads; for when nobody reads any more.
        """
        here = threading.current_thread()
        if self._server is None and self.end(error):  # it was to be served by this thread
            self._server = here
        adopted = self._server is here and self._error_id == id(error)
        if adopted:
            self._report = report
        return adopted

    def __del__(self) -> None:
        if self._error is not None:
            self._report()


class Tied(BaseStreamer):  # type: ignore[misc]  # transformers has no types
    """A streamer with a tie."""

    tie: Tie


def _watched(generate: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(generate)

    @wraps(generate)
    def watched(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        tie = next((one.tie for one in given if isinstance(one, Tied)), None)
        if tie is None or tie.within:
            return generate(*args, **kwargs)
        with tie.serve():
            call = signature.bind(*args, **kwargs)
            criteria = [*(call.arguments.get("stopping_criteria") or ()), tie.criterion]
            call.arguments["stopping_criteria"] = StoppingCriteriaList(criteria)
            return generate(*call.args, **call.kwargs)

    return watched


def _on_death(
    otherwise: Callable[[threading.ExceptHookArgs], object], args: threading.ExceptHookArgs
) -> None:
    """A thread has ended by an error: perhaps one that had a streamer to serve."""
    error, report = args.exc_value, partial(otherwise, args)
    adopted = [tie.adopt(error, report) for tie in _ties(args.exc_traceback) if error is not None]
    if not any(adopted):
        report()


def _ties(trace: TracebackType | None) -> Iterator[Tie]:
    """Of all streamers that are in a variable."""
    for frame, _ in traceback.walk_tb(trace):
        for value in frame.f_locals.values():
            if issubclass(type(value), Tied):  # asking the value itself may run its code
                yield value.tie


# By importing: a `model.generate` that was taken before the first streamer is made is watched too.
GenerationMixin.generate = _watched(GenerationMixin.generate)
threading.excepthook = partial(_on_death, threading.excepthook)
