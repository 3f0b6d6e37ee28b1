"""Whatever watchers do and when: an answer ends, is kept as it is shown, and computes no more."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from bourn.engines.scripted import Script
from bourn.types import FinishReason
from bourn.web.answering import Answering, Phase
from bourn.web.wishes import Wishes
from tests.support.desks import GUARD, desk

WORDS = [f"w{number} " for number in range(12)]

ACTS = st.lists(
    st.tuples(st.sampled_from(["watch", "leave", "stop", "keep", "drop"]), st.integers(0, 4)),
    max_size=8,
)


async def _act(answering: Answering, act: str, watchers: list[asyncio.Task[None]]) -> None:
    match act:
        case "watch":
            watchers.append(asyncio.create_task(_watch(answering)))
        case "leave" if watchers:
            watchers.pop().cancel()
        case "stop":
            answering.stop()
        case "keep" | "drop":
            answering.keep_going = act == "keep"


async def _watch(answering: Answering) -> None:
    async for _ in answering.watch(0.001):
        assert "".join(WORDS).startswith(answering.text)


async def _live(folder: Path, acts: list[tuple[str, int]], fail_at: int | None) -> None:
    script = Script(WORDS, delay=0.001, fail_at=fail_at)
    async with asyncio.timeout(GUARD), desk(folder, script, slots=1) as at:
        answering = await at.ask("Why?", Wishes(keep_going=True))
        watchers: list[asyncio.Task[None]] = []
        for act, pause in acts:
            await _act(answering, act, watchers)
            await asyncio.sleep(pause / 1000)
        await answering.end()
        await at.idle()
        ends = await asyncio.gather(*watchers, return_exceptions=True)
        assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends)
        (turn,) = answering.chat.turns
        assert answering.phase is Phase.ENDED
        assert at.kept() == answering.chat
        assert "".join(WORDS).startswith(answering.text)
        assert (turn.error is None) == (turn.finish_reason is not None)
        if turn.finish_reason is FinishReason.STOP:
            assert answering.text == "".join(WORDS)


@settings(max_examples=25, deadline=None)
@given(ACTS, st.one_of(st.none(), st.integers(0, len(WORDS))))
def test_an_answer_ends_and_is_kept(acts: list[tuple[str, int]], fail_at: int | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_live(Path(folder), acts, fail_at))
