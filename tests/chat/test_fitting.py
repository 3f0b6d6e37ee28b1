"""Here a token is a character, and each message has one more, unless a test says otherwise."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bourn import aio, sync
from bourn.chat import UNCALIBRATED, Chat, Estimate, Fitted, Room
from bourn.engines.scripted import Script, Scripted
from bourn.errors import InvalidRequest, PromptTooLong
from bourn.types import ImagePart, Message, TextPart, ToolCall, Usage


class Counter:
    """Counts tokens, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, messages: Sequence[Message]) -> int:
        self.asked += 1
        return sum(len(message.text) + 1 for message in messages)


def talk(turns: int, size: int = 8, system: str | None = "sys") -> Chat:
    """Turns of `2 * size + 2` tokens and then a question of `size + 1`."""
    chat = Chat(system)
    for number in range(turns):
        chat = chat.ask(f"q{number}".ljust(size)).answered(f"a{number}".ljust(size))
    return chat.ask("last".ljust(size))


def shown(fitted: Fitted) -> list[str]:
    return [message.text.strip() for message in fitted.messages]


def test_what_fits_is_sent_whole_after_one_count() -> None:
    count = Counter()
    chat = talk(3)
    fitted = chat.fit(count, Room(window=200, max_new_tokens=50))
    assert fitted.messages == chat.messages
    assert (fitted.dropped, fitted.notice, count.asked) == (0, "", 1)
    assert fitted.prompt_tokens == 4 + 3 * 18 + 9
    assert fitted.max_new_tokens == 50
    assert not fitted.estimated


def test_the_oldest_whole_turns_are_left_out_and_that_is_said() -> None:
    fitted = talk(4).fit(Counter(), Room(window=60, max_new_tokens=10))
    assert shown(fitted) == ["sys", "q2", "a2", "q3", "a3", "last"]
    assert (fitted.dropped, fitted.prompt_tokens) == (2, 49)
    assert fitted.notice == (
        "the first 2 turns no longer fit the window of 60 tokens and were left out"
    )


def test_one_turn_is_told_as_one() -> None:
    fitted = talk(3).fit(Counter(), Room(window=60, max_new_tokens=10))
    assert fitted.notice == "the first turn no longer fits the window of 60 tokens and was left out"


def test_the_first_exchange_can_be_kept_and_the_middle_cut() -> None:
    chat = replace(talk(4), keep_first=True)
    fitted = chat.fit(Counter(), Room(window=60, max_new_tokens=10, step=0))
    assert shown(fitted) == ["sys", "q0", "a0", "q3", "a3", "last"]
    assert fitted.notice.startswith("the 2 turns after the first no longer fit the window of 60")
    one = chat.fit(Counter(), Room(window=80, max_new_tokens=10, step=0))
    assert shown(one) == ["sys", "q0", "a0", "q2", "a2", "q3", "a3", "last"]
    assert one.notice.startswith("the turn after the first no longer fits")


def test_where_nothing_else_is_left_the_first_exchange_goes_too() -> None:
    chat = replace(talk(4), keep_first=True)
    fitted = chat.fit(Counter(), Room(window=24, max_new_tokens=10))
    assert shown(fitted) == ["sys", "last"]
    assert fitted.notice.startswith("the first 4 turns no longer fit")


# -- the answer's room -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "answer"),
    [
        (Room(100, 20), 20),
        (Room(100, 1024), 50),
        (Room(100, None), 50),
        (Room(100, 20, reserve=70), 70),
        (Room(100, 20, reserve=0), 1),
    ],
)
def test_the_reserve_is_the_answer_s_limit_but_half_of_the_window_unless_asked(
    room: Room, answer: int
) -> None:
    assert (room.answer, room.prompt) == (answer, 100 - answer)


def test_the_answer_may_use_what_is_left() -> None:
    assert talk(1).fit(Counter(), Room(window=100)).max_new_tokens == 100 - 31
    assert talk(1).fit(Counter(), Room(window=100, max_new_tokens=99)).max_new_tokens == 100 - 31


def test_a_limit_as_large_as_the_window_does_not_cost_the_prompt() -> None:
    fitted = talk(0).fit(Counter(), Room(window=20, max_new_tokens=20, reserve=20))
    assert shown(fitted) == ["sys", "last"]
    assert fitted.max_new_tokens == 7
    assert fitted.notice == "only 7 tokens of the window are left for the answer"


def test_a_long_question_takes_from_the_answer_and_that_is_said() -> None:
    chat = talk(2).undo().ask("x" * 75)
    fitted = chat.fit(Counter(), Room(window=100, max_new_tokens=50))
    assert shown(fitted) == ["sys", "x" * 75]
    assert fitted.max_new_tokens == 20
    assert fitted.notice == (
        "the first 2 turns no longer fit the window of 100 tokens and were left out; "
        "only 20 tokens of the window are left for the answer"
    )


