"""The thread in which rows become answers: decide ▸ do ▸ record, again and again.

Rows come in from any thread between two steps, and leave between two steps. A batcher without work
rests, and its thread ends after a while: it keeps nothing alive that nobody holds any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from bourn.engines.hf.pace import Pace
from bourn.engines.hf.scheduler import Scheduler
from bourn.engines.hf.sequence import Drawn, Sequence
from bourn.engines.hf.step import Step, Stretch
from bourn.errors import EngineError

if TYPE_CHECKING:
    from torch import Tensor


_REST = 5.0
"""Seconds without work after which the thread ends; the next row starts another."""


class Doer(Protocol):
    """`runner.Runner`: the model's pass."""

    def run(self, step: Step) -> Tensor: ...

    def close(self) -> None: ...


class Drawer(Protocol):
    """`sampler.Sampler`: a token for each row."""

    def draw(self, sequences: list[Sequence], logits: Tensor) -> list[Drawn | Exception]: ...


class Batcher:
    """A `Backend` that serves up to `slots` rows in one batch, and lets the others wait.

    told: called when all rows have been told what a step made of them.
    """

    def __init__(
        self, runner: Doer, sampler: Drawer, *, slots: int, told: Callable[[], object] = bool
    ) -> None:
        self._told = told
        self._runner = runner
        self._sampler = sampler
        self._pace = Pace()
        self._scheduler = Scheduler(slots, self._pace)
        self._inbox: list[Sequence] = []
        self._closing = False
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, *sequences: Sequence) -> None:
        """Begin with these.

        Raises:
            EngineError: it was closed.
        """
        with self._news:
            if self._closing:
                raise EngineError("this engine was closed", hint="load the model anew")
            self._inbox += sequences
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="bourn-batch", daemon=True)
                self._thread.start()
            self._news.notify()

    def wake(self) -> None:
        """Rows are looked at before each step, and nobody computes between steps."""

    def close(self) -> None:
        """End after the step that runs. Idempotent."""
        with self._news:
            self._closing = True
            self._news.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._drop_all()
        self._runner.close()

    def _work(self) -> None:
        try:
            while self._take_in():
                self._step()
        except BaseException:  # a fault of our own: nobody shall wait for this thread
            self._drop_all()
            raise

    def _take_in(self) -> bool:
        """The new rows; waits while there is nothing to do. Whether to go on."""
        with self._news:
            if not self._news.wait_for(self._has_work, _REST) or self._closing:
                self._thread = None
                return False
            self._scheduler.add(self._inbox)
            self._inbox = []
            return True

    def _has_work(self) -> bool:
        return self._closing or bool(self._inbox) or self._scheduler.busy

    def _drop_all(self) -> None:
        with self._news:
            self._thread = None
            left = [*self._scheduler.drop_all(), *self._inbox]
            self._inbox = []
        for sequence in left:
            sequence.fail(EngineError("the engine was closed", hint="load the model anew"))
        self._told()

    def _step(self) -> None:
        step = self._scheduler.plan()
        if not step.stretches:
            return
        begun = time.perf_counter()
        for done, logits in self._do(step):
            self._scheduler.read(done)
            self._record(done, logits)
        self._told()
        self._measure(step, time.perf_counter() - begun)

    def _do(self, step: Step) -> Iterator[tuple[tuple[Stretch, ...], Tensor]]:
        """Run it. Where it fails each row is tried alone, so that only those end that must."""
        try:
            yield step.stretches, self._runner.run(step)
        except Exception as error:  # noqa: BLE001 (whatever it is, it belongs to the readers)
            if len(step.stretches) == 1:
                self._fail(step.stretches[0].sequence, error)
                return
            copies = step.copies
            for stretch in step.stretches:
                yield from self._do(Step(copies, (stretch,)))
                copies = ()

    def _record(self, stretches: Iterable[Stretch], logits: Tensor) -> None:
        drawing = []
        for stretch in stretches:
            if stretch.draws:
                drawing.append(stretch.sequence)
            else:
                stretch.sequence.progress()
        for sequence, drawn in zip(drawing, self._draw(drawing, logits), strict=True):
            _settle(sequence, drawn)

    def _draw(self, drawing: list[Sequence], logits: Tensor) -> list[Drawn | Exception]:
        try:
            return self._sampler.draw(drawing, logits) if drawing else []
        except Exception as error:  # noqa: BLE001 (out of memory, say: it belongs to the readers)
            return [error] * len(drawing)

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        self._scheduler.forget(sequence)
        sequence.fail(error)

    def _measure(self, step: Step, seconds: float) -> None:
        prompt_tokens = sum(stretch.count for stretch in step.stretches if stretch.count > 1)
        answering = sum(stretch.count == 1 for stretch in step.stretches)
        self._pace.took(seconds, answering, prompt_tokens)


def _settle(sequence: Sequence, drawn: Drawn | Exception) -> None:
    if isinstance(drawn, Exception):
        sequence.fail(drawn)
        return
    try:
        sequence.record(drawn)
    except Exception as error:  # noqa: BLE001 (one row's fault must not end the others)
        sequence.fail(error)
