"""`bench.gpu` is for machines that are seldom at hand: what it does is tried here, small."""

from __future__ import annotations

from bench.gpu import run


async def test_it_holds_on_a_cpu() -> None:
    assert await run("cpu", tiny=True) == []
