"""Answering the jobs of a batch, so many at once, and what comes of each. Writes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass, field
from typing import Any

from bourn.aio import Model, Stream
from bourn.batch.ahead import Ahead
from bourn.batch.jobs import Job
from bourn.errors import InvalidRequest, describe
from bourn.stream import Answer, Choice
from bourn.types import Request
from bourn.wire.answers import Head, whole_answer
from bourn.wire.events import logprob_object, metrics_object, usage_object


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a job: a whole answer, or an error."""

    job: Job
    came: Answer | Exception

    @property
    def failed(self) -> bool:
        return isinstance(self.came, Exception)

    @property
    def tokens(self) -> int:
        """How many were generated."""
        return 0 if isinstance(self.came, Exception) else self.came.usage.completion_tokens

    def object(self, model: str) -> dict[str, Any]:
        """A line of the output, in the form that the job had. model: the name of who answered."""
        if self.job.openai:
            return self._openai(model)
        if isinstance(self.came, Exception):
            return {"id": self.job.id, "line": self.job.line, "error": describe(self.came)}
        first, *others = map(_choice, self.came.choices)
        return {
            "id": self.job.id,
            **first,
            **({"choices": [first, *others]} if others else {}),
            "seed": self.came.seed,
            "usage": usage_object(self.came.usage),
            "metrics": metrics_object(self.came.metrics),
        }

    def _openai(self, model: str) -> dict[str, Any]:
        told: dict[str, Any] = {"custom_id": self.job.id}
        if isinstance(self.came, Exception):
            error = describe(self.came)
            return {**told, "line": self.job.line, "response": None, "error": error}
        asked = self.job.asked
        chat = isinstance(asked, Request) and asked.prompt is None
        id_ = f"{'chatcmpl' if chat else 'cmpl'}-{self.came.id}"
        head = Head(id_, model, int(time.time()), chat)
        body = whole_answer(head, self.came.choices, self.came.usage)
        response = {"status_code": 200, "request_id": self.came.id, "body": body}
        return {**told, "response": response, "error": None}


@dataclass(slots=True)
class Tally:
    """What was done so far. skipped: jobs that had a result from before. tokens: generated."""

    answered: int = 0
    failed: int = 0
    skipped: int = 0
    tokens: int = 0
    _began: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        self.failed += outcome.failed
        self.answered += not outcome.failed
        self.tokens += outcome.tokens

    @property
    def done(self) -> int:
        """How many jobs need no work any more, those that failed included."""
        return self.answered + self.failed + self.skipped

    @property
    def seconds(self) -> float:
        """Since the first job was to be done."""
        return time.monotonic() - self._began


def _choice(choice: Choice) -> dict[str, Any]:
    """Only what there is. A call that could not be read is in the text."""
    told: dict[str, Any] = {"text": choice.content}
    if choice.reasoning:
        told["reasoning"] = choice.reasoning
    if choice.tool_calls:
        told["tool_calls"] = [asdict(call) for call in choice.tool_calls]
    if choice.logprobs:
        told["logprobs"] = [logprob_object(entry) for entry in choice.logprobs]
    return told | {"finish_reason": choice.finish_reason and choice.finish_reason.value}


async def answers(model: Model, jobs: Ahead[Job], *, at_once: int) -> AsyncGenerator[Outcome, None]:
    """What comes of each job, as soon as it is there. Whatever goes wrong with one is its own.

    at_once: how many are asked at the same time; more than the model has slots wait in its queue.

    Raises:
        Exception: what reading the jobs raised, once those before are answered.
    """
    outcomes: asyncio.Queue[Outcome | None] = asyncio.Queue()

    async def work() -> None:
        try:
            while (job := await jobs.take()) is not None:
                outcomes.put_nowait(await _outcome(model, job))
        finally:
            outcomes.put_nowait(None)

    workers = [asyncio.create_task(work()) for _ in range(at_once)]
    try:
        going = at_once
        while going:
            outcome = await outcomes.get()
            if outcome is None:
                going -= 1
            else:
                yield outcome
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def _outcome(model: Model, job: Job) -> Outcome:
    if isinstance(job.asked, InvalidRequest):
        return Outcome(job, job.asked)
    try:
        async with Stream(model.hub.open(job.asked)) as stream:
            await stream.read()
    except Exception as error:  # noqa: BLE001 (whatever it is, it belongs to this line)
        return Outcome(job, error)
    return Outcome(job, stream)
