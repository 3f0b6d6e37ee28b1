from __future__ import annotations

from bourn.journal.base import Label
from bourn.journal.memory import MemoryJournal, MemoryJournals, weight
from bourn.types import Delta, Done, TokenLogprob, ToolDelta

A, END = Delta("a"), Done("complete")


async def test_nothing_is_left_of_earlier_runs() -> None:
    journals = MemoryJournals()
    assert await journals.start() == []
    await journals.create("x", Label(durable=True)).append(A)
    await journals.aclose()
    assert await MemoryJournals().start() == []


async def test_a_deleted_journal_is_gone_but_may_be_read_by_who_holds_it() -> None:
    journals = MemoryJournals()
    journal = journals.create("x")
    await journal.append(A, END)
    await journals.delete("x")
    await journals.delete("x")
    assert len(journals) == 0
    assert list(await journal.read()) == [A, END]


async def test_its_size_is_that_of_its_events() -> None:
    journal = MemoryJournal("x")
    await journal.append(A, A)
    await journal.append(END)
    assert journal.size == 2 * weight(A) + weight(END)


def test_what_an_event_carries_weighs() -> None:
    token = TokenLogprob("a", -1.0, top=(TokenLogprob("b", -2.0),) * 4)
    calls = Delta("", tool=ToolDelta(0, arguments="x" * 5000))
    assert weight(A) < weight(Delta("a" * 1000)) < weight(Delta("a", logprobs=(token,)))
    assert weight(calls) > 5000
