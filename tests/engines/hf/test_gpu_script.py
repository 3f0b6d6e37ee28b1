"""`bench.gpu` is for machines that are seldom at hand: what it does is tried here, small."""

from __future__ import annotations

import pytest

from bench.gpu import run


@pytest.mark.real
async def test_it_holds_on_a_cpu() -> None:
    assert await run("cpu", tiny=True) == []
