from __future__ import annotations

import asyncio
import random

import pytest

from bourn.admission import Admission, Ticket
from bourn.errors import QueueFull


def test_admits_up_to_its_slots_and_queues_the_rest_in_order() -> None:
    admission = Admission(2, queue_limit=8)
    tickets = [admission.enter() for _ in range(4)]
    assert [ticket.place for ticket in tickets] == [0, 0, 1, 2]
    tickets[0].leave()
    assert [ticket.place for ticket in tickets[1:]] == [0, 0, 1]


def test_leaving_the_queue_moves_those_behind() -> None:
    admission = Admission(1, queue_limit=8)
    tickets = [admission.enter() for _ in range(4)]
    tickets[1].leave()
    assert [ticket.place for ticket in tickets[2:]] == [1, 2]
    assert admission.waiting == 2


def test_leaving_twice_gives_back_once() -> None:
    admission = Admission(1, queue_limit=8)
    first = admission.enter()
    first.leave()
    first.leave()
    assert admission.used == 0


def test_nobody_overtakes_a_large_request() -> None:
    admission = Admission(4, queue_limit=8)
    running = admission.enter(2)
    large = admission.enter(4)
    small = admission.enter(1)
    assert (large.place, small.place) == (1, 2)
    running.leave()
    assert (large.place, small.place) == (0, 1)


def test_a_full_queue_is_an_error_that_may_be_tried_again() -> None:
    admission = Admission(1, queue_limit=1)
    admission.enter()
    admission.enter()
    with pytest.raises(QueueFull) as raised:
        admission.enter()
    assert raised.value.retryable
    assert raised.value.status == 429


def test_no_slots_means_no_limit() -> None:
    admission = Admission(None, queue_limit=0)
    assert all(admission.enter(100).place == 0 for _ in range(10))


async def test_a_ticket_wakes_at_each_move() -> None:
    admission = Admission(1, queue_limit=8)
    tickets = [admission.enter() for _ in range(3)]
    waiting = asyncio.create_task(tickets[2].moved())
    await asyncio.sleep(0)
    tickets[1].leave()
    assert await waiting == 1
    tickets[0].leave()
    assert await tickets[2].moved() == 0


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_no_slot_is_lost_or_given_twice(seed: int) -> None:
    dice = random.Random(seed)
    admission = Admission(4, queue_limit=1000)
    here: list[Ticket] = []
    for _ in range(300):
        if here and dice.random() < 0.5:
            here.pop(dice.randrange(len(here))).leave()
        else:
            here.append(admission.enter(dice.randint(1, 4)))
        admitted = sum(ticket.size for ticket in here if ticket.place == 0)
        assert admission.used == admitted <= 4
        places = sorted(ticket.place for ticket in here if ticket.place)
        assert places == list(range(1, len(places) + 1))
    for ticket in here:
        ticket.leave()
    assert (admission.used, admission.waiting) == (0, 0)
