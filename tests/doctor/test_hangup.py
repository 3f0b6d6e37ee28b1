"""Servers whose client hangs up: what each does, and whether it could be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bourn.doctor.finding import CannotTell
from bourn.doctor.hangup import HangUp, Patience, hang_up
from bourn.engines.address import Address
from bourn.engines.http import Endpoint
from tests.support.busy_server import BusyServer, busy

QUICK = Patience(answer=10, idle=1.5, poll=0.01, slack=1.0)


def asks(tokens: int) -> Mapping[str, Any]:
    return {"max_tokens": tokens, "stream": True}


async def watched(server: BusyServer, tokens: int = 2000, patience: Patience = QUICK) -> HangUp:
    async with busy(server):
        wire = Endpoint(Address.of(server.url), api_key="")
        try:
            return await hang_up(wire, asks, tokens, patience)
        finally:
            await wire.aclose()


@pytest.mark.parametrize("gauge", ["/slots", "/metrics"])
@pytest.mark.parametrize("stops", [True, False])
async def test_a_server_that_tells(gauge: str, stops: bool) -> None:
    server = BusyServer(stops=stops, gauge=gauge)
    told = await watched(server)
    assert (told.stopped, told.how) == (stops, gauge)
    assert (told.after < QUICK.idle) is stops
    if stops:
        assert server.made < 100


@pytest.mark.parametrize("stops", [True, False])
async def test_a_server_of_one_at_a_time_is_told_by_the_next_request(stops: bool) -> None:
    told = await watched(BusyServer(stops=stops, serial=True))
    assert (told.stopped, told.how) == (stops, "the next request")


@pytest.mark.parametrize(
    ("server", "tokens", "why"),
    [
        (BusyServer(), 2000, "several at once"),
        (BusyServer(ends=1), 2000, "was over before"),
        (BusyServer(gauge="/slots", ends=1), 2000, "was over before"),
        (BusyServer(gauge="/slots", stops=False, pace=0.01), 20, "over anyway"),
        (BusyServer(gauge="/slots", running=1), 2000, "answering others"),
    ],
)
async def test_what_could_not_be_told(server: BusyServer, tokens: int, why: str) -> None:
    with pytest.raises(CannotTell, match=why):
        await watched(server, tokens)


async def test_a_page_that_stands_still_is_not_believed() -> None:
    class Still(BusyServer):
        def _page(self, path: str) -> bytes:
            return b'[{"is_processing": false}]' if path == "/slots" else b""

    with pytest.raises(CannotTell, match="does not show what it is doing"):
        await watched(Still(gauge="/slots"))


@pytest.mark.parametrize(
    ("gauge", "why"),
    [("/slots", "no text came of it in 0.3 seconds"), ("", "not done in 0.3 seconds")],
)
async def test_the_wait_for_a_first_text_has_an_end(gauge: str, why: str) -> None:
    with pytest.raises(CannotTell, match=why):
        await watched(BusyServer(gauge=gauge, pace=60), patience=Patience(0.3, 0.3, 0.01))
