"""Whoever joins, leaves and shares what: each row says what it would say alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bourn.engines.hf.scheduler import Scheduler
from bourn.engines.hf.sequence import Drawn, Sequence
from tests.support.paper_model import Heard, Paper, expected, row

Asked = tuple[list[int], int, bool]
"""A prompt, a limit, and whether it may reuse what is there."""

tokens = st.integers(1, 4)
prompts = st.lists(tokens, min_size=1, max_size=90) | st.builds(
    lambda end: [1, 2] * 30 + end, st.lists(tokens, min_size=1, max_size=6)
)
asked = st.tuples(prompts, st.integers(1, 12), st.booleans())
moves = st.lists(st.lists(asked, max_size=3) | st.integers(0, 5), max_size=40)


@given(st.integers(1, 4), moves)
def test_rows_are_alone_together(slots: int, schedule: list[list[Asked] | int]) -> None:
    """A move is rows that join, or the number of a row that leaves; a step follows each."""
    paper, scheduler = Paper(slots), Scheduler(slots)
    rows: list[tuple[Sequence, Heard]] = []

    def step() -> None:
        planned = scheduler.plan()
        slots_used = [stretch.slot for stretch in planned.stretches]
        assert len(set(slots_used)) == len(slots_used)
        cells = paper.run(planned)
        scheduler.read(planned.stretches)
        drawing = [stretch.sequence for stretch in planned.stretches if stretch.draws]
        for sequence, drawn in zip(drawing, paper.draw(drawing, cells), strict=True):
            assert isinstance(drawn, Drawn)
            sequence.record(drawn)

    for move in schedule:
        if isinstance(move, list):
            joined = [row(prompt, limit=limit, reuse=reuse) for prompt, limit, reuse in move]
            rows += joined
            scheduler.add(sequence for sequence, _ in joined)
        elif move < len(rows):
            rows[move][0].cancel()
        step()
    while scheduler.busy:
        step()
    for sequence, heard in rows:
        whole = expected(sequence.wishes.prompt, sequence.wishes.max_new_tokens)
        assert heard.text == whole if not sequence.cancelled else whole.startswith(heard.text)
