"""What stands in the fields of the settings."""

from __future__ import annotations

import pytest

from bourn.errors import InvalidRequest
from bourn.web.knobs import KNOBS, read, written
from bourn.web.wishes import Wishes

EMPTY = ("m", "", "", "", "", "", "", False)


def test_nothing_said_is_nothing_wished() -> None:
    assert read(*EMPTY) == Wishes(model="m")
    assert read(*[None] * KNOBS) == Wishes()


@pytest.mark.parametrize(
    "wishes",
    [
        Wishes(),
        Wishes("m", "Be brief.", 0.5, 0.9, 100, 7, ("END", "  two "), keep_going=True),
        Wishes(temperature=0.0, seed=0),
    ],
)
def test_what_is_written_is_read_again(wishes: Wishes) -> None:
    assert len(written(wishes)) == KNOBS
    assert read(*written(wishes)) == wishes


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        (2, "hot", "the temperature is `hot`"),
        (2, "nan", "temperature"),
        (2, "-1", "temperature"),
        (3, "1.5", "top_p"),
        (4, "0", "max_new_tokens"),
        (4, "1.5", "the most new tokens is `1.5`"),
        (5, "-1", "seed"),
        (5, "x" * 100, "the seed is `" + "x" * 40 + "`"),
    ],
)
def test_what_cannot_be_wished_is_told(field: int, value: str, told: str) -> None:
    fields: list[str | bool | None] = [*EMPTY]
    fields[field] = value
    with pytest.raises(InvalidRequest, match=told):
        read(*fields)
