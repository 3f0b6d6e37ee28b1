"""What is the server's own: models, health, and what there is not."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from bourn.engines.scripted import Script, Scripted
from bourn.errors import LoadFailed
from bourn.sharing import key_for
from tests.support.scripted_site import CHAT, HI, Site, site

FOREVER = Script(["x "] * 1_000_000, delay=0.001)


class Slow(Scripted):
    """Loads when it is let."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(Script(["a"]))
        self.loads = asyncio.Event()
        self.error = error

    async def start(self) -> Any:
        await self.loads.wait()
        if self.error is not None:
            raise self.error
        return await super().start()


async def test_models_are_listed_with_their_states() -> None:
    engines = {"one": Scripted(Script(["a"])), "org/two": Slow()}
    async with site(engines=engines) as server:
        await server.ask(CHAT, HI)
        listed = (await server.ask("/v1/models")).json
        one = (await server.ask("/v1/models/org/two")).json
        missing = await server.ask("/v1/models/three")
    assert listed["object"] == "list"
    assert [(each["id"], each["state"]) for each in listed["data"]] == [
        ("one", "ready"),
        ("org/two", "loading"),
    ]
    assert one == listed["data"][1]
    assert one["object"] == "model"
    assert (missing.told.status, missing.told.error["code"]) == (404, "model_not_found")


async def test_it_is_ready_once_all_are_loaded_and_until_it_is_to_stop() -> None:
    engine = Slow()
    async with site(engines={"m": engine}) as server:
        told = await server.ask("/ready")
        assert (told.told.status, told.json["models"]) == (503, {"m": "loading"})
        assert (await server.ask("/health")).json == {"status": "ok"}
        assert (await server.ask("/health", method="HEAD")).told.status == 200
        engine.loads.set()
        await server.ask(CHAT, HI)
        told = await server.ask("/ready")
        assert told.told.status == 200
        assert told.json == {"ready": True, "draining": False, "models": {"m": "ready"}}
        server.fleet.draining = True
        told = await server.ask("/ready")
        assert (told.told.status, told.json["draining"]) == (503, True)
        assert (await server.ask("/health")).told.status == 200
        refused = await server.ask(CHAT, HI)
        assert (refused.told.status, refused.told.headers["retry-after"]) == (503, "5")


async def test_health_is_told_at_once_during_a_long_answer() -> None:
    async with site(FOREVER) as server:
        calls = [server.begin(CHAT, HI | {"stream": True}) for _ in range(20)]
        await calls[-1].until(lambda: calls[-1].told.status)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await server.ask("/health")
        assert loop.time() - begun < 10
        for call in calls:
            call.hang_up()
        await server.idle()


async def test_a_long_path_is_not_told_back_whole() -> None:
    async with site() as server:
        call = await server.ask("/" + "x" * 70_000)
    assert call.told.status == 404
    assert 100 < len(call.text) < 1000


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/", "GET", 404),
        ("/v1/nothing", "GET", 404),
        ("/v1/models/", "GET", 404),
        (CHAT, "GET", 405),
        (CHAT, "PUT", 405),
        ("/v1/streams/x", "POST", 405),
        ("/health", "DELETE", 405),
    ],
)
async def test_what_there_is_not(path: str, method: str, status: int) -> None:
    async with site() as server:
        call = await server.ask(path, method=method)
    assert (call.told.status, call.told.error["status"]) == (status, status)
    assert {"message", "type", "code", "param"} <= call.told.error.keys()
    if status == 405:
        assert method not in call.told.headers["allow"].split(", ")
    if path == "/v1/streams/x":
        assert call.told.headers["allow"] == "DELETE, GET"


async def test_a_client_that_goes_while_it_sends_its_body() -> None:
    async with site() as server:
        call = server.begin(CHAT, HI)
        call._body = []
        call.hang_up()
        await call.whole()
        assert call.told.status == 0
        assert server.engine.started == 0


async def test_what_happens_is_counted_and_written_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "bourn.access")
    async with site(key=key_for("m")) as server:
        cold = HI | {"temperature": 0}
        await server.ask(CHAT, cold | {"stream": True})
        call = await server.ask(CHAT, cold)
        assert await _counted(server, 'bourn:requests_total{model_name="m",origin="hit"}') == "1.0"
        assert await _counted(server, 'bourn:generation_tokens_total{model_name="m"}') == "2.0"
    id_ = call.told.headers["x-bourn-stream"]
    lines = [record.getMessage() for record in caplog.records if CHAT in record.getMessage()]
    assert f"model=m stream={id_.removeprefix('chatcmpl-')[:8]} origin=hit tokens=2" in lines[1]
    assert id_ not in "".join(lines)
    assert "tokens=2" in lines[0]


async def _counted(server: Site, name: str) -> str:
    page = (await server.ask("/metrics")).text
    return next(line.rpartition(" ")[2] for line in page.splitlines() if line.startswith(name))


async def test_a_bug_is_an_error_as_any_other(caplog: pytest.LogCaptureFixture) -> None:
    async with site() as server:
        server.hub.open = None  # type: ignore[assignment, method-assign]
        for body in (HI, HI | {"stream": True}):
            call = server.begin(CHAT, body)
            with pytest.raises(TypeError):
                await call.whole()  # for the log of whoever serves it
            assert (call.told.status, call.told.error["code"]) == (500, "internal_error")


async def test_a_model_that_cannot_be_loaded_is_no_reason_for_another_to_fail() -> None:
    bad = Slow(LoadFailed("no such file"))
    bad.loads.set()
    async with site(engines={"good": Scripted(Script(["a"])), "bad": bad}) as server:
        assert (await server.ask(CHAT, HI)).told.status == 200
        refused = await server.ask(CHAT, HI | {"model": "bad"})
        assert (refused.told.status, refused.told.error["code"]) == (500, "load_failed")
        assert (await server.ask("/ready")).told.status == 503
