"""Whose attention a model has: bourn's while it is lent, its own before and after.

All that is changed of a user's model is the name of its attention, in its configs, and that is put
back. It knows names only, not what they do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Config = Any
"""A transformers config; no base class is common to all that models bring along."""

NAME, COMPILED = "bourn", "bourn_compiled"
"""Two names for the same, which a compiler is to see differently."""


@dataclass(slots=True)
class _Loan:
    """The config is held, so that nothing else can get its id."""

    config: Config
    name: str | None
    times: int = 1


_loans: dict[int, _Loan] = {}
_lock = threading.Lock()


def before(config: Config) -> str:
    """What a config named before. A copy of a lent one, which nobody knows: "eager"."""
    loan = _loans.get(id(config))
    return (loan and loan.name) or "eager"


class Lent:
    """A model's attention under bourn's name, until `close`. The same model may be lent twice."""

    def __init__(self, model: Any, name: str = NAME) -> None:
        self._configs = list(_configs(model))
        with _lock:
            for config in self._configs:
                _take(config)
            for config in self._configs:
                config._attn_implementation = name  # no public name sets just this

    def close(self) -> None:
        """Give it back. Idempotent."""
        configs, self._configs = self._configs, []
        with _lock:
            for config in configs:
                _give_back(config)


def names(model: Any) -> frozenset[str | None]:
    """What the model's configs name now, those lent as they were before."""
    given = ((config, config._attn_implementation) for config in _configs(model))
    ours = (NAME, COMPILED)
    return frozenset(before(config) if name in ours else name for config, name in given)


def _take(config: Config) -> None:
    loan = _loans.get(id(config))
    if loan is None:
        _loans[id(config)] = _Loan(config, config._attn_implementation)
    else:
        loan.times += 1


def _give_back(config: Config) -> None:
    loan = _loans[id(config)]
    loan.times -= 1
    if not loan.times:
        config._attn_implementation = loan.name
        del _loans[id(config)]


def _configs(model: Any) -> Iterator[Config]:
    """Each config of a model and its parts, once. Outer ones first, since they set inner ones."""
    seen: set[int] = set()
    waiting = [module.config for module in model.modules() if hasattr(module, "config")]
    while waiting:
        config = waiting.pop(0)
        if id(config) in seen or not hasattr(config, "_attn_implementation"):
            continue
        seen.add(id(config))
        yield config
        waiting += [getattr(config, name, None) for name in getattr(config, "sub_configs", ())]
