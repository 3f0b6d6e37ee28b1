"""Reading an answer: where the reader stands in the journal, and what it has seen so far.

`Reader` waits for events, `Answer` adds them up. The streams of `bourn.aio` and `bourn.sync` are
both, with their own kind of waiting around them. Nothing here starts or ends a generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from bourn.errors import StreamClosed, StreamConsumed
from bourn.journal.base import Journal
from bourn.types import (
    Channel,
    Delta,
    Done,
    Event,
    Finished,
    FinishReason,
    Metrics,
    Sampling,
    Started,
    State,
    TokenLogprob,
    ToolCall,
    ToolDelta,
    Usage,
)

Origin = Literal["miss", "shared", "hit"]
"""Where an answer comes from: made for this reader, for others too, or there already."""


class Detach(Protocol):
    def __call__(self, reader: Reader, *, patient: bool) -> bool:
        """A reader goes. Whether the generation ends by it, at once where it is not `patient`."""
        ...


class Reader:
    """One reader of one journal, by offset. Belongs to an event loop; `detach` is called once.

    id: of the client's claim on the answer, by which it may come back, where it is `resumable`.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        after: int,
        detach: Detach,
        id: str,  # noqa: A002 (it is what it is called)
        origin: Origin = "miss",
        resumable: bool = False,
    ) -> None:
        self.id = id
        self.origin = origin
        self.resumable = resumable
        self._journal = journal
        self._after = after
        self._detach = detach
        self._wake = asyncio.Event()
        self._unsubscribe = journal.subscribe(self._wake.set)
        self._attached = True
        self._ended = False
        self._abandoned = False

    @property
    def created(self) -> float:
        """When the answer was begun; seconds since 1970."""
        return self._journal.label.created

    @property
    def seen(self) -> int:
        """The number of the last event that was read."""
        return self._after

    async def next(self) -> Sequence[Event]:
        """The events not seen yet, at least one; none after the end, or once this has left."""
        while not self._ended:
            self._wake.clear()
            batch = await self._journal.read(self._after)
            if batch:
                self._after += len(batch)
                self._ended = isinstance(batch[-1], Done)  # its claim lasts till it is read
                return batch
            if self._abandoned:
                self.leave()
                return (Done("cancelled"),)
            await self._wake.wait()
        self.leave()
        return ()

    def cancel(self) -> None:
        """Want no more of it. Idempotent.

        Where nobody else reads, the generation ends now, and its end is still to be read here.
        """
        if self._attached:
            self._attached = False
            self.dismiss(told=self._detach(self, patient=False))

    def dismiss(self, *, told: bool) -> None:
        """Its claim was given up. told: whether the journal will tell the end."""
        self._attached = False
        self._abandoned = not told
        self._wake.set()

    def leave(self) -> None:
        """Read no more. Idempotent."""
        self._ended = True
        self._unsubscribe()
        self._wake.set()
        if self._attached:
            self._attached = False
            self._detach(self, patient=True)


class Choice:
    """One of the answers to a request, as far as it was seen."""

    def __init__(self) -> None:
        self.finish_reason: FinishReason | None = None
        self.stop: str | None = None
        self.logprobs: list[TokenLogprob] = []
        self._parts: dict[Channel, list[str]] = {}
        self._content: list[str] = []
        self._calls: dict[int, ToolCall] = {}

    @property
    def text(self) -> str:
        return self.channel(Channel.ANSWER)

    @property
    def reasoning(self) -> str:
        return self.channel(Channel.REASONING)

    @property
    def content(self) -> str:
        """The answer, with what the model wrote as calls and could not be read as such."""
        return "".join(self._content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls so far, in order; the last one's arguments may still grow.

        They are to be run where the finish reason is `tool_calls`: else one may be cut off.
        """
        return tuple(call for _, call in sorted(self._calls.items()))

    def channel(self, channel: Channel) -> str:
        parts = self._parts.get(channel)
        if not parts:
            return ""
        if len(parts) > 1:
            parts[:] = ["".join(parts)]
        return parts[0]

    def take(self, delta: Delta) -> None:
        if delta.text:
            self._parts.setdefault(delta.channel, []).append(delta.text)
            if delta.channel is not Channel.REASONING:
                self._content.append(delta.text)
        self.logprobs += delta.logprobs
        if delta.tool is not None:
            self._call(delta.tool)

    def _call(self, part: ToolDelta) -> None:
        known = self._calls.get(part.index, ToolCall("", "", ""))
        self._calls[part.index] = ToolCall(
            part.id or known.id, part.name or known.name, known.arguments + part.arguments
        )


class Answer:
    """What is known of an answer so far; complete once `state` is set."""

    def __init__(self, id: str, on_event: Callable[[Event], object] | None = None) -> None:  # noqa: A002
        self.id = id
        self._on_event = on_event
        self.choices: list[Choice] = [Choice()]
        self.sampling: Sampling | None = None
        self.usage = Usage()
        self.metrics = Metrics()
        self.state: State | None = None
        self.error: BaseException | None = None
        self._consumed = False
        self._closed = False

    @property
    def text(self) -> str:
        """The answer, without reasoning."""
        return self.choices[0].text

    @property
    def reasoning(self) -> str:
        return self.choices[0].reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.choices[0].tool_calls

    @property
    def logprobs(self) -> list[TokenLogprob]:
        return self.choices[0].logprobs

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the answer ended; None while it goes on, or where it failed."""
        return self.choices[0].finish_reason

    @property
    def seed(self) -> int | None:
        """The seed that was used, given or drawn; None where the engine keeps none."""
        return self.sampling.seed if self.sampling else None

    def _see(self, event: Event) -> None:
        match event:
            case Delta():
                self._choice(event.choice).take(event)
            case Finished():
                choice = self._choice(event.choice)
                choice.finish_reason, choice.stop = event.reason, event.stop
            case Started():
                self.sampling = event.sampling
            case Done():
                self._end(event)
        if self._on_event is not None:
            self._on_event(event)

    def _see_all(self, events: Sequence[Event]) -> bool:
        """Whether there is a new snapshot in them: more text, or the end."""
        before = self.text
        for event in events:
            self._see(event)
        return self.text != before or (self.state is not None and not before)

    def _choice(self, index: int) -> Choice:
        while len(self.choices) <= index:
            self.choices.append(Choice())
        return self.choices[index]

    def _end(self, done: Done) -> None:
        self.state, self.usage, self.metrics = done.state, done.usage, done.metrics
        self.error = done.error
        if done.state == "cancelled":
            for choice in self.choices:
                choice.finish_reason = choice.finish_reason or FinishReason.CANCELLED

    def _begin(self) -> None:
        """A stream is read once.

        Raises:
            StreamConsumed, StreamClosed: it was read, or closed, before.
        """
        if self._consumed:
            raise StreamConsumed("this stream was read already", hint="its text is in `.text`")
        if self._closed:
            raise StreamClosed("this stream is closed", hint="open another one")
        self._consumed = True

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
