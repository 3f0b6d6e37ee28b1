"""What slots cannot serve: one row after the other, through the model's own `generate`.

Encoder-decoder, state-space, ALiBi and their like. `generate` runs the model and keeps its cache;
it decides nothing. Tokens are drawn by the same sampler as everywhere, as the last of its logits
processors, and the row says when it has ended. So settings, seeds, probabilities and the user's own
hooks mean the same as with slots, and no generator of torch's is touched.
"""

from __future__ import annotations

import copy
import inspect
import threading
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

import torch
from transformers import GenerationConfig

from bourn.engines.hf.batcher import Drawer
from bourn.engines.hf.sequence import Sequence
from bourn.errors import EngineError, Interrupted
from bourn.text.detokenize import ByteDetokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

_REST = 5.0
"""Seconds without work after which the thread ends; the next row starts another."""

_STRUCTURE = (
    *("decoder_start_token_id", "bos_token_id", "pad_token_id", "forced_bos_token_id"),
    *("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "use_cache"),
)
"""What a model needs of its own settings to speak at all: how it begins, what it may never say.

All others (lengths, ends, sampling, beams) are the request's, or nobody's.
"""


class Generating:
    """A `Backend` that serves one row at a time, first come, first served.

    told: called when a row has been told something.
    """

    def __init__(
        self, model: PreTrainedModel, sampler: Drawer, *, told: Callable[[], object] = bool
    ) -> None:
        self._told = told
        self._model = _without_settings(model)
        self._sampler = sampler
        self._waiting: deque[Sequence] = deque()
        self._closing = False
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, *sequences: Sequence) -> None:
        """Serve these when those before them have ended.

        Raises:
            EngineError: it was closed.
        """
        with self._news:
            if self._closing:
                raise _closed()
            self._waiting += sequences
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="bourn-generate", daemon=True
                )
                self._thread.start()
            self._news.notify()

    def wake(self) -> None:
        """Let go of those that were cancelled while they waited."""
        with self._news:
            self._waiting = deque(row for row in self._waiting if not row.cancelled)

    def close(self) -> None:
        """End at the next token of the row that runs. Idempotent."""
        with self._news:
            self._closing = True
            self._news.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._drop_all()

    def _work(self) -> None:
        try:
            while self._serve_next():
                pass
        except BaseException:  # the thread ends by it: nobody shall wait for that
            self._drop_all()
            raise

    def _serve_next(self) -> bool:
        """Whether to go on. Nothing of a row outlives this."""
        with self._news:
            if not self._news.wait_for(self._has_work, _REST) or self._closing:
                self._thread = None
                return False
            sequence = self._waiting.popleft()
        if not sequence.cancelled:
            self._serve(sequence)
        return True

    def _has_work(self) -> bool:
        return self._closing or bool(self._waiting)

    def _drop_all(self) -> None:
        with self._news:
            self._thread = None
            left, self._waiting = self._waiting, deque()
        for sequence in left:
            sequence.fail(_closed())
        self._told()

    def _serve(self, sequence: Sequence) -> None:
        error: Exception = EngineError("the engine's thread was ended")
        try:
            self._generate(sequence)
            error = _closed() if self._closing else Interrupted("generate ended before its answer")
        except Exception as raised:  # noqa: BLE001 (whatever it is, it belongs to the reader)
            error = raised
            _let_go(error)
        finally:
            if not sequence.ended:
                sequence.fail(error)
            self._told()

    def _generate(self, sequence: Sequence) -> None:
        ids = torch.tensor([sequence.ids], device=self._model.device)
        inputs = {"input_ids": ids}
        if "attention_mask" in inspect.signature(self._model.forward).parameters:
            inputs["attention_mask"] = torch.ones_like(ids)
        run = _Run(sequence, self._sampler, lambda: self._closing, self._told)
        self._model.generate(
            **inputs,
            # it bounds the cache: where the row ends, the row itself says
            generation_config=GenerationConfig(
                max_length=len(sequence.ids) + sequence.wishes.max_new_tokens
            ),
            logits_processor=[run.draw],
            stopping_criteria=[run.over],
        )


class _Run:
    """One row's way through `generate`, which calls `draw` for each token, and then `over`."""

    def __init__(
        self,
        sequence: Sequence,
        sampler: Drawer,
        closing: Callable[[], bool],
        told: Callable[[], object],
    ) -> None:
        self._sequence = sequence
        self._told = told
        self._sampler = sampler
        self._closing = closing
        self._seen: Sequence | None = None

    def draw(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores that leave one token to be chosen."""
        if self._done():
            return scores
        seen = self._seen = self._seen or self._as_seen(input_ids)
        (drawn,) = self._sampler.draw([seen], scores)
        if isinstance(drawn, Exception):
            raise drawn
        if seen is not self._sequence:
            seen.ids.append(drawn.token)
        self._sequence.record(drawn)
        self._told()
        chosen = torch.full_like(scores, -torch.inf)
        chosen[:, drawn.token] = 0
        return chosen

    def over(self, input_ids: Tensor, scores: Tensor | None) -> Tensor:  # noqa: ARG002 (the face of a criterion)
        return torch.full((len(input_ids),), self._done(), device=input_ids.device)

    def _done(self) -> bool:
        return self._sequence.ended or self._sequence.cancelled or self._closing()

    def _as_seen(self, input_ids: Tensor) -> Sequence:
        """The row as what draws must see it: with the ids that `generate` goes on from.

        Where an encoder has read the prompt they are the decoder's own, which begin anew.
        """
        begun = tuple(input_ids[0].tolist())
        if begun == self._sequence.wishes.prompt:
            return self._sequence
        wishes = replace(self._sequence.wishes, prompt=begun)
        return Sequence(wishes, ByteDetokenizer(lambda _: b""), lambda _: None)


def _without_settings(model: PreTrainedModel) -> PreTrainedModel:
    """The same model, with the same weights, and none of its own settings but for `_STRUCTURE`."""
    model = getattr(model, "_orig_mod", model)  # a compiled one hands on what is set on its copy
    bare = copy.copy(model)
    kept = {name: getattr(model.generation_config, name, None) for name in _STRUCTURE}
    bare.generation_config = GenerationConfig(**kept)
    return bare


def _closed() -> EngineError:
    return EngineError("the engine was closed", hint="load the model anew")


def _let_go(error: BaseException | None) -> None:
    """Whoever keeps an error shall not keep the tensors of the calls that it came through."""
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            _clear(frame)
        error = error.__cause__ or error.__context__


def _clear(frame: FrameType | None) -> None:
    while frame is not None:
        with suppress(RuntimeError):  # it still runs
            frame.clear()
        frame = frame.f_back  # where an error was caught and raised anew, not all are in its trace
