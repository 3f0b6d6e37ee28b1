"""Laws of all stores of journals: what was appended is read, once and in order, by anybody.

The same tests run on each store; on the one with a file also while it is read from the file.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bourn.errors import Interrupted, StreamClosed
from bourn.journal.base import Journal, Journals, Kept, Label
from bourn.journal.codec import decode, encode
from bourn.journal.memory import MemoryJournals
from bourn.journal.shelf import Limits, Shelf
from bourn.journal.sqlite import SqliteJournals
from bourn.stream import Reader
from bourn.types import Delta, Done, Event, Sampling, Started
from tests.support.any_values import dones, going, told

DURABLE = Label("ann", durable=True)
END = Done("complete")
EVENTS: list[Event] = [Started(Sampling(seed=1)), *(Delta(f"{n} ") for n in range(600)), END]
"""More than one page."""


@pytest.fixture(params=["memory", "sqlite", "sqlite, written at once"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journals]:
    store = made(request.param, tmp_path)
    await store.start()
    yield store
    await store.aclose()


def made(kind: str, folder: Path) -> Journals:
    if kind == "memory":
        return MemoryJournals()
    if kind == "sqlite":
        return SqliteJournals(folder / "journals.db")
    return Prompt(folder / "journals.db")


class Prompt(SqliteJournals):
    """All is in the file before it is looked at."""

    async def settle(self) -> None:
        assert await self.flush()


async def settle(store: Journals) -> None:
    if isinstance(store, Prompt):
        await store.settle()


async def read(journal: Journal, after: int = 0) -> list[Event]:
    """What is there of it now, from an offset, page by page."""
    events: list[Event] = []
    while page := await journal.read(after + len(events)):
        events += page
    return events


async def test_it_is_read_from_any_offset(store: Journals) -> None:
    journal = store.create("x", DURABLE)
    assert (journal.id, journal.label) == ("x", DURABLE)
    assert await read(journal) == []
    assert (journal.head, journal.ended) == (0, False)
    await journal.append()
    await settle(store)
    for begin, end in pairwise([0, 1, 3, 300, 500, len(EVENTS)]):
        await journal.append(*EVENTS[begin:end])
        await settle(store)
        for after in (0, 1, begin, end - 1, end, end + 1):
            assert await read(journal, after) == EVENTS[after:end]
        assert (journal.head, journal.ended) == (end, end == len(EVENTS))


async def test_nothing_comes_after_the_end(store: Journals) -> None:
    journal = store.create("x", DURABLE)
    await journal.append(Delta("a"), END)
    for _ in range(2):
        with pytest.raises(StreamClosed):
            await journal.append(Delta("b"))
        await settle(store)
    assert await read(journal) == [Delta("a"), END]


async def test_what_was_read_does_not_grow_afterwards(store: Journals) -> None:
    journal = store.create("x", DURABLE)
    await journal.append(Delta("a"))
    seen = await journal.read()
    await journal.append(END)
    await settle(store)
    assert list(seen) == [Delta("a")]


async def test_every_subscriber_is_woken_until_it_leaves(store: Journals) -> None:
    journal = store.create("x", DURABLE)
    bells = [asyncio.Event(), asyncio.Event()]
    leave = journal.subscribe(bells[0].set)
    journal.subscribe(bells[1].set)
    await journal.append(Delta("a"))
    assert [bell.is_set() for bell in bells] == [True, True]
    for bell in bells:
        bell.clear()
    leave()
    leave()
    await journal.append(END)
    assert [bell.is_set() for bell in bells] == [False, True]


async def test_one_that_is_here_can_be_opened_until_it_is_deleted(store: Journals) -> None:
    assert store.open("x") is None
    journal = store.create("x", DURABLE)
    assert store.open("x") is journal
    await journal.append(*EVENTS)
    await settle(store)
    again = store.open("x")
    assert again is not None
    assert await read(again) == EVENTS
    await store.delete("x")
    await store.delete("x")
    await store.delete("never there")
    assert store.open("x") is None


async def test_who_reads_a_deleted_one_may_read_it_to_its_end(store: Journals) -> None:
    journal = store.create("x", DURABLE)
    reader = reading(journal)
    await journal.append(*EVENTS)
    await settle(store)
    seen = list(await reader.next())
    await store.delete("x")
    while batch := await reader.next():
        seen += batch
        await settle(store)
    assert seen == EVENTS


async def test_a_deleted_one_that_is_live_goes_on_for_its_readers(store: Journals) -> None:
    journal = store.create("x", DURABLE)
    reader = reading(journal)
    await journal.append(Delta("a"))
    await settle(store)
    await store.delete("x")
    await journal.append(Delta("b"), END)
    await settle(store)
    assert await reader.next() == [Delta("a"), Delta("b"), END]


async def test_its_size_is_told(store: Journals) -> None:
    journal = store.create("x", DURABLE)
    assert journal.size == 0
    await journal.append(Delta("a" * 10_000))
    await settle(store)
    assert 10_000 <= journal.size < 11_000
    await journal.append(END)
    await settle(store)
    assert 10_000 <= journal.size < 11_000


# -- readers ---------------------------------------------------------------------------------------


def reading(journal: Journal, after: int = 0) -> Reader:
    return Reader(journal, after=after, detach=lambda reader, *, patient: False, id=journal.id)


async def flaky(store: Journals, lot: random.Random, drop: float) -> list[Event]:
    """All of a journal, over connections that break and are made anew."""
    seen: list[Event] = []
    while not seen or not isinstance(seen[-1], Done):
        journal = store.open("x")
        assert journal is not None
        reader = reading(journal, len(seen))
        while batch := await reader.next():
            for event in batch:
                seen.append(event)
                if lot.random() < drop:
                    reader.leave()
                    break
            if lot.random() < 0.1:
                await asyncio.sleep(0.001 * lot.random())
    return seen


async def test_flaky_readers_miss_nothing_and_see_nothing_twice(store: Journals) -> None:
    lot = random.Random(7)
    journal = store.create("x", DURABLE)
    readers = [
        asyncio.create_task(flaky(store, random.Random(n), drop=0.01 if n % 2 else 0.1))
        for n in range(100)
    ]
    rest = list(EVENTS)
    while rest:
        count = lot.choice([1, 1, 1, 2, 5, 40])
        await journal.append(*rest[:count])
        del rest[:count]
        if lot.random() < 0.1:
            await settle(store)
        await asyncio.sleep(0)
    for seen in await asyncio.gather(*readers):
        assert seen == EVENTS


# -- whatever happens ------------------------------------------------------------------------------


def ran(work: Callable[[Path], Coroutine[Any, Any, None]]) -> None:
    memory = Path("/dev/shm")  # a disk that need not be waited for, where there is one
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        asyncio.run(work(Path(folder)))


NAMES = "abc"
acts: st.SearchStrategy[tuple[str, str, list[Event]]] = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(NAMES), st.lists(going, min_size=1, max_size=3)),
    st.tuples(st.just("end"), st.sampled_from(NAMES), st.lists(dones, min_size=1, max_size=1)),
    st.tuples(st.sampled_from(["delete", "flush", "restart"]), st.sampled_from(NAMES), st.just([])),
)


class Model:
    """A store with a file, and beside it what it should hold: `c` is never durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = SqliteJournals(path)
        self.journals: dict[str, list[Event]] = {}

    async def act(self, act: str, name: str, events: list[Event]) -> None:
        held = self.journals.get(name, [])
        if act in ("append", "end") and not (held and isinstance(held[-1], Done)):
            known = self.store.open(name)
            journal = known or self.store.create(name, Label(durable=name != "c"))
            await journal.append(*events)
            self.journals[name] = held + events
        elif act == "delete":
            await self.store.delete(name)
            self.journals.pop(name, None)
        elif act == "flush":
            assert await self.store.flush()
        elif act == "restart":
            await self.restart()

    async def restart(self) -> None:
        await self.store.aclose()
        self.store = SqliteJournals(self.path)
        kept = await self.store.start()
        self.journals.pop("c", None)
        for events in self.journals.values():
            if not isinstance(events[-1], Done):
                error = Interrupted("", hint="")
                events.append(Done("lost", error=error))
        assert {each.id: each.state for each in kept} == {
            name: events[-1].state
            for name, events in self.journals.items()
            if isinstance(events[-1], Done)
        }

    async def check(self) -> None:
        for name in NAMES:
            journal = self.store.open(name)
            if journal is None:
                assert name not in self.journals
            else:
                read_now = await read(journal)
                expected = self.journals[name]
                assert [said(event) for event in read_now] == [said(event) for event in expected]


