"""Turns as messages of a chat box."""

from __future__ import annotations

import pytest

from bourn.chat import Chat, Turn
from bourn.types import FinishReason, Message, Metrics, ToolCall
from bourn.web.view import now, past, question_at, shown
from tests.support.shown import texts, told

ASKED = Message("user", "  Why?\n")


def test_texts_are_shown_as_they_are() -> None:
    turn = Turn((ASKED, Message("assistant", "    code\n")))
    assert texts(shown(turn)) == ["  Why?\n", "    code\n"]
    assert [message["role"] for message in shown(turn)] == ["user", "assistant"]


def test_half_a_character_is_shown_as_none() -> None:
    turn = Turn((ASKED, Message("assistant", "a\ud83d")), error="\ud83d died")
    assert texts(shown(turn))[1] == "a?"
    assert "? died" in told(shown(turn))[0]


def test_formulas_of_the_model_are_marked_as_such_and_no_prices() -> None:
    turn = Turn((Message("user", "$a$"), Message("assistant", "$a$ for $5 and $6")))
    assert texts(shown(turn)) == ["$a$", r"\(a\) for $5 and $6"]


def test_a_long_answer_is_shown_in_parts_and_a_question_in_one() -> None:
    long = "Many words. " * 200 + "\n\nEnd."
    turn = Turn((Message("user", long), Message("assistant", long)))
    question, answer = shown(turn)
    assert texts([question]) == [long]
    assert texts([answer])[1:] == ["End."]
    assert "".join(texts([answer])) == long


def test_reasoning_is_folded_once_there_is_an_answer() -> None:
    thinking = Turn((ASKED, Message("assistant", "", reasoning="Hm.")))
    assert shown(thinking, live=True)[1]["metadata"] == {"title": "Thinking", "status": "pending"}
    assert shown(thinking)[1]["metadata"]["status"] == "done"
    answered = Turn((ASKED, Message("assistant", "So.", reasoning="Hm.")))
    assert shown(answered, live=True)[1]["metadata"]["status"] == "done"
    assert texts(shown(answered)) == ["  Why?\n", "Hm.", "So."]


def test_numbers_come_with_the_end_and_apart_from_the_text() -> None:
    metrics = Metrics(ttft=0.25, tokens=3, tokens_per_second=20.0)
    turn = Turn((ASKED, Message("assistant", "So.")), FinishReason.CANCELLED, metrics=metrics)
    assert texts(shown(turn, live=True)) == ["  Why?\n", "So."]
    assert texts(shown(turn)) == ["  Why?\n", "So."]
    (meter,) = told(shown(turn))
    assert all(each in meter for each in ("stopped", "0.25 s", "20.0 tokens/s", "3 tokens"))


@pytest.mark.parametrize("answer", [(), (Message("assistant", "So f"),)])
def test_an_error_is_said_below_what_there_is(answer: tuple[Message, ...]) -> None:
    turn = Turn((ASKED, *answer), error="<b>dead</b> & gone")
    messages = shown(turn)
    assert messages[-1]["role"] == "assistant"
    assert "&lt;b&gt;dead&lt;/b&gt; &amp; gone" in told(messages)[0]


def test_numbers_are_no_part_of_what_was_thought() -> None:
    turn = Turn((ASKED, Message("assistant", "", reasoning="Hm.")), FinishReason.LENGTH)
    assert len(shown(turn)) == 3
    assert "metadata" not in shown(turn)[2]


def test_an_answer_is_copied_as_the_model_wrote_it() -> None:
    turn = Turn((ASKED, Message("assistant", 'So: <b> & "c"\n', reasoning="Hm.")))
    (button,) = told(shown(turn))
    assert 'data-copy="So: &lt;b&gt; &amp; &quot;c&quot;\n"' in button
    assert told(shown(turn, live=True)) == []
    assert told(shown(Turn((ASKED,)))) == []


def test_calls_are_shown_as_code() -> None:
    call = ToolCall("1", "look", '{"at": "```"}')
    turn = Turn((ASKED, Message("assistant", "", tool_calls=(call,))))
    assert 'look({"at": "```"})' in texts(shown(turn))[1]


def test_only_the_last_turn_is_apart() -> None:
    chat = Chat().ask("1").answered("a").ask("2").answered("b").ask("3")
    assert texts(past(chat.turns)) == ["1", "a", "2", "b"]
    assert texts(now(chat.turns)) == ["3"]
    assert past(()) == now(()) == []


def test_which_question_a_message_is() -> None:
    turns = (
        Turn((ASKED, Message("assistant", "a", reasoning="r"))),
        Turn((ASKED,), error="it failed"),
        Turn((ASKED, Message("assistant", "c"))),
    )
    messages = [message for turn in turns for message in shown(turn)]
    found = [question_at(turns, index) for index in range(len(messages) + 1)]
    assert found == [0, None, None, 1, None, 2, None, None]
