"""Strategies for hypothesis: any value of bourn's types, as far as it may be written down."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from typing import Any, TypeVar, get_args, get_type_hints

from hypothesis import strategies as st

from bourn import errors
from bourn.errors import BournError, PromptTooLong, UnsupportedField
from bourn.types import (
    Channel,
    Delta,
    Done,
    Event,
    Finished,
    FinishReason,
    Metrics,
    Progress,
    Queued,
    Sampling,
    Started,
    State,
    TokenLogprob,
    ToolDelta,
    Usage,
)

T = TypeVar("T")

texts = st.text(st.characters(), max_size=8)  # half surrogate pairs too
counts = st.integers(0, 2**40)
numbers = st.floats(allow_nan=False)


def whole(kind: type[T], **parts: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Values of a type, all of whose fields vary; those not told of as their types allow."""
    hints = get_type_hints(kind, vars(sys.modules[kind.__module__]), {})
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return st.builds(kind, **{n: st.from_type(hints[n]) for n in names - parts.keys()}, **parts)


def rows(each: st.SearchStrategy[T], size: int = 3) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(each, max_size=size).map(tuple)


samplings = whole(
    Sampling,
    temperature=st.none() | st.floats(0, 100),
    top_p=st.none() | st.floats(0, 1),
    top_k=st.none() | st.integers(0, 1000),
    min_p=st.none() | st.floats(0, 1),
    repetition_penalty=st.none() | st.floats(0.01, 100),
    presence_penalty=st.none() | st.floats(-2, 2),
    frequency_penalty=st.none() | st.floats(-2, 2),
    seed=st.none() | st.integers(0, 2**32 - 2),
)


def entries(top: st.SearchStrategy[Any]) -> st.SearchStrategy[TokenLogprob]:
    return whole(TokenLogprob, token=texts, logprob=numbers, bytes=st.binary(max_size=6), top=top)


logprobs = rows(entries(rows(entries(st.just(())))))
usages = whole(
    Usage,
    prompt_tokens=counts,
    completion_tokens=counts,
    cached_tokens=counts,
    estimated=st.booleans(),
)
tool_deltas = whole(
    ToolDelta, index=counts, id=st.none() | texts, name=st.none() | texts, arguments=texts
)

# -- errors ----------------------------------------------------------------------------------------

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, BournError)
]


@st.composite
def failures(draw: st.DrawFn) -> BournError:
    kind = draw(st.sampled_from(KINDS))
    more: dict[str, Any] = {"hint": draw(texts)}
    if issubclass(kind, UnsupportedField):
        return kind(draw(texts), draw(texts), **more)
    if issubclass(kind, PromptTooLong):
        more |= {name: draw(st.none() | counts) for name in ("prompt_tokens", "window")}
    elif issubclass(kind, errors.Overloaded):
        more["retry_after"] = draw(st.none() | st.floats(0, 1e9))
    elif issubclass(kind, errors.EngineCrashed):
        more["last_words"] = draw(rows(texts))
    return kind(draw(texts), **more)


# -- events ----------------------------------------------------------------------------------------

seconds = st.floats(0, 1e9)
metrics = whole(
    Metrics,
    queue_time=seconds,
    total=seconds,
    tokens=counts,
    prompt_tokens=counts,
    cached_tokens=counts,
    **{
        name: st.none() | seconds
        for name in ("ttft", "first_text", "tokens_per_second", "itl_p50", "itl_p99")
    },
)
dones: st.SearchStrategy[Done] = whole(
    Done,
    state=st.sampled_from(get_args(State)),
    usage=usages,
    metrics=metrics,
    error=st.none() | failures(),
)
going: st.SearchStrategy[Event] = (
    st.builds(Delta, texts, tokens=st.integers(0, 3))
    | whole(
        Delta,
        text=texts,
        channel=st.sampled_from(Channel),
        choice=st.integers(0, 9),
        tokens=counts,
        logprobs=logprobs,
        tool=st.none() | tool_deltas,
    )
    | st.builds(Queued, counts)
    | st.builds(Started, samplings)
    | st.builds(Progress, counts, counts)
    | st.builds(Finished, st.sampled_from(FinishReason), st.integers(0, 9), st.none() | texts)
)
"""All events but the last of a journal."""


def told(event: Event) -> object:
    """What two events have in common that say the same: errors are equal only to themselves."""
    if isinstance(event, Done) and event.error is not None:
        return replace(event, error=None), type(event.error), vars(event.error)
    return event
