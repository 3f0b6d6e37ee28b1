from __future__ import annotations

import dataclasses

import pytest

import bourn
from bourn import aio, sync
from bourn.chat import CONTINUE, Chat, Turn
from bourn.engines.scripted import Script, Scripted
from bourn.errors import EngineError, InvalidRequest
from bourn.types import (
    Channel,
    FinishReason,
    ImagePart,
    Message,
    Piece,
    TextPart,
    ToolCall,
    ToolDelta,
)

CALL = ToolCall("call_1", "weather", '{"city": "Ulm"}')
TALK = Chat(system="Be brief.").ask("One?").answered("1").ask("Two?").answered("2")


def said(chat: Chat) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in chat.messages]


def test_it_is_the_public_name() -> None:
    assert bourn.Chat is Chat


def test_messages_are_in_order_the_system_message_first() -> None:
    assert said(TALK.ask("Three?")) == [
        ("system", "Be brief."),
        ("user", "One?"),
        ("assistant", "1"),
        ("user", "Two?"),
        ("assistant", "2"),
        ("user", "Three?"),
    ]


def test_each_change_leaves_the_earlier_value_as_it_was() -> None:
    before = Chat().ask("One?")
    before.answered("1").ask("Two?").edit(0, "Three?").with_system("x").clear()
    assert before == Chat().ask("One?")
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.system = "other"  # type: ignore[misc]


def test_no_system_message_and_an_empty_one_are_different() -> None:
    assert said(Chat().ask("?")) == [("user", "?")]
    assert said(Chat(system="").ask("?")) == [("system", ""), ("user", "?")]
    assert said(TALK.with_system(None))[0] == ("user", "One?")


def test_a_question_waits_until_it_is_answered() -> None:
    assert not Chat().open
    assert Chat().ask("?").open
    assert not TALK.open
    assert TALK.continued(prefill=True).open


def test_an_answer_without_a_question_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="nothing was asked"):
        Chat().answered("1")
    with pytest.raises(InvalidRequest, match="nothing was asked"):
        TALK.answered("more")


def test_only_a_user_asks() -> None:
    with pytest.raises(InvalidRequest, match="role `assistant` asks nothing"):
        Chat().ask(Message("assistant", "?"))


# -- a stream is an answer -------------------------------------------------------------------------


def test_a_stream_is_taken_with_its_marks() -> None:
    pieces: list[str | Piece] = [Piece("hmm", Channel.REASONING, tokens=1), "The ", "fox"]
    asked = Chat().ask("Who?")
    with (
        sync.Model(aio.Model(Scripted(Script(pieces)))).start() as model,
        model.stream(asked.messages, seed=7) as stream,
    ):
        stream.read()
        chat = asked.answered(stream, model="scripted")
    answer = Message("assistant", "The fox", reasoning="hmm")
    assert chat.turns == (
        Turn(
            (Message("user", "Who?"), answer),
            FinishReason.STOP,
            seed=7,
            model="scripted",
            metrics=stream.metrics,
        ),
    )
    assert stream.metrics.tokens == 3
    assert chat.model == "scripted"


async def test_what_was_stopped_is_kept_and_marked() -> None:
    asked = Chat().ask("Who?")
    script = Script(["The "] * 1000, delay=0.001)
    async with aio.Model(Scripted(script)) as model, model.stream(asked.messages) as stream:
        async for _ in stream:
            await stream.cancel()
        chat = asked.answered(stream)
    (turn,) = chat.turns
    assert turn.stopped
    assert turn.answer is not None
    assert turn.answer.text == stream.text != ""
    assert not TALK.turns[0].stopped


async def test_a_failed_answer_keeps_its_text_without_a_reason() -> None:
    asked = Chat().ask("Who?")
    async with aio.Model(Scripted(Script(["The ", "fox"], fail_at=1))) as model:
        stream = model.stream(asked.messages)
        with pytest.raises(EngineError):
            await stream.read()
    (turn,) = asked.answered(stream).turns
    assert turn.finish_reason is None
    assert turn.messages[-1].text == "The "


async def test_an_answer_that_is_not_at_its_end_has_no_measures_yet() -> None:
    asked = Chat().ask("Who?")
    script = Script(["The ", "fox"], delay=0.001)
    async with aio.Model(Scripted(script)) as model, model.stream(asked.messages) as stream:
        async for _ in stream:
            (turn,) = asked.answered(stream).turns
            assert turn.metrics is None
            break
    assert turn.messages[-1].text == "The "


def test_why_it_broke_off_may_be_told() -> None:
    (turn,) = Chat().ask("?").answered("1", error="the engine died").turns
    assert turn.error == "the engine died"
    (asked,) = Chat().ask("?").marked(error="there is none").turns
    assert (asked.answer, asked.error) == (None, "there is none")
    (stopped,) = Chat().ask("?").marked(finish_reason=FinishReason.CANCELLED).turns
    assert stopped.stopped
    (again,) = Chat().ask("?").marked(error="there is none").answered("1").turns
    assert again.error is None
    (retried,) = Chat().ask("?").answered("1", error="the engine died").retry().turns
    assert retried.error is None
    with pytest.raises(InvalidRequest, match="no such turn"):
        Chat().marked(error="?")


