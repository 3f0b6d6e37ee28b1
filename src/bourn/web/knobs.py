"""The settings as they stand in the page's fields, and the wishes that they are. Values only.

Numbers stand in fields for text: an empty one is "not said", for which fields for numbers show 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bourn.errors import InvalidRequest
from bourn.web.wishes import Wishes

Number = TypeVar("Number", int, float)

KNOBS = 8
"""How many fields there are; `read` takes their values, and `written` gives them, in one order:
model, system prompt, temperature, top-p, max new tokens, seed, stop strings, keep going."""

Value = str | bool | None


def read(*told: Value) -> Wishes:
    """The wishes that stand there.

    Raises:
        InvalidRequest: what stands in a field is no number, or no such number can be wished.
    """
    model, system, temperature, top_p, most, seed, ends, keep = told
    return Wishes(
        model=_text(model) or None,
        system=_text(system) or None,
        temperature=_number(float, "the temperature", temperature),
        top_p=_number(float, "top-p", top_p),
        max_new_tokens=_number(int, "the most new tokens", most),
        seed=_number(int, "the seed", seed),
        stop=tuple(line for line in str(ends or "").splitlines() if line),
        keep_going=bool(keep),
    )


def written(wishes: Wishes) -> tuple[Value, ...]:
    """What stands in the fields for them."""
    numbers = (wishes.temperature, wishes.top_p, wishes.max_new_tokens, wishes.seed)
    texts = ("" if number is None else str(number) for number in numbers)
    return (
        wishes.model,
        wishes.system or "",
        *texts,
        "\n".join(wishes.stop),
        wishes.keep_going,
    )


def _text(told: Value) -> str:
    return str(told or "").strip()


def _number(kind: Callable[[str], Number], what: str, told: Value) -> Number | None:
    try:
        return kind(text) if (text := _text(told)) else None
    except ValueError:
        hint = "give a number, or leave it empty"
        raise InvalidRequest(f"{what} is `{told:.40}`", hint=hint) from None
