"""Events as JSON and back, without loss: what a journal writes down.

Not what people and clients are shown (`bourn.wire.events`). Reading makes values of the types named
here and runs nothing. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, get_args

from bourn.error_values import error_object, error_of
from bourn.types import (
    Delta,
    Done,
    Event,
    Finished,
    Metrics,
    Progress,
    Queued,
    Started,
    State,
    Usage,
)
from bourn.values import codec

# ASCII keeps half a surrogate pair as it is, which no file could hold
_dump = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_load = json.JSONDecoder().decode

# -- text of the answer: most of what there is -----------------------------------------------------

_delta = codec(Delta)
_rest = attrgetter(*(f.name for f in fields(Delta) if f.name not in {"text", "tokens"}))
_NOTHING = _rest(Delta(""))


def _write_delta(delta: Delta) -> Any:
    """Text and tokens alone, where there is no more to it."""
    if _rest(delta) == _NOTHING:
        return [delta.text, delta.tokens]
    return ["Delta", _delta.write(delta)]


# -- ends ------------------------------------------------------------------------------------------

_usage = codec(Usage)
_metrics = codec(Metrics)


def _write_done(done: Done) -> dict[str, Any]:
    told: dict[str, Any] = {"state": done.state}
    told["usage"] = _usage.write(done.usage)
    told["metrics"] = _metrics.write(done.metrics)
    return told | ({} if done.error is None else {"error": error_object(done.error)})


def _read_done(told: Mapping[str, Any]) -> Done:
    if told["state"] not in get_args(State):
        raise ValueError(f"the state {told['state']!r:.40}")
    error = error_of(told["error"]) if "error" in told else None
    return Done(told["state"], _usage.read(told["usage"]), _metrics.read(told["metrics"]), error)


# -- all of them -----------------------------------------------------------------------------------

_ALIKE: tuple[type, ...] = (Queued, Started, Progress, Finished)
_WRITERS: dict[type, Callable[[Any], Any]] = {
    **{alike: codec(alike).write for alike in _ALIKE},
    Done: _write_done,
}
_READERS: dict[str, Callable[[Any], Event]] = {
    **{alike.__name__: codec(alike).read for alike in (*_ALIKE, Delta)},
    Done.__name__: _read_done,
}


def encode(event: Event) -> str:
    """An event as JSON, in ASCII.

    An error that is not of bourn's tree comes back as an `EngineError` that names it.

    Raises:
        TypeError, ValueError, LookupError, AttributeError: it holds what its type does not allow.
    """
    if isinstance(event, Delta):
        return _dump(_write_delta(event))
    kind = type(event)
    return _dump([kind.__name__, _WRITERS[kind](event)])


def decode(text: str) -> Event:
    """The event again.

    Raises:
        ValueError: this was never written here.
    """
    try:
        first, second = _load(text)
        if isinstance(second, int):
            return Delta(first, tokens=second)
        return _READERS[first](second)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"no event can be read here: {type(error).__name__}: {error}") from error