def test_a_reason_that_is_given_goes_before_the_answer_s_own() -> None:
    (turn,) = Chat().ask("?").answered("1", finish_reason=FinishReason.LENGTH).turns
    assert turn.finish_reason is FinishReason.LENGTH


# -- tools -----------------------------------------------------------------------------------------


def test_tools_and_their_results_belong_to_the_turn() -> None:
    calling = Message("assistant", tool_calls=(CALL,))
    result = Message("tool", "rain", tool_call_id="call_1")
    chat = Chat().ask("Weather?").answered(calling, finish_reason=FinishReason.TOOL_CALLS)
    assert not chat.open
    chat = chat.ask(result)
    assert chat.open
    chat = chat.ask(result).answered("It rains.")
    (turn,) = chat.turns
    assert [message.role for message in turn.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert turn.finish_reason is FinishReason.STOP
    assert chat.undo() == Chat()
    assert chat.retry() == Chat().ask("Weather?")


async def test_a_stream_of_tool_calls_is_an_answer() -> None:
    call = ToolDelta(0, CALL.id, CALL.name, CALL.arguments)
    script = Script([Piece(tool=call, channel=Channel.TOOL, tokens=1)])
    asked = Chat().ask("Weather?")
    async with aio.Model(Scripted(script)) as model:
        stream = model.stream(asked.messages)
        await stream.read()
    answer = asked.answered(stream).turns[0].answer
    assert answer is not None
    assert answer.tool_calls == (CALL,)


@pytest.mark.parametrize("chat", [Chat(), Chat().ask("?"), TALK])
def test_a_result_without_a_call_is_refused(chat: Chat) -> None:
    with pytest.raises(InvalidRequest):
        chat.ask(Message("tool", "rain", tool_call_id="call_1"))


# -- changed your mind -----------------------------------------------------------------------------


def test_undo_takes_back_whole_turns() -> None:
    assert TALK.undo() == Chat(system="Be brief.").ask("One?").answered("1")
    assert TALK.undo(2) == TALK.clear() == Chat(system="Be brief.")
    assert TALK.undo(0) == TALK
    for n in (3, -1):
        with pytest.raises(InvalidRequest, match="2 turns"):
            TALK.undo(n)


def test_retry_asks_the_last_question_again() -> None:
    assert TALK.retry() == Chat(system="Be brief.").ask("One?").answered("1").ask("Two?")
    assert TALK.retry().retry() == TALK.retry()
    with pytest.raises(InvalidRequest, match="no such turn"):
        Chat().retry()


@pytest.mark.parametrize("index", [0, -2])
def test_an_edit_cuts_what_came_after(index: int) -> None:
    assert TALK.edit(index, "Eins?") == Chat(system="Be brief.").ask("Eins?")


def test_the_last_question_can_be_edited() -> None:
    assert TALK.edit(-1, "Zwei?") == TALK.undo().ask("Zwei?")


def test_an_edit_keeps_the_images() -> None:
    picture = ImagePart("https://example.org/a.png")
    chat = Chat().ask(Message("user", (TextPart("What is this?"), picture)))
    edited = chat.edit(0, "Who is this?").messages[0]
    assert (edited.text, edited.images) == ("Who is this?", (picture,))


def test_there_must_be_something_to_edit() -> None:
    with pytest.raises(InvalidRequest, match="there are 2"):
        TALK.edit(2, "?")
    with pytest.raises(InvalidRequest, match="nothing was asked"):
        Chat.of([Message("assistant", "Hello!")]).edit(0, "?")


# -- more of the same answer -----------------------------------------------------------------------

CUT = Chat().ask("Count").answered("one, tw", finish_reason=FinishReason.LENGTH)


def test_a_begun_answer_may_be_the_last_message() -> None:
    going_on = CUT.continued(prefill=True)
    assert said(going_on)[-1] == ("assistant", "one, tw")
    chat = going_on.answered("o, three")
    assert said(chat) == [("user", "Count"), ("assistant", "one, two, three")]
    assert chat.turns[0].finish_reason is FinishReason.STOP
    assert not chat.open


def test_else_the_user_asks_for_more_and_that_is_not_kept() -> None:
    going_on = CUT.continued(prefill=False)
    assert said(going_on)[-2:] == [("assistant", "one, tw"), ("user", CONTINUE)]
    assert said(going_on.answered("three"))[-1] == ("assistant", "one, tw three")
    assert len(going_on.answered("three").turns) == 1


@pytest.mark.parametrize(
    ("begun", "more", "joined"),
    [
        ("one", "two", "one two"),
        ("one ", "two", "one two"),
        ("one", " two", "one two"),
        ("one", ", two", "one, two"),
        ("end.", "Next", "end. Next"),
        ("你", "好", "你好"),
        ("สวัส", "ดี", "สวัสดี"),
        ("", "two", "two"),
        ("one", "", "one"),
    ],
)
def test_two_words_do_not_run_together(begun: str, more: str, joined: str) -> None:
    chat = Chat().ask("?").answered(begun).continued(prefill=False).answered(more)
    assert said(chat)[-1] == ("assistant", joined)


def test_reasoning_is_joined_too() -> None:
    chat = Chat().ask("?").answered(Message("assistant", "a", reasoning="x"))
    chat = chat.continued(prefill=True).answered(Message("assistant", "b", reasoning="y"))
    assert chat.messages[-1] == Message("assistant", "ab", reasoning="xy")


@pytest.mark.parametrize(
    "chat",
    [Chat(), Chat().ask("?"), Chat().ask("?").answered(Message("assistant", tool_calls=(CALL,)))],
)
def test_there_must_be_an_answer_to_go_on_with(chat: Chat) -> None:
    with pytest.raises(InvalidRequest, match="no answer"):
        chat.continued(prefill=True)


def test_asking_undoing_and_retrying_end_the_going_on() -> None:
    going_on = CUT.continued(prefill=False)
    assert going_on.ask("Why?") == CUT.ask("Why?")
    assert going_on.retry() == CUT.retry()
    assert going_on.undo() == Chat()
    assert going_on.clear() == Chat()
    assert going_on.edit(0, "x") == Chat().ask("x")


# -- fewer turns -----------------------------------------------------------------------------------


def test_a_limit_in_turns_counts_the_last() -> None:
    talk = dataclasses.replace(TALK.ask("Three?"), max_turns=2)
    assert said(talk) == [
        ("system", "Be brief."),
        ("user", "Two?"),
        ("assistant", "2"),
        ("user", "Three?"),
    ]
    assert len(talk.turns) == 3, "what is not sent is not forgotten"
    first = dataclasses.replace(talk, keep_first=True)
    assert [text for _, text in said(first)] == ["Be brief.", "One?", "1", "Three?"]


def test_a_limit_of_no_turns_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="max_turns is 0"):
        Chat(max_turns=0)