def said(event: Event) -> object:
    if isinstance(event, Done) and event.state == "lost" and isinstance(event.error, Interrupted):
        return "lost"
    return told(event)


@settings(max_examples=25, deadline=None)
@given(st.lists(acts, max_size=12))
def test_a_file_holds_what_happened(history: list[tuple[str, str, list[Event]]]) -> None:
    async def work(folder: Path) -> None:
        model = Model(folder / "journals.db")
        await model.store.start()
        for act, name, events in history:
            await model.act(act, name, events)
            await model.check()
        await model.store.aclose()

    ran(work)


@settings(max_examples=60)
@given(going | dones)
def test_an_event_is_read_as_it_was_written(event: Event) -> None:
    assert told(decode(encode(event))) == told(event)


# -- the shelf -------------------------------------------------------------------------------------

LIMITS = Limits(count=4, bytes=20, owner_count=2, owner_bytes=9, age=5)
shelved = st.builds(
    Kept,
    st.sampled_from("abcdefgh"),
    st.builds(Label, st.sampled_from(["", "ann", "bob"])),
    st.just("complete"),
    st.integers(0, 12),
    st.integers(0, 10),
)


@settings(max_examples=60)
@given(st.lists(shelved | st.sampled_from("abcdefgh") | st.integers(0, 20), max_size=40))
def test_a_shelf_is_never_over_its_limits_and_gives_up_no_more_than_it_must(
    history: Sequence[Kept | str | int],
) -> None:
    shelf = Shelf(LIMITS)
    held: dict[str, Kept] = {}
    for act in history:
        if isinstance(act, str):
            shelf.touch(act)
            held |= {act: held.pop(act)} if act in held else {}
        elif isinstance(act, int):
            expired = [id_ for id_, kept in held.items() if act - kept.finished >= LIMITS.age]
            assert shelf.expired(act) == expired
            held = {id_: kept for id_, kept in held.items() if id_ not in expired}
        else:
            held.pop(act.id, None)
            held[act.id] = act
            for id_ in shelf.add(act):
                assert excessive(list(held.values())), f"{id_} could have stayed"
                assert id_ in first_to_go(held, act)
                del held[id_]
        assert not excessive(list(held.values()))
        assert (len(shelf), shelf.bytes) == (len(held), sum(kept.size for kept in held.values()))


def first_to_go(held: dict[str, Kept], new: Kept) -> list[str]:
    """The longest unused of all, that of the new one's owner, and itself if it is too large."""
    theirs = [kept.id for kept in held.values() if kept.label.owner == new.label.owner]
    return [next(iter(held)), theirs[0], *([new.id] if excessive([new]) else [])]


def excessive(held: list[Kept]) -> bool:
    theirs = [[kept for kept in held if kept.label.owner == owner] for owner in ("ann", "bob")]
    return (
        len(held) > LIMITS.count
        or sum(kept.size for kept in held) > LIMITS.bytes
        or any(len(part) > LIMITS.owner_count for part in theirs)
        or any(sum(kept.size for kept in part) > LIMITS.owner_bytes for part in theirs)
    )
