"""Which turns of a conversation are sent: those that fit the window, the oldest left out first.

The rule is a plan: a generator that yields messages whose tokens it must know, is sent their count,
and returns what fits. So one rule serves a count that waits and one that does not. It knows no
template and no tokenizer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field, replace

from bourn.chat.estimate import UNCALIBRATED, Estimate
from bourn.chat.turn import Messages
from bourn.errors import InvalidRequest, PromptTooLong
from bourn.types import Message, Usage

Count = Callable[[Sequence[Message]], int | None]
"""Tokens of the prompt that a template makes of messages; None where this cannot be known."""

AsyncCount = Callable[[Sequence[Message]], Awaitable[int | None]]

_GUESSES = 3
"""How many counts may follow a guess, before the search halves what is left."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much may be sent, in tokens.

    window: prompt and answer together; None where unknown.
    max_new_tokens: the most that the answer may have; None is what is left.
    reserve: what is kept free for the answer, at the cost of old turns. None is `max_new_tokens`,
        but at most half of the window.
    step: by which share of the prompt's room old turns are left out, the turn in which it ends
        included. The next answers then find a prompt that begins alike in the KV cache; at 0 as few
        turns as possible are left out, and nearly each answer waits until all is read again.
    estimate: for where nobody can count.
    """

    window: int | None = None
    max_new_tokens: int | None = None
    reserve: int | None = None
    step: float = 0.25
    estimate: Estimate = UNCALIBRATED

    def __post_init__(self) -> None:
        for name, least in (("window", 1), ("max_new_tokens", 1), ("reserve", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InvalidRequest(f"{name} is {value}", hint=f"give {least} or more, or None")
        if not 0 <= self.step <= 0.5:
            raise InvalidRequest(f"step is {self.step}", hint="give a share from 0 to 0.5")

    @property
    def answer(self) -> int:
        """Tokens kept free for the answer, at least one."""
        if self.reserve is not None:
            return max(self.reserve, 1)
        half = max((self.window or 0) // 2, 1)
        return half if self.max_new_tokens is None else min(half, self.max_new_tokens)

    @property
    def prompt(self) -> int:
        """Tokens that the prompt may have, where old turns can still be left out."""
        return max((self.window or 0) - self.answer, 0)

    def after(self, refusal: PromptTooLong, sent: Messages) -> Room:
        """The room, as far as the refusal of what was sent tells of it."""
        told = Usage(prompt_tokens=refusal.prompt_tokens or 0)
        estimate = self.estimate.learned(sent, told)
        return replace(self, window=refusal.window or self.window, estimate=estimate)


@dataclass(frozen=True, slots=True)
class Fitted:
    """What to send.

    dropped: how many turns are left out. notice: what to tell the user about that, or "".
    prompt_tokens: of `messages`; `estimated` where nobody could count them.
    max_new_tokens: the limit to ask for, at most what the window leaves; None where neither is
        known.
    """

    messages: Messages
    dropped: int
    prompt_tokens: int
    estimated: bool
    max_new_tokens: int | None
    notice: str
    room: Room


@dataclass(frozen=True, slots=True)
class Transcript:
    """What there is to send. At least one turn; the last is never left out.

    head: the system message, never left out. limited: how many turns the user's own limit drops.
    keep_first: leave out the turns after the first, and the first only where nothing else is left.
    """

    head: Messages
    turns: tuple[Messages, ...]
    keep_first: bool = False
    limited: int = 0

    @property
    def most(self) -> int:
        """How many turns can be left out."""
        return len(self.turns) - 1

    def without(self, dropped: int) -> Messages:
        """The messages, when so many turns are left out."""
        first = int(self.keep_first and dropped < self.most)
        kept = self.turns[:first] + self.turns[first + dropped :]
        return (*self.head, *(message for turn in kept for message in turn))

    def dropped_as(self, number: int) -> Messages:
        """The turn that is left out as number 1, 2, …"""
        return self.turns[number - 1 + self.keep_first]


Plan = Generator[Messages, int | None, Fitted]


@dataclass(slots=True)
class Fitting:
    """One search for the fewest steps of turns to leave out, with as few counts as possible."""

    transcript: Transcript
    room: Room
    estimated: bool = False
    _tokens: dict[int, int] = field(default_factory=dict)

    def plan(self, dropped: int = 0) -> Plan:
        """Leaves out `dropped` turns at least.

        Raises:
            PromptTooLong: the last turn alone, with the system message, leaves no room.
        """
        dropped = min(max(dropped, self.transcript.limited), self.transcript.most)
        if self.room.window is None:
            yield from self._fits(dropped)  # only to tell how many tokens there are
        else:
            dropped = yield from self._fewest(dropped, self.room.window)
        return self._fitted(dropped)

    def _fewest(self, start: int, window: int) -> Generator[Messages, int | None, int]:
        if (yield from self._fits(start)):
            return start
        steps = self._steps(start)
        low, high, guesses = 0, len(steps) - 1, 0
        while high - low > 1:  # `low` is too long, `high` is not, or is the last there is
            middle = (low + high) // 2 if guesses >= _GUESSES else self._guess(steps, low, high)
            if (yield from self._fits(steps[middle])):
                high = middle
            else:
                low = middle
            guesses += 1
        if not (yield from self._fits(steps[high])):
            self._check_last(self._tokens[steps[high]], window)
        return steps[high]

    def _steps(self, start: int) -> list[int]:
        """How many turns may be left out, the last step all of them.

        They depend on what these turns are, not on how long the conversation has become since: so
        what is sent begins alike for some turns.
        """
        steps, gone = [start], 0.0
        quantum = max(self.room.step * self.room.prompt, 1)
        for number in range(1, self.transcript.most):
            before, gone = gone, gone + self._size(number)
            if number > start and gone // quantum > before // quantum:
                steps.append(number)
        return [*steps, self.transcript.most] if start < self.transcript.most else steps

    def _size(self, number: int) -> int:
        """About how many tokens the turn has that is left out as that number."""
        return UNCALIBRATED.count(self.transcript.dropped_as(number))

    def _fits(self, dropped: int) -> Generator[Messages, int | None, bool]:
        if dropped not in self._tokens:
            messages = self.transcript.without(dropped)
            told = None if self.estimated else (yield messages)
            self.estimated = told is None
            self._tokens[dropped] = self.room.estimate.count(messages) if told is None else told
        return self._tokens[dropped] <= self.room.prompt

    def _guess(self, steps: Sequence[int], low: int, high: int) -> int:
        """The step between them that should be enough, by the size of the texts."""
        tokens = self._tokens[steps[low]]
        scale = tokens / UNCALIBRATED.count(self.transcript.without(steps[low]))
        excess = (tokens - self.room.prompt) / scale
        for step in range(low + 1, high):
            excess -= sum(map(self._size, range(steps[step - 1] + 1, steps[step] + 1)))
            if excess <= 0:
                return step
        return high - 1

    def _check_last(self, tokens: int, window: int) -> None:
        """The last turn may take from the answer's room, but must leave some of it."""
        if tokens >= window and not self.estimated:
            system = "the system message and " if self.transcript.head else ""
            raise PromptTooLong(
                f"{system}the last question alone: {tokens} tokens, and the window has {window}",
                prompt_tokens=tokens,
                window=window,
            )

    def _fitted(self, dropped: int) -> Fitted:
        tokens = self._tokens[dropped]
        return Fitted(
            messages=self.transcript.without(dropped),
            dropped=dropped,
            prompt_tokens=tokens,
            estimated=self.estimated,
            max_new_tokens=self._limit(tokens),
            notice="; ".join(filter(None, (self._left_out(dropped), self._narrow(tokens)))),
            room=self.room,
        )

    def _limit(self, tokens: int) -> int | None:
        if self.room.window is None:
            return self.room.max_new_tokens
        left = self.room.window - tokens
        if self.estimated:  # what seems too long may not be so: then the answer has its room
            left = max(left, self.room.answer)
        asked = self.room.max_new_tokens
        return left if asked is None else min(left, asked)

    def _left_out(self, dropped: int) -> str:
        """What was left out and why, in words."""
        if not dropped:
            return ""
        first = self.transcript.keep_first and dropped < self.transcript.most
        turns = "turn" if dropped == 1 else f"{dropped} turns"
        which = f"the {turns} after the first" if first else f"the first {turns}"
        were = "was" if dropped == 1 else "were"
        if dropped <= self.transcript.limited:
            return f"{which} {were} left out, as the limit in turns says"
        if self.room.window is None:
            return f"{which} {were} left out, since the whole was refused as too long"
        fit = "fits" if dropped == 1 else "fit"
        window = f"the window of {self.room.window} tokens"
        return f"{which} no longer {fit} {window} and {were} left out"

    def _narrow(self, tokens: int) -> str:
        """That the last turn took from the answer's room, in words."""
        if self.room.window is None or self.estimated or tokens <= self.room.prompt:
            return ""
        left = self.room.window - tokens
        tokens_are = "token of the window is" if left == 1 else "tokens of the window are"
        return f"only {left} {tokens_are} left for the answer"


def fit(plan: Plan, count: Count) -> Fitted:
    """What fits, with a count that does not wait."""
    try:
        messages = next(plan)
        while True:
            messages = plan.send(count(messages))
    except StopIteration as end:
        return _fitted(end)


async def fit_async(plan: Plan, count: AsyncCount) -> Fitted:
    """What fits, with a count to wait for."""
    try:
        messages = next(plan)
        while True:
            messages = plan.send(await count(messages))
    except StopIteration as end:
        return _fitted(end)


def _fitted(end: StopIteration) -> Fitted:
    fitted: Fitted = end.value
    return fitted
