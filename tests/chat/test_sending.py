from __future__ import annotations

import pytest

from bourn.chat import CONTINUE, Chat, Room
from bourn.chat.sending import Sending, in_words
from bourn.errors import InvalidRequest, PromptTooLong, UnsupportedField

LONG = PromptTooLong("too long", prompt_tokens=None, window=None)


def talk(turns: int) -> Chat:
    chat = Chat()
    for number in range(turns):
        chat = chat.ask(f"q{number}").answered(f"a{number}")
    return chat.ask("Now?")


def sending(turns: int) -> Sending:
    chat = talk(turns)
    return Sending(chat, chat.fit(None, Room()))


def test_what_is_too_long_is_sent_without_more_of_the_oldest_turns() -> None:
    first = sending(9)
    second = first.shorter(LONG)
    assert (first.fitted.dropped, second.refusals) == (0, 1)
    assert second.asked is first.asked
    assert second.fitted.dropped >= 1
    assert second.shorter(LONG).fitted.dropped > second.fitted.dropped


def test_not_without_end() -> None:
    tried = sending(50)
    for _ in range(3):
        tried = tried.shorter(LONG)
    with pytest.raises(PromptTooLong):
        tried.shorter(LONG)


def test_not_without_the_question() -> None:
    with pytest.raises(PromptTooLong) as caught:
        sending(0).shorter(LONG)
    assert caught.value is LONG


def test_a_begun_answer_that_is_refused_is_asked_for_in_words() -> None:
    begun = Chat().ask("Count").answered("one").continued(prefill=True)
    refusal = InvalidRequest("no prefill with thinking")
    assert in_words(begun, refusal).messages[-1].text == CONTINUE
    for asked, why in (
        (begun, LONG),
        (begun, UnsupportedField("seed", "scripted")),
        (begun.continued(prefill=False), refusal),
        (talk(1), refusal),
    ):
        with pytest.raises(InvalidRequest) as caught:
            in_words(asked, why)
        assert caught.value is why
