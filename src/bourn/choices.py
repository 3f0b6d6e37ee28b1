"""What becomes of the pieces of one generation: a pipeline for each choice, and its end."""

from __future__ import annotations

from bourn.engines.base import ModelInfo
from bourn.text.pipeline import Pipeline
from bourn.types import Event, Finished, FinishReason, Piece, Progress, Request


class Choices:
    """The pipelines of one request's answers, and which of them go on."""

    def __init__(self, request: Request, info: ModelInfo) -> None:
        calls = info.calls if request.tools and request.tool_choice != "none" else None
        self._pipelines = [
            Pipeline(request.stop, info.channels, calls=calls) for _ in range(request.n)
        ]
        self._ended = [False] * request.n

    @property
    def live(self) -> bool:
        return not all(self._ended)

    @property
    def cut(self) -> bool:
        """Whether a stop string ended one of them: the engine does not know, and would go on."""
        return any(pipeline.stopped is not None for pipeline in self._pipelines)

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
        # looked at after the flush: a stop string may be found in what was held
        reason = piece.finish if pipeline.stopped is None else FinishReason.STOP
        if reason is FinishReason.STOP and pipeline.called:
            reason = FinishReason.TOOL_CALLS  # never at a limit: nobody is to run half an answer
        if reason is not None:
            self._ended[choice] = True
            events.append(Finished(reason, choice, pipeline.stopped))
        return events

    def rest(self) -> list[Event]:
        """What is held of choices that broke off: text that was generated is not lost."""
        broken = zip(self._pipelines, self._ended, strict=True)
        return [event for pipeline, ended in broken if not ended for event in pipeline.flush()]