@pytest.mark.parametrize("size", [95, 96, 500])
def test_a_question_that_leaves_no_room_is_an_error_with_both_numbers(size: int) -> None:
    with pytest.raises(PromptTooLong, match="the system message and the last question") as caught:
        talk(2).undo().ask("x" * size).fit(Counter(), Room(window=100))
    assert (caught.value.prompt_tokens, caught.value.window) == (size + 5, 100)
    assert str(size + 5) in str(caught.value)
    assert "100" in str(caught.value)


def test_a_token_for_the_answer_is_room() -> None:
    fitted = Chat().ask("x" * 98).fit(Counter(), Room(window=100))
    assert fitted.max_new_tokens == 1
    assert fitted.notice == "only 1 token of the window is left for the answer"


def test_there_must_be_a_question() -> None:
    with pytest.raises(InvalidRequest, match="nothing to answer"):
        Chat("sys").fit(Counter(), Room(window=100))


def test_a_room_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="window is 0"):
        Room(window=0)
    with pytest.raises(InvalidRequest, match="max_new_tokens is 0"):
        Room(max_new_tokens=0)
    with pytest.raises(InvalidRequest, match="reserve is -1"):
        Room(reserve=-1)


def test_what_is_gone_on_with_stays_whole() -> None:
    chat = talk(2).answered("begun").continued(prefill=False)
    fitted = chat.fit(Counter(), Room(window=60, max_new_tokens=20))
    assert shown(fitted) == ["sys", "last", "begun", "Continue."]
    begun = talk(2).answered("begun").continued(prefill=True)
    assert shown(begun.fit(Counter(), Room(window=60, max_new_tokens=20)))[-1] == "begun"


def test_the_limit_in_turns_goes_first() -> None:
    chat = replace(talk(4), max_turns=3)
    count = Counter()
    fitted = chat.fit(count, Room(window=200, max_new_tokens=10))
    assert shown(fitted) == ["sys", "q2", "a2", "q3", "a3", "last"]
    assert count.asked == 1
    assert fitted.notice == "the first 2 turns were left out, as the limit in turns says"
    narrow = chat.fit(Counter(), Room(window=40, max_new_tokens=10))
    assert narrow.notice.startswith("the first 4 turns no longer fit the window of 40")


# -- the same beginning ----------------------------------------------------------------------------


def dropped(step: float) -> list[int]:
    """As a conversation grows from turn to turn, beyond its window."""
    room = Room(window=300, max_new_tokens=50, step=step)
    return [talk(turns).fit(Counter(), room).dropped for turns in range(10, 40)]


def test_turns_are_left_out_in_steps_so_that_the_prompt_begins_alike_for_a_while() -> None:
    told = dropped(0.4)
    assert told == sorted(told)
    runs = [told.count(number) for number in set(told[5:-5])]
    assert min(runs) >= 4
    assert max(told) - told[-10] >= 5


def test_no_steps_leave_out_as_few_as_possible() -> None:
    least = dropped(0)
    assert least[-20:] == list(range(least[-1] - 19, least[-1] + 1))
    assert all(0 <= more - few <= 8 for few, more in zip(least, dropped(0.4), strict=True))


@pytest.mark.parametrize("step", [-0.1, 0.6, float("nan")])
def test_a_step_is_a_share(step: float) -> None:
    with pytest.raises(InvalidRequest, match="step is"):
        Room(100, step=step)


# -- counting --------------------------------------------------------------------------------------


async def test_a_count_to_wait_for_gives_the_same() -> None:
    count = Counter()

    async def wait(messages: Sequence[Message]) -> int:
        return count(messages)

    for turns in range(12):
        room = Room(window=90, max_new_tokens=20)
        assert await talk(turns).afit(wait, room) == talk(turns).fit(Counter(), room)
    assert count.asked


async def test_a_model_s_own_count_is_one() -> None:
    """The scripted model counts words."""
    room = Room(window=100, max_new_tokens=20)
    async with aio.Model(Scripted(Script())) as model:
        fitted = await talk(2).afit(model.count, room)
        assert (fitted.prompt_tokens, fitted.estimated) == (6, False)
    with sync.Model(aio.Model(Scripted(Script()))).start() as waiting:
        assert talk(2).fit(waiting.count, room) == fitted


def test_few_counts_are_needed() -> None:
    """Of 65 turns, halving alone takes 7 counts each time."""
    chance = random.Random(4)
    asked = []
    for _ in range(50):
        chat = Chat("sys")
        for _ in range(64):
            words = chance.choice(["a ", "word ", "longer ", "漢字"])
            chat = chat.ask(words * chance.randrange(1, 40)).answered(words * chance.randrange(200))
        count = Counter()
        chat.ask("last").fit(count, Room(chance.randrange(1000, 20000)))
        asked.append(count.asked)
    assert max(asked) <= 10
    assert sum(asked) / len(asked) < 5


