"""One step of many rows through the model: ids in, logits out.

It knows the model and its slots. Which rows, how far and in which slot is the scheduler's; what is
drawn from the logits, the sampler's.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from bourn.engines.hf.forward.attention import Passing, passing
from bourn.engines.hf.forward.compiling import Compiled
from bourn.engines.hf.forward.layout import Part, Read, arrange
from bourn.engines.hf.forward.lending import COMPILED, NAME, Lent
from bourn.engines.hf.forward.slots import Slots, Unservable
from bourn.engines.hf.step import Copy, Step
from bourn.errors import LoadFailed

CALL = {"cpu": 200_000}
"""Bytes of keys and values that are read in the time that one attention call costs by itself."""
CALL_ELSEWHERE = 40_000_000

OFF = 0.1
"""How far a compiled model's logits may be off, in the mean, of their standard deviation."""
LEAVE = "leave --compile out"


class Runner:
    """A model over `slots` rows of at most `window` tokens. Used by one thread at a time.

    The model must be in evaluation mode. Its attention is lent until `close`; who calls it
    meanwhile, in whatever thread, gets what it gave before.

    compiled: the passes in which each row adds one token. It takes a minute or more to begin with,
        less where it was done before; the model must be bourn's own, and never change.

    Raises:
        Unservable: the model is none for slots (`support.slots_refusal` tells before).
        LoadFailed: it cannot be compiled.
    """

    def __init__(self, model: Any, *, slots: int, window: int, compiled: bool = False) -> None:
        self._model = model
        self._device = entrance(model)
        self._takes = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in self._takes else "past_key_values"
        text = model.config.get_text_config(decoder=True)
        self._layers, self._vocabulary = text.num_hidden_layers, text.vocab_size
        self._slots = Slots(slots, window, gathered=unfolds(model.config))
        self._call = -1
        self._compiled: Compiled | None = None
        self._lent = Lent(model, COMPILED if compiled else NAME)
        try:
            self._try()
            if compiled:
                self._compile(slots)
        except BaseException:  # an interrupt too must give the model back as it was
            self.close()
            raise

    @property
    def bytes_per_token(self) -> int:
        """What one position of one slot takes, over all layers."""
        return self._slots.bytes_per_token

    def run(self, step: Step) -> Tensor:
        """The logits after each stretch that draws, in their order: [such stretches, vocabulary].

        Raises:
            Unservable: the model asks of the slots what they cannot do.
            EngineError: a row does not fit its slot.
        """
        parts = [Part(one.slot, one.start, one.ids) for one in step.stretches]
        draws = [index for index, one in enumerate(step.stretches) if one.draws]
        return self.read(parts, draws, step.copies)

    def read(
        self, parts: Sequence[Part], draws: Sequence[int], copies: Iterable[Copy] = ()
    ) -> Tensor:
        """One pass, after the copies. draws: of which parts the last logits are wanted."""
        reads = arrange(parts, self._call)
        order = [index for read in reads for index in read.members]
        flat = [parts[index] for index in order]
        ends = dict(zip(order, _ends(flat), strict=True))
        with torch.inference_mode():
            self._slots.begin(copies, flat)
            logits = self._forward(flat, reads, [ends[index] for index in draws])
        return logits.clone()  # one that anybody may write to

    def close(self) -> None:
        """Give the model back as it was, and the memory. Idempotent."""
        self._lent.close()
        self._slots = Slots(0, 0)

    def _forward(self, parts: Sequence[Part], reads: Sequence[Read], wanted: list[int]) -> Tensor:
        """wanted: the tokens of the flat row whose logits are returned."""
        ids = [token for part in parts for token in part.ids]
        if not ids:
            return torch.empty(0, self._vocabulary)
        places = [position for part in parts for position in range(part.start, part.end)]
        compiled = self._compiled if len(ids) == len(parts) else None
        now = Passing(self._slots, reads, fresh=compiled is not None)
        with passing(now):
            if compiled is not None:
                logits = compiled.read(ids, places)[wanted]
            else:
                logits = self._forward_all(ids, places, wanted)
        if now.calls != self._layers:
            raise Unservable(f"it calls attention {now.calls} times for {self._layers} layers")
        return logits

    def _forward_all(self, ids: list[int], places: list[int], wanted: list[int]) -> Tensor:
        keep = torch.tensor(wanted or [len(ids) - 1], device=self._device)
        given = {
            "input_ids": torch.tensor([ids], device=self._device),
            "position_ids": torch.tensor([places], device=self._device),
            "use_cache": True,
            self._cache_name: self._slots,
        }
        if "logits_to_keep" in self._takes:
            given["logits_to_keep"] = keep
        logits: Tensor = self._model(**given).logits[0]
        if "logits_to_keep" not in self._takes:
            logits = logits[keep.to(logits.device)]
        return logits[: len(wanted)]

    def _try(self) -> None:
        """One token, so that the layers are there, and what a position takes is known."""
        self.read([Part(0, 0, (0,))], [0])
        if not self._slots.gathered:
            cost = CALL.get(self._device.type, CALL_ELSEWHERE)
            self._call = cost * self._layers // max(1, self.bytes_per_token)

    def _compile(self, slots: int) -> None:
        if self._slots.gathered:
            raise LoadFailed("a model that keeps keys compressed cannot be compiled", hint=LEAVE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler's, of its own parts
            compiled = Compiled(
                self._model, slots=slots, cache_name=self._cache_name, device=self._device
            )
            for size in compiled.sizes:
                self._prove(compiled, size)

    def _prove(self, compiled: Compiled, size: int) -> None:
        """Compile for passes of so many tokens, and see whether they say the same."""
        *prompt, last = ordinary(self._model.config, 1 + min(16, self._slots.window - 1))
        going_on = [Part(slot, len(prompt), (last,)) for slot in range(size)]
        self._compiled = None
        self.read([Part(slot, 0, prompt) for slot in range(size)], [])
        right = self.read(going_on, range(size)).float()
        self._compiled = compiled
        try:
            off = self.read(going_on, range(size)).float() - right
        except Exception as error:  # the compiler's, of many kinds
            why = " ".join(str(error).split("\n")[:2])
            raise LoadFailed(f"the model cannot be compiled: {why}", hint=LEAVE) from error
        if not off.square().mean().sqrt() <= OFF * right.std():
            raise LoadFailed("the compiled model says something else", hint=LEAVE)


def entrance(model: Any) -> torch.device:
    """Where a model takes its ids: weights may be elsewhere until they are needed (offloading)."""
    embeddings = model.get_input_embeddings()
    hook = getattr(embeddings, "_hf_hook", None)
    device = getattr(hook, "execution_device", None)
    return embeddings.weight.device if device is None else torch.device(device)


def ordinary(config: Any, count: int) -> list[int]:
    """Some tokens for a trial: none that marks anything, and far from one another."""
    text = config.get_text_config(decoder=True)
    special = {
        value
        for one in (config, text)
        for name, value in vars(one).items()
        if name.endswith(("token_id", "token_index"))
    }
    ordinary = [token for token in range(min(text.vocab_size, 10_000)) if token not in special]
    return [ordinary[(step * 2_617) % len(ordinary)] for step in range(1, count + 1)]


def unfolds(config: Any) -> bool:
    """Whether a model keeps keys and values compressed, and unfolds them at each pass (MLA)."""
    return getattr(config.get_text_config(decoder=True), "kv_lora_rank", None) is not None


def _ends(parts: Iterable[Part]) -> Iterable[int]:
    """Where in the flat row each ends: its last token."""
    end = -1
    for part in parts:
        end += len(part.ids)
        yield end
