"""The conversation itself. Each change gives another value; what was before stays as it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from bourn.chat import fitting, saved
from bourn.chat.fitting import AsyncCount, Count, Fitted, Fitting, Room, Transcript
from bourn.chat.saved import Saved
from bourn.chat.turn import Messages, Turn, parted
from bourn.errors import InvalidRequest, PromptTooLong
from bourn.messages import messages_of
from bourn.types import FinishReason, Message, Metrics, ToolCall

CONTINUE = "Continue."
"""What is asked, where an engine cannot go on with a message that the model has begun."""

_TITLE = 60


class Said(Protocol):
    """An answer as a stream leaves it: `bourn.Stream`, `bourn.aio.Stream`."""

    @property
    def text(self) -> str: ...
    @property
    def reasoning(self) -> str: ...
    @property
    def tool_calls(self) -> tuple[ToolCall, ...]: ...
    @property
    def finish_reason(self) -> FinishReason | None: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def metrics(self) -> Metrics: ...


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation.

    system: the system message, which is always sent. "" is an empty one: a template may have one of
        its own for None.
    max_turns: the most turns to send, the last one counted. keep_first: where turns are left out,
        keep the first one and leave out what follows it.
    bridge: set while the last answer is to be gone on with: what the user says for it, or "" where
        the messages end with the begun answer.

    Raises:
        InvalidRequest: max_turns is less than 1, or a bridge leads from no answer.
    """

    system: str | None = None
    turns: tuple[Turn, ...] = ()
    max_turns: int | None = None
    keep_first: bool = False
    bridge: str | None = None

    def __post_init__(self) -> None:
        if self.max_turns is not None and self.max_turns < 1:
            raise InvalidRequest(f"max_turns is {self.max_turns}", hint="give 1 or more, or None")
        if self.bridge is not None:
            self._answer()

    @classmethod
    def of(cls, messages: Iterable[Message | Mapping[str, Any]]) -> Self:
        """A conversation from its messages; dicts as in OpenAI's API.

        Raises:
            InvalidRequest: one of them is no message.
        """
        system, turns = parted(messages_of(list(messages)))
        return cls(system, turns)

    # -- what there is -----------------------------------------------------------------------------

    @property
    def messages(self) -> Messages:
        """What to send where no window is known: all, within `max_turns`."""
        transcript = self._transcript()
        return transcript.without(transcript.limited)

    @property
    def open(self) -> bool:
        """Whether an answer is wanted: to a question, to a tool's result, or more of the last."""
        return self.bridge is not None or (bool(self.turns) and self.turns[-1].answer is None)

    @property
    def title(self) -> str:
        """The first words of the first question, in one line without control characters."""
        asked = (turn.question for turn in self.turns)
        text = next((each.text for each in asked if each), "")[: 10 * _TITLE]
        clean = (letter for letter in text if letter.isprintable() or letter.isspace())
        words = " ".join("".join(clean).split())
        return words if len(words) <= _TITLE else words[: _TITLE - 1].rstrip() + "…"

    @property
    def model(self) -> str | None:
        """The model that answered last, where known."""
        return next((turn.model for turn in reversed(self.turns) if turn.model), None)

    # -- turns -------------------------------------------------------------------------------------

    def ask(self, asked: str | Message) -> Self:
        """With a further question; or with the result of a tool, which is no turn of its own.

        Raises:
            InvalidRequest: it is neither, or no tool was called.
        """
        message = Message("user", asked) if isinstance(asked, str) else asked
        if message.role == "tool":
            return self._last(self._calling().and_then(message))
        if message.role != "user":
            raise InvalidRequest(
                f"a message of role `{message.role}` asks nothing", hint="`user` and `tool` do"
            )
        return replace(self, turns=(*self.turns, Turn((message,))), bridge=None)

    def answered(
        self,
        answer: str | Message | Said,
        *,
        finish_reason: FinishReason | None = None,
        model: str | None = None,
        error: str | None = None,
    ) -> Self:
        """With an answer, or with more of the last one.

        answer: a stream that was read, also one that was stopped half-way.
        finish_reason: None is the stream's own. error: why it broke off, in words for a user.

        Raises:
            InvalidRequest: no answer is wanted.
        """
        if not self.open:
            raise InvalidRequest("nothing was asked", hint="ask, or continue the last answer")
        said = _said(answer)
        reason = finish_reason or said.finish_reason
        marks = replace(said, finish_reason=reason, model=model, error=error)
        message = said.messages[0]
        last = self.turns[-1]
        if self.bridge is None:
            return self._last(last.and_then(message, marks))
        return self._last(last.lengthened(message, marks, exactly=not self.bridge))

    def marked(
        self, *, finish_reason: FinishReason | None = None, error: str | None = None
    ) -> Self:
        """With another word on how the last turn ended; its answer need not have come.

        Raises:
            InvalidRequest: there is no turn.
        """
        return self._last(replace(self._turn(-1), finish_reason=finish_reason, error=error))

    def continued(self, *, prefill: bool) -> Self:
        """To go on with the last answer; `answered` then joins what comes to it.

        prefill: the messages end with the begun answer, which the engine must be able to go on
            with. Otherwise the user asks for more, in a message that is not kept.

        Raises:
            InvalidRequest: there is no answer, or it called tools.
        """
        return replace(self, bridge="" if prefill else CONTINUE)

    def undo(self, n: int = 1) -> Self:
        """Without the last `n` turns.

        Raises:
            InvalidRequest: there are not so many.
        """
        if not 0 <= n <= len(self.turns):
            raise InvalidRequest(
                f"there are {len(self.turns)} turns, {n} cannot be undone", hint="undo fewer"
            )
        return replace(self, turns=self.turns[: len(self.turns) - n], bridge=None)

    def retry(self) -> Self:
        """The last question again, without its answer.

        Raises:
            InvalidRequest: nothing was asked.
        """
        return self._last(self._turn(-1).unanswered())

    def edit(self, turn: int, text: str) -> Self:
        """Another text for the question of a turn, by index; its answer and all after it go.

        Raises:
            InvalidRequest: there is no such turn, or nothing was asked in it.
        """
        question = self._turn(turn).reworded(text)
        before = self.turns[:turn]  # right for negative numbers too
        return replace(self, turns=(*before, question), bridge=None)

    def with_system(self, text: str | None) -> Self:
        """With another system message, or none."""
        return replace(self, system=text)

    def clear(self) -> Self:
        """Without any turn; the system message and the options stay."""
        return replace(self, turns=(), bridge=None)

    # -- into a window -----------------------------------------------------------------------------

    def fit(self, count: Count | None, room: Room) -> Fitted:
        """What to send, so that prompt and answer fit the window: without the oldest turns.

        count: the tokens of a prompt. None, or one that gives None, is where nobody can count: the
            room's estimate is taken then, and the result says so.

        The system message and the last turn stay. Where that turn takes from the answer's reserve,
        the answer's limit is what is left, and the notice tells.

        Raises:
            PromptTooLong: the last turn leaves the answer no room at all.
            InvalidRequest: there is no turn.
        """
        return fitting.fit(self._fitting(room).plan(), count or _unknown)

    async def afit(self, count: AsyncCount, room: Room) -> Fitted:
        """The same as `fit`, with a count to wait for."""
        return await fitting.fit_async(self._fitting(room).plan(), count)

    def after_refusal(self, fitted: Fitted, refusal: PromptTooLong) -> Fitted:
        """What to send once more, where an endpoint found `fitted` too long: a turn less at least.

        What the refusal tells of the window and the prompt is made use of.

        Raises:
            PromptTooLong: `refusal`, where there is no turn that could be left out.
        """
        search = self._fitting(fitted.room.after(refusal, fitted.messages))
        if fitted.dropped >= search.transcript.most:
            raise refusal
        return fitting.fit(search.plan(fitted.dropped + 1), _unknown)

    # -- kept --------------------------------------------------------------------------------------

    def to_json(self, *, indent: int | None = None) -> str:
        """As JSON, whose `messages` are those of OpenAI's API."""
        said = Saved(self.system, self.turns, self.max_turns, self.keep_first, self.bridge)
        return saved.to_json(said, indent)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What `to_json` wrote; or a list of messages as in OpenAI's API, or an object with them.

        Raises:
            InvalidRequest: it is something else; says where.
        """
        return cls(**saved.from_json(text)._asdict())

    def to_markdown(self) -> str:
        """To be read by people."""
        return saved.to_markdown(self.system, self.turns)

    # -- inside ------------------------------------------------------------------------------------

    def _turn(self, index: int) -> Turn:
        try:
            return self.turns[index]
        except IndexError:
            raise InvalidRequest(
                f"there is no such turn: there are {len(self.turns)}", hint="ask something first"
            ) from None

    def _answer(self) -> Message:
        """The last answer, where there is one to go on with."""
        answer = self.turns[-1].answer if self.turns else None
        if answer is None or answer.tool_calls:
            raise InvalidRequest("there is no answer to go on with", hint="ask something first")
        return answer

    def _calling(self) -> Turn:
        """The last turn, where a tool was called in it."""
        last = self._turn(-1)
        if last.messages[-1].role != "tool" and not last.messages[-1].tool_calls:
            raise InvalidRequest("no tool was called", hint="ask the user's next question")
        return last

    def _last(self, turn: Turn) -> Self:
        return replace(self, turns=(*self.turns[:-1], turn), bridge=None)

    def _fitting(self, room: Room) -> Fitting:
        if not self.turns:
            raise InvalidRequest("there is nothing to answer", hint="ask something first")
        return Fitting(self._transcript(), room)

    def _transcript(self) -> Transcript:
        head = () if self.system is None else (Message("system", self.system),)
        turns = [turn.messages for turn in self.turns]
        if self.bridge:
            turns[-1] = (*turns[-1], Message("user", self.bridge))
        limited = 0 if self.max_turns is None else max(len(turns) - self.max_turns, 0)
        return Transcript(head, tuple(turns), self.keep_first, limited)


def _said(answer: str | Message | Said) -> Turn:
    """The message of an answer, why it ended, its seed, and how fast it was."""
    if isinstance(answer, str):
        return Turn((Message("assistant", answer),), FinishReason.STOP)
    if isinstance(answer, Message):
        return Turn((answer,))
    message = Message(
        "assistant", answer.text, reasoning=answer.reasoning, tool_calls=answer.tool_calls
    )
    metrics = None if answer.metrics == Metrics() else answer.metrics  # it is not at its end
    return Turn((message,), answer.finish_reason, answer.seed, metrics=metrics)


def _unknown(_: object) -> None:
    """A count where nobody can count."""
