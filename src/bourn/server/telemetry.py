"""What the server counts, as a page for Prometheus: vLLM's names, with `bourn:` before them.

Nothing is counted outside of a `Telemetry`, so that several servers may live in one process. Labels
are names of the server's own models, reasons and codes, of which there are few: nothing that people
send becomes one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple, Protocol, get_args

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bourn.generation import Generation
from bourn.hub import Hub
from bourn.server.tally import BOUNDS, Histogram, Tally
from bourn.stream import Origin
from bourn.types import FinishReason

MODEL = "model_name"

UNANSWERED = 499
"""As nginx calls it: the client has closed the connection before there was an answer."""


class Fleet(Protocol):
    """The models that are served."""

    @property
    def hubs(self) -> Mapping[str, Hub]: ...

    def states(self) -> Mapping[str, str]: ...


class Telemetry:
    """Counts what hubs and routes tell it, and writes the page. Belongs to one event loop.

    responses: of all routes, by status.
    """

    def __init__(self) -> None:
        self._tallies: defaultdict[str, Tally] = defaultdict(Tally)
        self.responses: Counter[int] = Counter()
        self._process = ProcessCollector(registry=None)

    def observe(self, generation: Generation, model: str) -> None:
        """One that has ended: a hub's `on_end`, with the name of its model.

        It takes some microseconds, and a tenth of one for each token.
        """
        assert generation.done is not None
        gaps = generation.recorder.gaps
        self._tallies[model].ended(generation.done, generation.reasons, gaps)

    def opened(self, origin: Origin, model: str) -> None:
        """Somebody has asked, and this is where the answer comes from."""
        self._tallies[model].origins[origin] += 1

    async def endpoint(self, http: Request) -> Response:
        """The route of the page. The application's state holds the fleet."""
        page = self.page(http.app.state.fleet)
        headers = {"content-type": CONTENT_TYPE_PLAIN_0_0_4, "cache-control": "no-store"}
        return Response(page, headers=headers)

    def page(self, fleet: Fleet) -> bytes:
        """Always as plain text: as OpenMetrics a name's colon is lost, in some lines of it."""
        for model in fleet.hubs:
            self._tallies[model]  # its zeros are told before anything has happened
        families = chain(_now(fleet), self._so_far(), self._process.collect())
        return generate_latest(_Families(families))

    def _so_far(self) -> Iterator[Metric]:
        responses = CounterMetricFamily(
            "bourn:http_responses", "Of all routes; 499 had nobody to go to.", labels=["status"]
        )
        for status, number in self.responses.items():
            responses.add_metric([str(status)], number)
        yield responses
        yield from _histograms(self._tallies)
        yield from _counters(self._tallies)


class Responses:
    """Counts the statuses of all that is answered, what is refused at the gate too."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app = app
        self._counts = telemetry.responses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = UNANSWERED

        async def heard(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, heard)
        finally:
            self._counts[status] += 1


class _Families(NamedTuple):
    """What an encoder takes for a registry."""

    families: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def _now(fleet: Fleet) -> Iterator[Metric]:
    ready = GaugeMetricFamily("bourn:model_ready", "Whether it is loaded.", labels=[MODEL])
    for model, state in fleet.states().items():
        ready.add_metric([model], state == "ready")
    yield ready
    for name, (about, number) in _GAUGES.items():
        gauge = GaugeMetricFamily(f"bourn:{name}", about, labels=[MODEL])
        for model, hub in fleet.hubs.items():
            gauge.add_metric([model], number(hub))
        yield gauge
    archives = {hub.archive for hub in fleet.hubs.values()}
    kept, size = sum(each.kept for each in archives), sum(each.bytes for each in archives)
    yield GaugeMetricFamily("bourn:kept_answers", "Answers that have ended, and are kept.", kept)
    yield GaugeMetricFamily("bourn:kept_answers_bytes", "What they take, about.", size)


def _histograms(tallies: Mapping[str, Tally]) -> Iterator[Metric]:
    for name, (about, histogram) in _HISTOGRAMS.items():
        family = HistogramMetricFamily(f"bourn:{name}", about, labels=[MODEL])
        for model, tally in tallies.items():
            counted = histogram(tally)
            family.add_metric([model], list(zip(_LE, counted.below(), strict=True)), counted.sum)
        yield family


def _counters(tallies: Mapping[str, Tally]) -> Iterator[Metric]:
    for name, (about, total) in _COUNTERS.items():
        counter = CounterMetricFamily(f"bourn:{name}", about, labels=[MODEL])
        for model, tally in tallies.items():
            counter.add_metric([model], total(tally))
        yield counter
    for name, (about, label, totals) in _COUNTERS_BY.items():
        counter = CounterMetricFamily(f"bourn:{name}", about, labels=[MODEL, label])
        for model, tally in tallies.items():
            for value, number in totals(tally).items():
                counter.add_metric([model, value], number)
        yield counter


_ENDS = [reason for reason in FinishReason if reason is not FinishReason.CANCELLED]

_LE = [*map(str, BOUNDS), "+Inf"]

_GAUGES: Mapping[str, tuple[str, Callable[[Hub], int]]] = {
    "num_requests_running": ("Choices being generated.", lambda hub: hub.running),
    "num_requests_waiting": ("Requests waiting for a slot.", lambda hub: hub.waiting),
    "num_readers": ("Connections that read an answer.", lambda hub: hub.readers),
}

_HISTOGRAMS: Mapping[str, tuple[str, Callable[[Tally], Histogram]]] = {
    "time_to_first_token_seconds": ("From the request to its first token.", lambda t: t.ttft),
    "inter_token_latency_seconds": ("From one token to the next.", lambda t: t.itl),
    "request_queue_time_seconds": ("Waiting for a slot.", lambda t: t.queue_time),
    "e2e_request_latency_seconds": ("From the request to its whole answer.", lambda t: t.total),
}

_COUNTERS: Mapping[str, tuple[str, Callable[[Tally], int]]] = {
    "prompt_tokens": (
        "Tokens of prompts, those of a cached prefix too.",
        lambda t: t.prompt_tokens,
    ),
    "prefix_cache_hits": ("Of these, tokens that were not read again.", lambda t: t.cached_tokens),
    "generation_tokens": ("Tokens generated, whatever became of them.", lambda t: t.tokens),
    "request_cancelled": ("Answers that nobody wanted any more.", lambda t: t.cancelled),
}

_COUNTERS_BY: Mapping[str, tuple[str, str, Callable[[Tally], Mapping[str, int]]]] = {
    "request_success": (
        "Choices that came to their end, by its reason.",
        "finished_reason",
        lambda t: {reason: t.finished[reason] for reason in _ENDS},
    ),
    "request_failed": ("Answers that failed, by the error's code.", "code", lambda t: t.failed),
    "requests": (
        "Requests, by where their answers came from.",
        "origin",
        lambda t: {origin: t.origins[origin] for origin in get_args(Origin)},
    ),
}
