"""What becomes of the pieces of one generation: a pipeline for each choice, and its end."""

from __future__ import annotations

from itertools import takewhile

from bourn.engines.base import ModelInfo
from bourn.text.pipeline import Pipeline
from bourn.types import Delta, Event, Finished, FinishReason, Piece, Progress, Request


class Choices:
    """The pipelines of one request's answers, and which of them go on."""

    def __init__(self, request: Request, info: ModelInfo) -> None:
        calls = info.calls if request.tools and request.tool_choice != "none" else None
        self._pipelines = [
            Pipeline(request.stop, info.channels, calls=calls) for _ in range(request.n)
        ]
        self._ended = [False] * request.n
        self._one_call = not request.parallel_tool_calls
        self._enough = False

    @property
    def live(self) -> bool:
        return not all(self._ended)

    @property
    def cut(self) -> bool:
        """Whether one of them was ended here: the engine does not know, and would go on."""
        stopped = any(pipeline.stopped is not None for pipeline in self._pipelines)
        return stopped or self._enough

    def feed(self, piece: Piece) -> list[Event]:
        """What a reader may see of this piece, now that it is certain."""
        if piece.prompt_total is not None and piece.prompt_done is not None:
            return [Progress(piece.prompt_done, piece.prompt_total)]
        choice = piece.choice
        if not 0 <= choice < len(self._ended) or self._ended[choice]:
            return []
        pipeline = self._pipelines[choice]
        if piece.opened is not None:
            pipeline.open(piece.opened)
        events: list[Event] = [*pipeline.feed(piece)]
        if piece.finish is not None:
            events += pipeline.flush()
        reason = _reason(piece, pipeline)
        if self._one_call:
            told = len(events)
            events = _up_to_the_second_call(events)
            if pipeline.called or len(events) < told:
                reason, self._enough = FinishReason.TOOL_CALLS, True
        if reason is not None:
            self._ended[choice] = True
            assumed = piece.assumed and pipeline.stopped is None
            events.append(Finished(reason, choice, pipeline.stopped, assumed))
        return events

    def rest(self) -> list[Event]:
        """What is held of choices that broke off: text that was generated is not lost."""
        broken = zip(self._pipelines, self._ended, strict=True)
        return [event for pipeline, ended in broken if not ended for event in pipeline.flush()]


def _reason(piece: Piece, pipeline: Pipeline) -> FinishReason | None:
    """Why the choice ends with this piece, of which all has been fed, and flushed; None: not yet.

    A stop string may have been found in what was held.
    """
    reason = piece.finish if pipeline.stopped is None else FinishReason.STOP
    if reason is FinishReason.STOP and pipeline.called:
        return FinishReason.TOOL_CALLS  # never at a limit: nobody is to run half an answer
    return reason


def _up_to_the_second_call(events: list[Event]) -> list[Event]:
    def is_before(event: Event) -> bool:
        return not (isinstance(event, Delta) and event.tool is not None and event.tool.index > 0)

    return [*takewhile(is_before, events)]
