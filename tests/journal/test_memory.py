from __future__ import annotations

import asyncio

from bourn.journal.memory import MemoryJournal, MemoryJournals
from bourn.types import Delta, Done

A, B, C = Delta("a"), Delta("b"), Delta("c")
END = Done("complete")


async def test_events_are_read_from_any_offset_in_order() -> None:
    journal = MemoryJournal("x")
    await journal.append(A, B)
    await journal.append(C, END)
    assert list(await journal.read()) == [A, B, C, END]
    assert list(await journal.read(2)) == [C, END]
    assert list(await journal.read(4)) == []


async def test_what_was_read_does_not_grow_afterwards() -> None:
    journal = MemoryJournal("x")
    await journal.append(A)
    seen = await journal.read()
    await journal.append(B)
    assert list(seen) == [A]


async def test_every_subscriber_is_woken_until_it_leaves() -> None:
    journal = MemoryJournal("x")
    bells = [asyncio.Event(), asyncio.Event()]
    leave = journal.subscribe(bells[0].set)
    journal.subscribe(bells[1].set)
    await journal.append(A)
    assert [bell.is_set() for bell in bells] == [True, True]
    for bell in bells:
        bell.clear()
    leave()
    leave()
    await journal.append(B)
    assert [bell.is_set() for bell in bells] == [False, True]


async def test_a_deleted_journal_is_gone_but_may_be_read_by_who_holds_it() -> None:
    journals = MemoryJournals()
    journal = journals.create("x")
    await journal.append(A, END)
    await journals.delete("x")
    await journals.delete("x")
    assert len(journals) == 0
    assert list(await journal.read()) == [A, END]
