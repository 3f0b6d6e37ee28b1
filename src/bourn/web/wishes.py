"""How a visitor wants answers: what the panel beside a conversation says. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from bourn.types import Message, Request, Sampling


@dataclass(frozen=True, slots=True)
class Wishes:
    """None, and no stop strings, is "not said".

    model: by its name in the fleet; None is the first. system: the system message. stop: texts
    that end the answer. keep_going: an answer goes on when nobody looks at it any more.

    Raises:
        InvalidRequest: a number is out of its bounds.
    """

    model: str | None = None
    system: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    keep_going: bool = False

    def __post_init__(self) -> None:
        self.request((Message("user", "?"),), self.max_new_tokens)  # refuses what cannot be asked

    @property
    def sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, top_p=self.top_p, seed=self.seed)

    def request(self, messages: Sequence[Message], max_new_tokens: int | None) -> Request:
        """These messages, asked as wished. max_new_tokens: what there is room for."""
        return Request(
            tuple(messages),
            sampling=self.sampling,
            max_new_tokens=max_new_tokens,
            stop=self.stop,
        )

    def to_json(self) -> dict[str, object]:
        """What was said, as plain JSON, to be kept with a conversation."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in told.items()
            if value not in (None, ()) and value is not False
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """What `to_json` gave. What is unknown, or wrong, was not said."""
        said: dict[str, Any] = {
            name: told[name] for name, kinds in _KINDS.items() if type(told.get(name)) in kinds
        }
        if not all(isinstance(each, str) and each for each in said.get("stop", ())):
            del said["stop"]
        said["stop"] = tuple(said.get("stop", ()))
        try:
            return cls(**said)
        except ValueError:
            known = ("model", "system", "keep_going")
            return cls(**{name: said[name] for name in known if name in said})


_KINDS: Mapping[str, tuple[type, ...]] = {
    "model": (str,),
    "system": (str,),
    "temperature": (int, float),
    "top_p": (int, float),
    "max_new_tokens": (int,),
    "seed": (int,),
    "stop": (list, tuple),
    "keep_going": (bool,),
}
