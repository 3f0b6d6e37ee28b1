from __future__ import annotations

import pytest

from bourn.chat import suited
from bourn.chat.roles import fold_system, join_repeats
from bourn.errors import TemplateError
from bourn.types import ImagePart, Message, TextPart, ToolCall

SYSTEM = Message("system", "Be brief.")
ASK = Message("user", "One?")
MORE = Message("user", "Two?")
SAY = Message("assistant", "1")
PICTURE = ImagePart("https://example.org/a.png")


def said(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


def test_what_the_template_takes_is_left_alone() -> None:
    messages = (SYSTEM, ASK, MORE, SAY, SAY)
    assert suited(messages, system="keep", repeats="keep") == messages


def test_a_system_message_that_is_refused_is_named() -> None:
    with pytest.raises(TemplateError, match="message 1 is a system message") as caught:
        suited([SYSTEM, ASK], system="refuse", repeats="keep")
    assert "folded" in caught.value.hint
    with pytest.raises(TemplateError, match="message 2"):
        suited([ASK, Message("developer", "x")], system="refuse", repeats="keep")
    assert suited([ASK], system="refuse", repeats="refuse") == (ASK,)


def test_a_system_message_is_folded_into_the_first_question() -> None:
    folded = suited([SYSTEM, ASK, SAY, MORE], system="mend", repeats="refuse")
    assert said(folded) == [("user", "Be brief.\n\nOne?"), ("assistant", "1"), ("user", "Two?")]


def test_several_are_folded_into_the_question_after_them() -> None:
    folded = fold_system([SYSTEM, SYSTEM, ASK, SAY, SYSTEM, MORE])
    assert said(folded)[0] == ("user", "Be brief.\n\nBe brief.\n\nOne?")
    assert said(folded)[2] == ("user", "Be brief.\n\nTwo?")


def test_where_no_question_follows_it_becomes_one() -> None:
    assert said(fold_system([SYSTEM, SAY])) == [("user", "Be brief."), ("assistant", "1")]
    assert said(fold_system([SYSTEM])) == [("user", "Be brief.")]


def test_folding_keeps_the_name_and_the_images() -> None:
    asked = Message("user", (TextPart("What?"), PICTURE), name="Ann")
    (folded,) = fold_system([SYSTEM, asked])
    assert folded.name == "Ann"
    assert folded.text == "Be brief.\n\nWhat?"
    assert folded.images == (PICTURE,)


def test_an_empty_system_message_adds_nothing() -> None:
    assert fold_system([Message("system", ""), ASK]) == (ASK,)
    picture = Message("user", (PICTURE,))
    assert fold_system([Message("system", ""), picture]) == (picture,)


def test_a_repeated_role_is_named() -> None:
    with pytest.raises(TemplateError, match="message 3 is the second of role `user`"):
        suited([SYSTEM, ASK, MORE], system="keep", repeats="refuse")
    with pytest.raises(TemplateError, match="message 3 is the second of role `assistant`"):
        suited([ASK, SAY, SAY], system="keep", repeats="refuse")
    with pytest.raises(TemplateError, match="message 3 is the second of role `user`"):
        suited([ASK, SYSTEM, MORE], system="keep", repeats="refuse")


def test_repeats_are_joined() -> None:
    joined = suited([SYSTEM, ASK, MORE, SAY, SAY], system="keep", repeats="mend")
    assert said(joined) == [
        ("system", "Be brief."),
        ("user", "One?\n\nTwo?"),
        ("assistant", "1\n\n1"),
    ]


def test_joining_loses_nothing() -> None:
    call = ToolCall("1", "weather", "{}")
    first = Message("assistant", "a", name="Ann", reasoning="x", tool_calls=(call,))
    second = Message("assistant", (TextPart("b"), PICTURE), name="Bob", reasoning="y")
    (joined,) = join_repeats([first, second])
    assert joined.text == "a\n\nb"
    assert joined.images == (PICTURE,)
    assert joined.reasoning == "x\n\ny"
    assert joined.tool_calls == (call,)
    assert joined.name is None
    assert join_repeats([first, first])[0].name == "Ann"


def test_results_of_tools_stay_apart() -> None:
    call = Message("assistant", tool_calls=(ToolCall("1", "a", "{}"), ToolCall("2", "b", "{}")))
    results = (Message("tool", "x", tool_call_id="1"), Message("tool", "y", tool_call_id="2"))
    messages = (ASK, call, *results, SAY)
    assert suited(messages, system="refuse", repeats="mend") == messages
    assert suited(messages, system="refuse", repeats="refuse") == messages


@pytest.mark.parametrize("repeats", ["refuse", "mend"])
def test_the_user_must_begin_where_roles_alternate(repeats: str) -> None:
    with pytest.raises(TemplateError, match="message 2 is the assistant's"):
        suited([SYSTEM, SAY, ASK], system="keep", repeats=repeats)  # type: ignore[arg-type]


def test_nothing_is_as_it_should_be() -> None:
    assert suited([], system="mend", repeats="mend") == ()
