from __future__ import annotations

from bourn.journal.base import Kept, Label
from bourn.journal.shelf import Limits, Shelf


def kept(id: str, owner: str = "", *, size: int = 1, finished: float = 0.0) -> Kept:  # noqa: A002
    return Kept(id, Label(owner), "complete", size, finished)


def test_the_oldest_goes_first() -> None:
    shelf = Shelf(Limits(count=2))
    assert shelf.add(kept("a")) == []
    assert shelf.add(kept("b")) == []
    assert shelf.add(kept("c")) == ["a"]
    assert len(shelf) == 2


def test_what_is_used_stays() -> None:
    shelf = Shelf(Limits(count=2))
    shelf.add(kept("a"))
    shelf.add(kept("b"))
    shelf.touch("a")
    shelf.touch("unknown")
    assert shelf.add(kept("c")) == ["b"]


def test_as_many_go_as_must() -> None:
    shelf = Shelf(Limits(bytes=10))
    for id_ in "abc":
        shelf.add(kept(id_, size=3))
    assert shelf.add(kept("d", size=7)) == ["a", "b"]
    assert shelf.bytes == 10


def test_one_that_is_too_large_drives_out_no_other() -> None:
    shelf = Shelf(Limits(bytes=10, owner_bytes=5))
    shelf.add(kept("a", "ann", size=5))
    assert shelf.add(kept("b", size=11)) == ["b"]
    assert shelf.add(kept("c", "ann", size=6)) == ["c"]
    assert shelf.add(kept("d", "bob", size=6)) == ["d"]
    assert len(shelf) == 1


def test_one_owner_drives_out_only_their_own() -> None:
    shelf = Shelf(Limits(count=10, owner_count=2))
    shelf.add(kept("a", "ann"))
    for id_ in "bcd":
        going = shelf.add(kept(id_, "bob"))
    assert going == ["b"]
    assert len(shelf) == 3


def test_nobody_in_particular_is_bound_by_the_whole_alone() -> None:
    shelf = Shelf(Limits(count=3, owner_count=1, owner_bytes=1))
    assert [shelf.add(kept(id_, size=2)) for id_ in "abcd"] == [[], [], [], ["a"]]


def test_age_is_from_the_end_however_often_it_is_used() -> None:
    shelf = Shelf(Limits(age=10))
    shelf.add(kept("a", finished=100))
    shelf.add(kept("b", finished=105))
    shelf.touch("a")
    assert shelf.expired(109.9) == []
    assert shelf.expired(110) == ["a"]
    assert shelf.expired(110) == []
    assert len(shelf) == 1


def test_adding_again_replaces() -> None:
    shelf = Shelf(Limits(count=2))
    shelf.add(kept("a", "ann", size=5))
    shelf.add(kept("a", "bob", size=3))
    assert (len(shelf), shelf.bytes) == (1, 3)


def test_nothing_is_kept_where_nothing_may_be() -> None:
    shelf = Shelf(Limits(count=0))
    assert not shelf.room("")
    assert shelf.add(kept("a")) == ["a"]


def test_room_is_what_live_ones_leave() -> None:
    shelf = Shelf(Limits(count=3, owner_count=2))
    assert shelf.room("ann")
    shelf.begin("a", "ann")
    shelf.begin("b", "ann")
    assert not shelf.room("ann")
    assert shelf.room("bob")
    shelf.begin("c", "bob")
    assert not shelf.room("bob")
    assert not shelf.room("")
    shelf.add(kept("a", "ann"))
    assert shelf.room("ann")
    shelf.drop("c")
    shelf.drop("c")
    assert shelf.room("bob")


def test_what_is_live_never_goes() -> None:
    shelf = Shelf(Limits(count=1))
    shelf.begin("a", "")
    assert shelf.add(kept("b")) == []
    assert shelf.add(kept("c")) == ["b"]
    assert shelf.expired(1e12) == ["c"]


def test_owners_who_have_nothing_more_are_forgotten() -> None:
    shelf = Shelf(Limits(count=5, owner_bytes=10))
    for number in range(100):
        shelf.add(kept(str(number), f"owner {number}"))
        shelf.add(kept("large", f"other {number}", size=11))
    assert len(shelf._owned) == 5
