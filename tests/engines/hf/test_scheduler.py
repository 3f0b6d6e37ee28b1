from __future__ import annotations

from bourn.engines.hf.pace import ALONE, LEAST, Pace
from bourn.engines.hf.scheduler import Scheduler
from bourn.engines.hf.sequence import Drawn, Sequence
from bourn.engines.hf.step import Copy, Step
from tests.support.paper_model import row


def advance(scheduler: Scheduler, token: int = 1) -> Step:
    """One step, in which every row that draws draws `token`."""
    step = scheduler.plan()
    scheduler.read(step.stretches)
    for stretch in step.stretches:
        if stretch.draws:
            stretch.sequence.record(Drawn(token))
    return step


def served(step: Step) -> list[Sequence]:
    return [stretch.sequence for stretch in step.stretches]


def test_what_does_not_fit_waits_its_turn() -> None:
    first, second, third = (row([n, n, n], limit=2)[0] for n in (1, 2, 3))
    scheduler = Scheduler(2)
    scheduler.add([first, second, third])
    assert set(served(advance(scheduler))) == {first, second}
    advance(scheduler)
    assert first.ended
    assert second.ended
    assert served(advance(scheduler)) == [third]
    assert scheduler.busy
    advance(scheduler)
    scheduler.plan()
    assert not scheduler.busy


def test_a_cancelled_row_is_gone_at_the_next_step_and_a_waiting_one_never_starts() -> None:
    running, waiting, last = (row([n] * 3)[0] for n in (1, 2, 3))
    scheduler = Scheduler(1)
    scheduler.add([running, waiting, last])
    advance(scheduler)
    running.cancel()
    waiting.cancel()
    assert served(advance(scheduler)) == [last]


def test_a_long_prompt_is_read_in_parts_beside_an_answer() -> None:
    scheduler = Scheduler(2, Pace())
    answering, reading = row([1] * 3, limit=99)[0], row(range(1, 4 * ALONE))[0]
    scheduler.add([answering])
    advance(scheduler)
    scheduler.add([reading])
    while reading.unread > 1:
        step = advance(scheduler)
        assert served(step) == [answering, reading]
        assert LEAST <= step.stretches[1].count < ALONE
        assert step.stretches[1].draws == (reading.generated == 1)


def test_a_cancelled_prompt_stops_at_the_next_part() -> None:
    scheduler = Scheduler(1)
    reading = row(range(1, 4 * ALONE))[0]
    scheduler.add([reading])
    advance(scheduler)
    reading.cancel()
    assert served(advance(scheduler)) == []
    assert reading.read == ALONE


def test_short_prompts_that_come_together_are_read_together() -> None:
    rows = [row([n] * 20)[0] for n in range(1, 5)]
    scheduler = Scheduler(4)
    scheduler.add(rows)
    assert set(served(advance(scheduler))) == set(rows)


def test_the_next_turn_goes_on_in_the_slot_of_the_last() -> None:
    first, _ = row([1, 2, 3, 4], limit=3)
    scheduler = Scheduler(4)
    scheduler.add([first])
    for _ in range(4):
        advance(scheduler)
    second, _ = row([*first.ids, 8, 8], limit=3)
    scheduler.add([second])
    step = advance(scheduler)
    assert step.copies == ()
    # the last token drawn was never read: nobody needed what comes after it
    assert second.reused == len(first.ids) - 1
    assert [stretch.ids for stretch in step.stretches] == [[first.ids[-1], 8, 8]]


def test_the_same_question_again_reads_one_token() -> None:
    first, _ = row([1, 2, 3, 4], limit=1)
    scheduler = Scheduler(1)
    scheduler.add([first])
    advance(scheduler)
    again, _ = row([1, 2, 3, 4], limit=1)
    scheduler.add([again])
    assert [stretch.ids for stretch in advance(scheduler).stretches] == [[4]]


def test_a_shared_beginning_is_copied_and_the_other_conversation_stays() -> None:
    system = list(range(1, 11))
    first, _ = row([*system, *[1] * 40], limit=1)
    scheduler = Scheduler(2)
    scheduler.add([first])
    advance(scheduler)
    other, _ = row([*system, 2, 2], limit=1)
    scheduler.add([other])
    assert advance(scheduler).copies == (Copy(0, 1, 10),)
    assert other.reused == 10
    back, _ = row([*first.ids, 7], limit=1)
    scheduler.add([back])
    assert advance(scheduler).copies == ()
    assert back.reused == len(first.ids) - 1


def test_a_beginning_is_copied_from_a_row_that_is_answering() -> None:
    system = list(range(1, 41))
    scheduler = Scheduler(2)
    first, _ = row([*system, 1], limit=9)
    scheduler.add([first])
    advance(scheduler)
    second, _ = row([*system, 2], limit=9)
    scheduler.add([second])
    assert advance(scheduler).copies == (Copy(0, 1, 40),)


def test_rows_with_one_prompt_read_it_once() -> None:
    rows = [row(range(1, 200), limit=9)[0] for _ in range(4)]
    scheduler = Scheduler(4)
    scheduler.add(rows)
    read = [sum(stretch.count for stretch in advance(scheduler).stretches) for _ in range(3)]
    assert read[0] == 199
    assert read[1] == 1 + 3  # the first answers; the others read but the last token of theirs
    assert [row.reused for row in rows] == [0, 198, 198, 198]


def test_who_waits_for_a_beginning_does_not_wait_for_ever() -> None:
    first, second = (row(range(1, 2 * ALONE))[0] for _ in range(2))
    scheduler = Scheduler(2)
    scheduler.add([first, second])
    assert served(advance(scheduler)) == [first]
    first.cancel()
    assert served(advance(scheduler)) == [second]
    assert second.reused == ALONE


def test_a_seeded_request_reuses_nothing() -> None:
    scheduler = Scheduler(2)
    for _ in range(3):
        asked, _ = row(range(1, 50), limit=1, reuse=False)
        scheduler.add([asked])
        step = advance(scheduler)
        assert (asked.reused, step.copies) == (0, ())


def test_the_slot_of_a_failed_row_is_not_gone_on_from() -> None:
    first, heard = row([1, 2, 3, 4])
    scheduler = Scheduler(1)
    scheduler.add([first])
    scheduler.read(scheduler.plan().stretches)
    scheduler.forget(first)
    first.fail(ValueError("no"))
    assert isinstance(heard.error, ValueError)
    again, _ = row([1, 2, 3, 4])
    scheduler.add([again])
    advance(scheduler)
    assert again.reused == 0


def test_the_pace_keeps_a_mixed_step_at_about_twice_a_plain_one() -> None:
    pace = Pace()
    assert pace.prompt_tokens(answering=0) == ALONE
    for _ in range(30):
        pace.took(0.040, answering=8, prompt_tokens=0)
        pace.took(0.040 + 0.001 * 32, answering=8, prompt_tokens=32)
    assert 36 <= pace.prompt_tokens(answering=8) <= 44
    for _ in range(60):
        pace.took(1.0, answering=1, prompt_tokens=16)
    assert pace.prompt_tokens(answering=1) == LEAST
