from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bourn.engines.hf.forward.layout import Chunk, Group, Part, Read, arrange

CALL = 100


def parts(*rows: tuple[int, int, int]) -> list[Part]:
    """Slot, where it starts, how many tokens."""
    return [Part(slot, start, range(count)) for slot, start, count in rows]


def decoding(*lengths: int) -> list[Part]:
    return parts(*((slot, length - 1, 1) for slot, length in enumerate(lengths)))


def slots(reads: tuple[Read, ...]) -> list[tuple[int, int]]:
    return [(read.slot, read.span) for read in reads]


def cost(reads: tuple[Read, ...]) -> int:
    return sum(CALL + read.span * read.positions for read in reads)


def test_rows_of_like_lengths_are_attended_in_one_call() -> None:
    (read,) = arrange(decoding(50, 60, 40, 55), CALL)
    assert isinstance(read, Group)
    assert (read.slot, read.span, read.lengths) == (0, 4, (50, 60, 40, 55))
    assert read.positions == 60


def test_a_long_row_among_short_ones_is_attended_by_itself() -> None:
    assert slots(arrange(decoding(50, 60, 6000, 55, 40), CALL)) == [(0, 2), (2, 1), (3, 2)]


def test_idle_slots_between_are_gone_over_while_they_are_cheap() -> None:
    near = arrange(parts((0, 9, 1), (3, 9, 1)), CALL)
    assert slots(near) == [(0, 4)]
    assert isinstance(near[0], Group)
    assert near[0].offsets == (0, 3)
    assert slots(arrange(parts((0, 999, 1), (3, 999, 1)), CALL)) == [(0, 1), (3, 1)]


def test_members_keep_their_numbers_while_tokens_lie_by_slot() -> None:
    reads = arrange(parts((5, 3, 1), (2, 0, 7), (1, 3, 1)), CALL)
    assert [read.members for read in reads] == [(2, 0), (1,)]
    assert [read.tokens for read in reads] == [2, 7]
    assert isinstance(reads[1], Chunk)
    assert reads[1].positions == 7


def test_below_zero_each_row_is_by_itself() -> None:
    assert slots(arrange(decoding(5, 5, 5), -1)) == [(0, 1), (1, 1), (2, 1)]


rows = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 500), st.integers(1, 3)),
    unique_by=lambda row: row[0],
    max_size=12,
)


@given(rows)
def test_every_part_is_read_once_and_joining_never_costs_more(
    drawn: list[tuple[int, int, int]],
) -> None:
    given_parts = parts(*drawn)
    reads = arrange(given_parts, CALL)
    assert sorted(index for read in reads for index in read.members) == [*range(len(drawn))]
    assert cost(reads) <= cost(arrange(given_parts, -1))
    for read in reads:
        for index in read.members:
            part = given_parts[index]
            assert read.slot <= part.slot < read.slot + read.span
            assert part.end <= read.positions