def test_messages_that_do_not_shrink_the_prompt_are_no_trouble() -> None:
    with pytest.raises(PromptTooLong):
        talk(20).fit(lambda _: 1000, Room(window=100))
    assert talk(20).fit(lambda _: 0, Room(window=1, reserve=5)).prompt_tokens == 0


# -- where nobody can count ------------------------------------------------------------------------


def test_without_a_count_it_is_an_estimate_and_says_so() -> None:
    chat = talk(40, size=70)
    fitted = chat.fit(None, Room(window=1000, max_new_tokens=100))
    assert fitted.estimated
    assert fitted.prompt_tokens == UNCALIBRATED.count(fitted.messages) <= 900
    assert 0 < fitted.dropped < 40
    assert fitted == chat.fit(lambda _: None, Room(window=1000, max_new_tokens=100))


def test_without_a_window_all_is_sent() -> None:
    fitted = talk(40).fit(None, Room(max_new_tokens=100))
    assert (fitted.dropped, fitted.max_new_tokens, fitted.estimated) == (0, 100, True)
    assert talk(1).fit(Counter(), Room()).max_new_tokens is None


def test_an_estimate_never_refuses_a_question() -> None:
    fitted = Chat().ask("x" * 5000).fit(None, Room(window=1000, max_new_tokens=100))
    assert fitted.prompt_tokens > 1000
    assert fitted.max_new_tokens == 100
    assert fitted.notice == ""


def test_estimates_go_by_script() -> None:
    def tokens(text: str) -> float:
        return UNCALIBRATED.count([Message("user", text)]) - 4

    assert tokens("The quick brown fox jumps over the lazy dog. " * 10) == pytest.approx(
        450 / 3.5, 1
    )
    assert tokens("漢字" * 150) == pytest.approx(300 / 1.5, 1)
    assert tokens("\ud800") == 1


def test_images_and_calls_of_tools_are_estimated_too() -> None:
    picture = Message("user", (TextPart("?"), ImagePart("data:image/png;base64," + "A" * 99999)))
    assert UNCALIBRATED.count([picture]) == 505
    call = Message("assistant", tool_calls=(ToolCall("1", "weather", "x" * 350),))
    assert UNCALIBRATED.count([call]) == pytest.approx(106, abs=1)


def test_an_estimate_learns_from_usage() -> None:
    messages = [Message("user", "word " * 100)]
    learned = UNCALIBRATED.learned(messages, Usage(prompt_tokens=101))
    assert learned.count(messages) == pytest.approx(101, abs=1)
    assert learned.count([Message("user", "word " * 1000)]) == pytest.approx(1001, rel=0.05)


@pytest.mark.parametrize("usage", [Usage(), Usage(prompt_tokens=50, estimated=True)])
def test_nothing_is_learned_from_what_nobody_counted(usage: Usage) -> None:
    assert UNCALIBRATED.learned([Message("user", "word " * 100)], usage) == UNCALIBRATED
    assert UNCALIBRATED.learned([], Usage(prompt_tokens=5)) == UNCALIBRATED


@pytest.mark.parametrize(("told", "scale"), [(1, 0.25), (10**9, 4.0)])
def test_what_cannot_be_the_prompt_s_size_is_not_believed(told: int, scale: float) -> None:
    messages = [Message("user", "word " * 100)]
    assert UNCALIBRATED.learned(messages, Usage(prompt_tokens=told)) == Estimate(scale)


# -- refused all the same --------------------------------------------------------------------------


def refused(prompt_tokens: int | None = None, window: int | None = None) -> PromptTooLong:
    return PromptTooLong("too long", prompt_tokens=prompt_tokens, window=window)


def test_a_refusal_without_numbers_costs_the_oldest_turn() -> None:
    chat = talk(2)
    fitted = chat.fit(None, Room(max_new_tokens=100))
    first = chat.after_refusal(fitted, refused())
    assert shown(first) == ["sys", "q1", "a1", "last"]
    assert first.notice == "the first turn was left out, since the whole was refused as too long"
    second = chat.after_refusal(first, refused())
    assert shown(second) == ["sys", "last"]
    assert second.notice.startswith("the first 2 turns were left out")
    with pytest.raises(PromptTooLong, match="too long"):
        chat.after_refusal(second, refused())


def test_a_refusal_with_numbers_tells_how_much_must_go() -> None:
    chat = talk(20)
    fitted = chat.fit(None, Room(max_new_tokens=30))
    again = chat.after_refusal(fitted, refused(Counter()(fitted.messages), window=120))
    assert Counter()(again.messages) <= 120
    assert again.dropped >= 12
    assert again.notice.endswith("no longer fit the window of 120 tokens and were left out")
    assert again.room.window == 120


def test_a_refusal_against_the_estimate_costs_a_turn_all_the_same() -> None:
    chat = talk(3)
    fitted = chat.fit(None, Room(window=100_000))
    assert chat.after_refusal(fitted, refused(window=100_000)).dropped == 1
