"""Rows that join, are read in pieces, share beginnings and leave, all at random.

What the model said of each row is kept, to be held against what it says of that row alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor

from bourn.engines.hf.forward.runner import Runner
from bourn.engines.hf.sequence import Drawn, Sequence
from bourn.engines.hf.step import Copy, Step, Stretch
from tests.support.paper_model import row

LONGEST = 40
"""Tokens of a row, prompt and answer together."""


@dataclass(eq=False)
class Said:
    """A row, and the logits it was given after each of so many tokens."""

    sequence: Sequence
    logits: dict[int, Tensor] = field(default_factory=dict)


@dataclass
class Wandering:
    """A walk over a runner's slots. Every token is the likeliest one."""

    runner: Runner
    random: Random
    vocabulary: int
    slots: int
    rows: list[Said] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._live: dict[int, Said] = {}
        self._left: dict[int, list[int]] = {slot: [] for slot in range(self.slots)}

    def step(self) -> None:
        """Some join and some leave; of the others some go on."""
        copies = [*self._join()]
        stretches = [self._stretch(slot) for slot in self._live if self.random.random() < 0.8]
        self.random.shuffle(stretches)
        drawing = [stretch for stretch in stretches if stretch.draws]
        logits = self.runner.run(Step(tuple(copies), tuple(stretches)))
        for stretch in stretches:
            stretch.sequence.read += stretch.count
        for stretch, drawn in zip(drawing, logits, strict=True):
            self._live[stretch.slot].logits[stretch.sequence.read] = drawn.float()
            stretch.sequence.record(Drawn(int(drawn.argmax())))
        for slot, said in list(self._live.items()):
            if said.sequence.ended or self.random.random() < 0.05:
                self._left[slot] = said.sequence.ids[: said.sequence.read]
                del self._live[slot]

    def _join(self) -> list[Copy]:
        copies = []
        for slot in set(self._left) - set(self._live):
            if self.random.random() < 0.4:
                copies += self._begin(slot)
        return copies

    def _begin(self, slot: int) -> list[Copy]:
        """Half of the rows begin as another has, whose keys and values are taken."""
        source = self.random.randrange(self.slots)
        held = self._held(source) if self.random.random() < 0.5 else []
        reused = self.random.randint(0, min(len(held), LONGEST // 2))
        new = self.random.choices(range(3, self.vocabulary), k=self.random.randint(1, 18))
        sequence, _ = row(held[:reused] + new, limit=self.random.randint(1, 12), ends=False)
        assert len(sequence.ids) + sequence.wishes.max_new_tokens <= LONGEST + 10
        sequence.read = reused
        self._live[slot] = Said(sequence)
        self.rows.append(self._live[slot])
        return [Copy(source, slot, reused)] if reused and source != slot else []

    def _held(self, slot: int) -> list[int]:
        said = self._live.get(slot)
        return self._left[slot] if said is None else said.sequence.ids[: said.sequence.read]

    def _stretch(self, slot: int) -> Stretch:
        sequence = self._live[slot].sequence
        count = self.random.randint(1, sequence.unread)
        return Stretch(sequence, slot, sequence.read, count, count == sequence.unread)


def furthest(model: Any, rows: list[Said]) -> float:
    """How far what was said is, at most, from what the model says of each row alone."""
    return max((_off(model, said) for said in rows if said.logits), default=0.0)


@torch.inference_mode()
def _off(model: Any, said: Said) -> float:
    alone = model(input_ids=torch.tensor([said.sequence.ids]), use_cache=False).logits[0].float()
    return max(float((alone[read - 1] - here).abs().max()) for read, here in said.logits.items())
