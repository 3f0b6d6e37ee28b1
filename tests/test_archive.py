from __future__ import annotations

from bourn.archive import Archive
from bourn.journal.base import Kept, Label
from bourn.journal.memory import MemoryJournal, MemoryJournals
from bourn.journal.shelf import Limits
from bourn.terms import Terms
from bourn.types import Delta, Done, FinishReason

STOP = [FinishReason.STOP]


class Before(MemoryJournals):
    """A store that remembers an earlier run."""

    async def start(self) -> list[Kept]:
        label = Label("anna", "key", durable=True)
        journal = self.create("old", label)
        await journal.append(Delta("hello"), Done("complete"))
        lost = self.create("lost", Label("anna", "other", durable=True))
        await lost.append(Delta("hel"), Done("lost"))
        return [
            Kept("old", label, "complete", 10, 100.0, (FinishReason.STOP,)),
            Kept("lost", lost.label, "lost", 10, 100.0),
        ]


def archive(journals: MemoryJournals | None = None, now: float = 100.0) -> Archive:
    return Archive(journals, Limits(age=60), clock=lambda: now)


async def test_what_an_earlier_run_left_answers_and_is_come_back_to() -> None:
    kept = archive(Before())
    await kept.start()
    found = kept.find("key")
    assert isinstance(found, MemoryJournal)
    assert list(await found.read()) == [Delta("hello"), Done("complete")]
    assert kept.find("other") is None  # it was never whole
    assert kept.recall("lost", "anna") is not None
    assert kept.recall("lost", "bert") is None
    assert kept.recall("unheard of", "anna") is None


async def test_a_journal_of_this_run_is_come_back_to_by_its_seat_alone() -> None:
    kept = archive()
    journal = kept.begin(Terms("anna", background=True), None)
    assert kept.recall(journal.id, "anna") is None


async def test_it_grows_old() -> None:
    journals, now = MemoryJournals(), [0.0]
    kept = Archive(journals, Limits(age=60), clock=lambda: now[0])
    first = kept.begin(Terms(), "first")
    await kept.ended(first, "complete", STOP, empty=False)
    now[0] = 50.0
    assert kept.find("first") is first
    assert kept.find("first", max_age=40) is None
    now[0] = 61.0
    assert kept.find("first") is None
    await kept.ended(kept.begin(Terms(), "second"), "complete", STOP, empty=False)
    assert len(journals) == 1


async def test_the_newest_answer_to_a_request_is_the_one_that_is_given() -> None:
    journals = MemoryJournals()
    kept = archive(journals)
    for _ in range(2):
        last = kept.begin(Terms(), "key")
        await kept.ended(last, "complete", STOP, empty=False)
    assert kept.find("key") is last


async def test_one_that_was_cut_is_given_where_that_will_do() -> None:
    kept = archive(MemoryJournals())
    cut = kept.begin(Terms(), "key")
    await kept.ended(cut, "complete", [FinishReason.LENGTH], empty=False, cut=True)
    assert kept.find("key") is cut
    blocked = kept.begin(Terms(), "other")
    await kept.ended(blocked, "complete", [FinishReason.CONTENT_FILTER], empty=False, cut=True)
    assert kept.find("other") is None


async def test_one_that_nobody_may_want_is_let_go() -> None:
    journals = MemoryJournals()
    kept = archive(journals)
    plain = kept.begin(Terms(), None)
    await kept.ended(plain, "complete", STOP, empty=False)
    await kept.release(plain)
    cut = kept.begin(Terms(), "key")
    await kept.ended(cut, "complete", [FinishReason.LENGTH], empty=False)
    assert kept.find("key") is None
    await kept.release(cut)
    assert len(journals) == 0
