"""Whatever was said, a conversation fits its window, and is the same after it was kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from bourn.chat import UNCALIBRATED, Chat, Fitted, Room, Turn, suited
from bourn.chat.roles import fold_system, join_repeats
from bourn.errors import PromptTooLong, TemplateError
from bourn.types import FinishReason, ImagePart, Message, TextPart, ToolCall

short = st.text(alphabet="abU ส가🇫\ufffd\0\n", max_size=6)
sizes = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)

CALLS: tuple[tuple[ToolCall, ...], ...] = ((), (ToolCall("1", "f", "{"), ToolCall("", "", "")))
PARTS = ((), (TextPart("a"), ImagePart("u", "low"), TextPart(""), ImagePart("v")))


def message(role: str, text: str, kind: int) -> Message:
    """One of several shapes of message, by `kind`."""
    return Message(
        role,
        PARTS[kind % 2] if kind % 3 == 2 and role != "system" else text,
        name=text if kind % 5 == 1 else None,
        reasoning="why" if kind % 4 == 3 else "",
        tool_calls=CALLS[kind % 2] if role == "assistant" else (),
        tool_call_id=text if role == "tool" else None,
    )


roles = st.sampled_from(["system", "user", "assistant", "tool"])
messages = st.lists(st.tuples(roles, short, st.integers(0, 59)), max_size=8).map(
    lambda drawn: [message(*each) for each in drawn]
)
marks = st.tuples(
    st.sampled_from([None, *FinishReason]), st.none() | st.integers(0, 2**32), st.none() | short
)


def chat_of(drawn: list[tuple[int, int]], system: str | None, limit: int | None, kind: int) -> Chat:
    """Turns by the lengths of question and answer; an answer of no length is none yet."""
    chat = Chat(system, max_turns=limit, keep_first=bool(kind % 2))
    for asked, answer in drawn:
        chat = chat.ask("q" * asked)
        chat = chat.answered("a" * answer) if answer else chat
    return chat


chats = st.builds(
    chat_of, sizes, st.none() | short, st.none() | st.integers(1, 9), st.integers(0, 1)
)


def tokens(sent: Sequence[Message]) -> int:
    return sum(len(message.text) + 2 for message in sent)


def strange(sent: Sequence[Message]) -> int:
    """A count that is no sum: a template may write what it likes."""
    return (tokens(sent) * 7919) % 97


def fit(
    chat: Chat, count: Callable[[Sequence[Message]], int | None], room: Room
) -> Fitted | PromptTooLong:
    try:
        return chat.fit(count, room)
    except PromptTooLong as error:
        return error


rooms = st.builds(
    Room,
    st.integers(1, 120),
    st.none() | st.integers(1, 200),
    st.none() | st.integers(0, 130),
    st.sampled_from([0, 0.25, 0.5]),
)


@settings(max_examples=100, deadline=None)
@given(chats, rooms, short, st.sampled_from([tokens, strange]))
def test_what_is_sent_fits(
    chat: Chat, room: Room, question: str, count: Callable[[Sequence[Message]], int]
) -> None:
    asked = chat.ask(question)
    last = asked.turns[-1].messages
    head = () if chat.system is None else (Message("system", chat.system),)
    assert room.window is not None
    fitted = fit(asked, count, room)
    if isinstance(fitted, PromptTooLong):
        assert fitted.prompt_tokens == count((*head, *last)) >= room.window == fitted.window
        return
    assert fitted.prompt_tokens == count(fitted.messages)
    assert fitted.messages == sent_without(asked, fitted)
    assert fitted.messages[: len(head)] == head
    assert fitted.messages[-len(last) :] == last
    alone = fitted.dropped == len(asked.turns) - 1
    assert fitted.prompt_tokens <= room.prompt or (alone and fitted.prompt_tokens < room.window)
    assert fitted.max_new_tokens is not None
    assert 1 <= fitted.max_new_tokens <= room.window - fitted.prompt_tokens
    assert bool(fitted.notice) == (fitted.dropped > 0 or fitted.prompt_tokens > room.prompt)
    assert not fitted.estimated


def sent_without(chat: Chat, fitted: Fitted) -> tuple[Message, ...]:
    """What is sent when the first turns are left out, or those after the first one."""
    first = int(chat.keep_first and fitted.dropped < len(chat.turns) - 1)
    kept = chat.turns[:first] + chat.turns[first + fitted.dropped :]
    head = replace(chat, turns=()).messages
    return (*head, *(message for turn in kept for message in turn.messages))


@settings(max_examples=100, deadline=None)
@given(chats, rooms, short)
def test_no_turn_is_left_out_needlessly(chat: Chat, room: Room, question: str) -> None:
    asked = replace(chat, max_turns=None).ask(question)
    least = fit(asked, tokens, replace(room, step=0))
    fitted = fit(asked, tokens, room)
    if isinstance(least, PromptTooLong) or isinstance(fitted, PromptTooLong):
        assert str(least) == str(fitted)
        return
    assert least.dropped <= fitted.dropped
    if not least.dropped:
        assert not fitted.dropped
        return
    one_less = replace(least, dropped=least.dropped - 1)
    assert tokens(sent_without(asked, one_less)) > room.prompt
    first = int(asked.keep_first)
    beyond = asked.turns[first + least.dropped : first + fitted.dropped - 1]
    more = sum(UNCALIBRATED.count(turn.messages) for turn in beyond)
    assert more <= max(room.step * room.prompt, 1)


@settings(max_examples=100, deadline=None)
@given(chats, rooms, short)
def test_what_was_left_out_stays_out_as_the_talk_goes_on(
    chat: Chat, room: Room, question: str
) -> None:
    chat = replace(chat, max_turns=None)
    before = fit(chat.ask(question), tokens, room)
    after = fit(chat.ask(question).answered("a").ask(question), tokens, room)
    if isinstance(before, Fitted) and isinstance(after, Fitted):
        assert before.dropped <= after.dropped


@settings(max_examples=100, deadline=None)
@given(chats, rooms, short, st.integers(0, 5))
def test_waiting_for_the_count_changes_nothing(
    chat: Chat, room: Room, question: str, forgets: int
) -> None:
    """Also where the count is unknown from some moment on."""

    def counted(sent: Sequence[Message], asked: list[int]) -> int | None:
        asked.append(1)
        return tokens(sent) if len(asked) <= forgets else None

    async def wait(asked: list[int]) -> Fitted | PromptTooLong:
        async def count(sent: Sequence[Message]) -> int | None:
            return counted(sent, asked)

        try:
            return await chat.ask(question).afit(count, room)
        except PromptTooLong as error:
            return error

    asked: list[int] = []
    known = fit(chat.ask(question), lambda sent: counted(sent, asked), room)
    waited = asyncio.run(wait([]))
    if isinstance(waited, PromptTooLong):
        assert str(waited) == str(known)
    else:
        assert waited == known


@settings(max_examples=100, deadline=None)
@given(messages, marks, st.none() | short, st.sampled_from([None, True, False]))
def test_what_is_saved_is_loaded_back(
    given_: list[Message],
    marked: tuple[FinishReason | None, int | None, str | None],
    system: str | None,
    prefill: bool | None,
) -> None:
    turns = tuple(Turn(turn.messages, *marked) for turn in Chat.of(given_).turns)
    chat = Chat(system, turns, max_turns=3, keep_first=True)
    answer = turns[-1].answer if turns else None
    if prefill is not None and answer is not None and not answer.tool_calls:
        chat = chat.continued(prefill=prefill)
    text = chat.to_json()
    assert Chat.from_json(text) == chat
    assert Chat.from_json(text.encode()) == chat


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(), max_size=8), min_size=1, max_size=4))
def test_any_text_can_be_saved(said: list[str]) -> None:
    """Halves of surrogate pairs too; where two of them meet, they are one character."""
    chat = Chat(said[0])
    for text in said:
        chat = chat.ask(text).answered(text)
    loaded = Chat.from_json(chat.to_json().encode())
    assert [units(each) for each in loaded.messages] == [units(each) for each in chat.messages]


def units(sent: Message) -> bytes:
    return sent.text.encode("utf-16", "surrogatepass")


@settings(max_examples=100, deadline=None)
@given(chats, short, short)
def test_undo_is_the_earlier_value(chat: Chat, question: str, answer: str) -> None:
    asked = chat.ask(question)
    answered = asked.answered(answer)
    assert asked.undo() == answered.undo() == chat
    assert answered.retry() == asked
    assert answered.edit(-1, question) == asked
    assert answered.edit(len(chat.turns), question) == asked


@settings(max_examples=100, deadline=None)
@given(messages)
def test_messages_of_a_chat_are_those_it_was_made_of(given_: list[Message]) -> None:
    heads = next((n for n, each in enumerate(given_) if each.role != "system"), len(given_))
    assert Chat.of(given_).messages[bool(heads) :] == tuple(given_[heads:])


@settings(max_examples=100, deadline=None)
@given(messages)
def test_mended_messages_are_taken_and_nothing_is_lost(given_: list[Message]) -> None:
    try:
        mended = suited(given_, system="mend", repeats="mend")
    except TemplateError:
        spoke = [each.role for each in fold_system(given_)]
        assert spoke[0] == "assistant"
        return
    assert suited(mended, system="refuse", repeats="refuse") == mended
    assert join_repeats(mended) == mended
    for field in ("text", "reasoning"):
        before = "".join(getattr(each, field) for each in given_)
        after = "".join(getattr(each, field) for each in mended)
        assert after.replace("\n", "") == before.replace("\n", "")
    assert [image for each in mended for image in each.images] == [
        image for each in given_ for image in each.images
    ]
    assert [call for each in mended for call in each.tool_calls] == [
        call for each in given_ for call in each.tool_calls
    ]
