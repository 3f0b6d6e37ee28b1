from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families as plain
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from bourn.engines.scripted import Script, Scripted
from bourn.errors import EngineCrashed
from bourn.hub import Hub
from bourn.server.telemetry import Responses, Telemetry
from bourn.terms import Terms
from bourn.types import Message, Request, Sampling
from tests.support.served_app import ask, hello, scope_of

ASK = Request(messages=(Message("user", "what is the secret?"),), sampling=Sampling(temperature=0))


@dataclass
class Models:
    """Hubs on scripted engines, watched."""

    telemetry: Telemetry = field(default_factory=Telemetry)
    hubs: dict[str, Hub] = field(default_factory=dict)

    async def add(self, name: str, script: Script, *, slots: int | None = None) -> Hub:
        on_end = partial(self.telemetry.observe, model=name)
        hub = Hub(
            Scripted(script, slots=slots), key=lambda asked, *_: str(asked.messages), on_end=on_end
        )
        self.hubs[name] = hub
        await hub.start()
        return hub

    async def answer(self, name: str) -> None:
        reader = self.hubs[name].open(ASK)
        self.telemetry.opened(reader.origin, name)
        while await reader.next():
            pass
        reader.leave()
        while self.hubs[name].live:
            await asyncio.sleep(0)

    def states(self) -> Mapping[str, str]:
        return {name: "ready" if name == "one" else "unloaded" for name in self.hubs}

    def value(self, name: str, **labels: str) -> float:
        page = self.telemetry.page(self)
        values = [
            sample.value
            for family in plain(page.decode())
            for sample in family.samples
            if sample.name == f"bourn:{name}" and labels.items() <= sample.labels.items()
        ]
        assert values, f"there is no {name} {labels}"
        return sum(values)


@pytest.fixture
def models() -> Models:
    return Models()


async def test_answers_are_counted_by_their_model(models: Models) -> None:
    await models.add("one", Script(["a", "b", "c"], prompt=7))
    await models.add("two", Script(["a"]))
    await models.answer("one")
    await models.answer("two")
    of = partial(models.value, model_name="one")
    assert of("prompt_tokens_total") == 7
    assert of("generation_tokens_total") == 3
    assert of("request_success_total", finished_reason="stop") == 1
    assert of("request_success_total", finished_reason="length") == 0
    assert of("time_to_first_token_seconds_count") == 1
    assert of("e2e_request_latency_seconds_count") == 1
    assert of("request_queue_time_seconds_count") == 1
    assert of("inter_token_latency_seconds_count") == 2
    assert of("inter_token_latency_seconds_bucket", le="+Inf") == 2
    assert models.value("generation_tokens_total") == 4


async def test_where_answers_come_from(models: Models) -> None:
    await models.add("one", Script(["a", "b"], delay=0.001))
    await asyncio.gather(*(models.answer("one") for _ in range(3)))
    await models.answer("one")
    assert models.value("requests_total", origin="miss") == 1
    assert models.value("requests_total", origin="shared") == 2
    assert models.value("requests_total", origin="hit") == 1
    assert models.value("generation_tokens_total") == 2
    assert models.value("kept_answers") == 1
    assert models.value("kept_answers_bytes") > 0


async def test_failures_and_hang_ups(models: Models) -> None:
    error = EngineCrashed("killed by: what is the secret?")
    await models.add("one", Script(["a"], fail_at=0, error=error))
    await models.answer("one")
    patient = await models.add("two", Script(["a"], delay=60))
    patient.open(ASK).leave()
    while patient.live:
        await asyncio.sleep(0)
    assert models.value("request_failed_total", code="engine_crashed", model_name="one") == 1
    assert models.value("request_cancelled_total", model_name="two") == 1
    assert models.value("e2e_request_latency_seconds_count") == 0


async def test_what_goes_on_at_this_moment(models: Models) -> None:
    hub = await models.add("one", Script(["a"], delay=60), slots=1)
    readers = [hub.open(ASK, Terms(owner=owner)) for owner in "ab"]
    other = hub.attach(readers[0].id, owner="a")
    readers.append(hub.open(Request(messages=(Message("user", "something else"),))))
    assert models.value("num_requests_running") == 1
    assert models.value("num_requests_waiting") == 1
    assert models.value("num_readers") == 4
    for reader in (*readers, other):
        reader.leave()
    await hub.aclose()
    assert models.value("num_readers") == 0


async def test_whether_models_are_loaded_and_their_zeros(models: Models) -> None:
    await models.add("one", Script())
    await models.add("two", Script())
    assert models.value("model_ready", model_name="one") == 1
    assert models.value("model_ready", model_name="two") == 0
    assert models.value("requests_total", model_name="two", origin="hit") == 0
    assert models.value("time_to_first_token_seconds_count", model_name="two") == 0


async def test_nothing_that_people_write_and_nothing_of_other_servers(models: Models) -> None:
    await models.add("one", Script(["the secret"], fail_at=1, error=ValueError("the secret")))
    await models.answer("one")
    page = models.telemetry.page(models)
    other = Telemetry().page(Models())
    assert b"secret" not in page
    assert b'"one"' not in other
    assert not [name for name in REGISTRY._names_to_collectors if name.startswith("bourn")]


async def test_the_page_grows_with_models_and_not_with_requests(models: Models) -> None:
    await models.add("one", Script(["a"]))
    await models.answer("one")
    before = models.telemetry.page(models)
    for _ in range(20):
        await models.answer("one")
    after = models.telemetry.page(models)
    assert after.count(b"\n") == before.count(b"\n")


async def test_the_route_of_the_page(models: Models) -> None:
    await models.add("one", Script(["a"]))
    app = Starlette(routes=[Route("/metrics", models.telemetry.endpoint)])
    app.state.fleet = models
    open_metrics = {"accept": "application/openmetrics-text; version=1.0.0,text/plain;q=0.5"}
    for headers in ({}, open_metrics):
        told = await ask(app, scope_of("/metrics", headers=headers))
        assert told.status == 200
        assert told.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert b'\nbourn:model_ready{model_name="one"} ' in told.bodies[0]


async def test_statuses_are_counted(models: Models) -> None:
    async def lost(scope: Scope, receive: Receive, send: Send) -> None:
        """Its client has gone before there was anything to send."""

    await ask(Responses(hello, models.telemetry), scope_of())
    await ask(Responses(hello, models.telemetry), scope_of())
    await ask(Responses(lost, models.telemetry), scope_of())
    await ask(Responses(lost, models.telemetry), {"type": "lifespan"})
    assert models.telemetry.responses == {200: 2, 499: 1}
    assert models.value("http_responses_total", status="200") == 2