# -- from messages ---------------------------------------------------------------------------------


def test_from_messages() -> None:
    assert Chat.of(
        {"role": each.role, "content": each.text} for each in TALK.messages
    ).messages == (TALK.messages)
    assert Chat.of(TALK.messages).turns[0].finish_reason is None


def test_system_messages_at_the_beginning_become_one() -> None:
    chat = Chat.of([Message("system", "a"), Message("developer", "b"), Message("user", "?")])
    assert chat == Chat(system="a\n\nb").ask("?")


def test_questions_in_a_row_are_turns_of_their_own() -> None:
    chat = Chat.of([Message("system", "a"), Message("user", "1"), Message("user", "2")])
    assert chat == Chat(system="a").ask("1").ask("2")


def test_a_model_may_speak_first() -> None:
    chat = Chat.of([Message("assistant", "Hello!"), Message("user", "Hi")])
    assert len(chat.turns) == 2
    assert chat.turns[0].question is None
    with pytest.raises(InvalidRequest, match="nothing was asked"):
        chat.undo().retry()


def test_a_later_system_message_belongs_to_what_follows() -> None:
    roles = ["user", "assistant", "system", "user", "assistant"]
    chat = Chat.of([Message(role, str(place)) for place, role in enumerate(roles)])
    assert [len(turn.messages) for turn in chat.turns] == [2, 3]
    assert said(chat.retry())[-2:] == [("system", "2"), ("user", "3")]
    assert said(chat.edit(1, "x"))[-2:] == [("system", "2"), ("user", "x")]


def test_a_system_message_with_an_image_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="image"):
        Chat.of([Message("system", (ImagePart("https://example.org/a.png"),))])


def test_a_turn_is_never_empty() -> None:
    with pytest.raises(InvalidRequest, match="no message"):
        Turn(())


# -- its title -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "title"),
    [
        ("What is\n  a bourn?", "What is a bourn?"),
        ("\x1b[31mred\x07\x00 \ud800", "[31mred"),
        ("word " * 40, "word " * 11 + "word…"),
        ("字" * 100, "字" * 59 + "…"),
        ("", ""),
    ],
)
def test_the_title_is_the_first_question_in_one_clean_line(asked: str, title: str) -> None:
    got = Chat().ask(asked).ask("later").title
    assert got == title
    assert len(got) <= 60


def test_nothing_asked_has_no_title_and_no_model() -> None:
    assert (Chat().title, Chat().model) == ("", None)
    assert Chat.of([Message("assistant", "Hello!"), Message("user", "Hi")]).title == "Hi"
