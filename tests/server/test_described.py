"""The server asked with whatever its own description allows, and with what it does not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from bourn.engines.scripted import ALL_FIELDS, Script
from tests.support.scripted_site import site
from tests.support.served_app import serving


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server in a thread of its own."""
    told: list[int] = []
    up = threading.Event()
    loop = asyncio.new_event_loop()
    down = asyncio.Event()

    async def serve() -> None:
        everything = ALL_FIELDS | {"stop_token_ids", "logit_bias", "min_new_tokens"}
        honours = everything | {"token ids as prompt"}
        script = Script(["Hel", "lo"])
        async with site(script, honours=honours) as server, serving(server.app) as port:
            told.append(port)
            up.set()
            await down.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert up.wait(10)
    yield f"http://127.0.0.1:{told[0]}"
    loop.call_soon_threadsafe(down.set)
    thread.join(10)
    loop.close()


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fits", [True, False], ids=["what fits", "what does not"])
def test_whatever_is_asked_it_answers_as_described(address: str, fits: bool) -> None:
    import schemathesis  # takes a second or two
    from schemathesis import GenerationMode, checks

    mode = GenerationMode.POSITIVE if fits else GenerationMode.NEGATIVE
    page = schemathesis.openapi.from_url(f"{address}/openapi.json")

    def check(case: Any) -> None:
        response = case.call()
        assert response.status_code != 500
        case.validate_response(
            response,
            checks=[
                checks.status_code_conformance,
                checks.content_type_conformance,
                checks.response_schema_conformance,
            ],
        )

    results: list[Any] = list(page.get_all_operations())
    operations = [result.ok() for result in results]
    assert len(operations) == 10
    few = settings(
        max_examples=30,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for operation in operations:
        if fits or operation.body or operation.query:
            cases: SearchStrategy[Any] = operation.as_strategy(generation_mode=mode)
            few(given(cases)(check))()
