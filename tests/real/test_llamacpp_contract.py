"""What bourn relies on in exactly this version of llama.cpp's server. A new pin must pass this.

All of it is asked on the bare wire, so that a failure here says what changed, and not what broke.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
import pytest_asyncio

from bourn.engines.llamacpp import LlamaCpp
from bourn.engines.llamacpp_worker import ALIAS

pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform == "win32", reason="asks over a unix socket"),
]

SLOTS = 2
WINDOW = 512
TELL: dict[str, Any] = {"return_progress": True, "timings_per_token": True}
USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}


class Reply(NamedTuple):
    status: int
    chunks: list[dict[str, Any]]
    last_line: str

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [chunk["choices"][0] for chunk in self.chunks if chunk["choices"]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(smollm2: Path) -> AsyncGenerator[httpx2.AsyncClient, None]:
    engine = LlamaCpp(smollm2, window=WINDOW, slots=SLOTS)
    await engine.start()
    once = httpx2.Limits(max_keepalive_connections=0)  # it closes idle connections, at any moment
    transport = httpx2.AsyncHTTPTransport(uds=engine._berth.host, limits=once)
    async with httpx2.AsyncClient(transport=transport, base_url="http://x", timeout=30) as client:
        yield client
    await engine.aclose()


async def ask(wire: httpx2.AsyncClient, said: str = "Hi", **more: Any) -> Reply:
    body = {"messages": [{"role": "user", "content": said}], "stream": True, "max_tokens": 4}
    response = await wire.post("/v1/chat/completions", json={**body, "temperature": 0, **more})
    lines = [line for line in response.text.split("\n") if line]
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return Reply(response.status_code, chunks, lines[-1])


async def test_health_answers(wire: httpx2.AsyncClient) -> None:
    response = await wire.get("/health")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_props_tell_the_window_of_a_slot_and_what_the_template_can(
    wire: httpx2.AsyncClient,
) -> None:
    props = (await wire.get("/props")).json()
    assert props["total_slots"] == SLOTS
    assert props["default_generation_settings"]["n_ctx"] == WINDOW
    assert props["default_generation_settings"]["params"]["temperature"] == pytest.approx(0.8)
    assert props["chat_template_caps"]["supports_tools"] is False
    assert props["modalities"]["vision"] is False
    assert "<|im_start|>" in props["chat_template"]


async def test_the_list_of_models_names_its_owner(wire: httpx2.AsyncClient) -> None:
    (model,) = (await wire.get("/v1/models")).json()["data"]
    assert (model["id"], model["owned_by"]) == (ALIAS, "llamacpp")


async def test_slots_tell_whether_they_are_busy(wire: httpx2.AsyncClient) -> None:
    slots = (await wire.get("/slots")).json()
    assert [slot["id"] for slot in slots] == [0, 1]
    # each has a window of its own; of a common cache each would call the whole its own
    assert [slot["n_ctx"] for slot in slots] == [WINDOW, WINDOW]
    assert [slot["is_processing"] for slot in slots] == [False, False]


async def test_the_order_of_a_stream(wire: httpx2.AsyncClient) -> None:
    reply = await ask(wire, "Tell me a story", ignore_eos=True, **TELL, **USAGE)
    assert reply.last_line == "data: [DONE]"
    progress = [chunk for chunk in reply.chunks if "prompt_progress" in chunk]
    rest = reply.chunks[len(progress) :]
    assert reply.chunks[: len(progress)] == progress  # first of all
    role, *tokens, finish, usage = rest
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert all(chunk["choices"][0]["delta"]["content"] for chunk in tokens)
    assert finish["choices"][0] == {"finish_reason": "length", "index": 0, "delta": {}}
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 4
    assert usage["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0
    assert {chunk["model"] for chunk in reply.chunks} == {ALIAS}


async def test_progress_counts_to_the_whole_prompt(wire: httpx2.AsyncClient) -> None:
    reply = await ask(wire, "word " * 300, cache_prompt=False, max_tokens=1, **TELL, **USAGE)
    progress = [c["prompt_progress"] for c in reply.chunks if "prompt_progress" in c]
    total = reply.chunks[-1]["usage"]["prompt_tokens"]
    assert [told["processed"] for told in progress] == [
        *range(0, total, 64),
        total,
    ]  # at each batch's end
    assert {told["total"] for told in progress} == {total}


async def test_every_chunk_with_text_counts_its_tokens(wire: httpx2.AsyncClient) -> None:
    reply = await ask(wire, ignore_eos=True, **TELL)
    said = [chunk for chunk in reply.chunks if (chunk["choices"][0]["delta"].get("content"))]
    assert [chunk["timings"]["predicted_n"] for chunk in said] == [1, 2, 3, 4]
    assert all(c["timings"]["prompt_n"] + c["timings"]["cache_n"] == 31 for c in said)


async def test_the_token_that_ends_it_is_counted_and_is_a_stop(wire: httpx2.AsyncClient) -> None:
    free = await ask(wire, max_tokens=100, temperature=0, **USAGE)
    needed = free.chunks[-1]["usage"]["completion_tokens"]
    for limit, reason in ((needed - 1, "length"), (needed, "stop"), (needed + 1, "stop")):
        reply = await ask(wire, max_tokens=limit, temperature=0, **USAGE)
        assert reply.choices[-1]["finish_reason"] == reason
        assert reply.chunks[-1]["usage"]["completion_tokens"] == min(limit, needed)


async def test_a_prompt_too_long_is_refused_with_both_numbers(wire: httpx2.AsyncClient) -> None:
    reply = await ask(wire, "word " * 600)
    assert reply.status == 400
    error = json.loads(reply.last_line)["error"]
    assert error["type"] == "exceed_context_size_error"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (631, WINDOW)


async def test_choices_have_their_own_seeds_and_ends(wire: httpx2.AsyncClient) -> None:
    reply = await ask(wire, "Tell me a story", n=2, max_tokens=8, temperature=1.0, seed=1)
    texts = [
        "".join(c["delta"].get("content") or "" for c in reply.choices if c["index"] == index)
        for index in (0, 1)
    ]
    assert texts[0] != texts[1]
    assert len([c for c in reply.choices if c["finish_reason"]]) == 2
    refused = await ask(wire, n=SLOTS + 1)
    assert refused.status == 400


async def test_log_probabilities(wire: httpx2.AsyncClient) -> None:
    reply = await ask(wire, logprobs=True, top_logprobs=2, ignore_eos=True)
    (entry,) = next(c for c in reply.choices if "logprobs" in c)["logprobs"]["content"]
    assert entry["token"].encode() == bytes(entry["bytes"])
    assert len(entry["top_logprobs"]) == 2


async def test_log_probabilities_of_parts_of_a_character_are_lost(
    wire: httpx2.AsyncClient,
) -> None:
    """A limit of this server: four tokens of one character give a single entry."""
    reply = await ask(wire, "Say: 🔥", max_tokens=8, temperature=0, logprobs=True, ignore_eos=True)
    said = "".join(c["delta"].get("content") or "" for c in reply.choices)
    entries = [e for c in reply.choices for e in (c.get("logprobs") or {}).get("content", ())]
    assert "🔥" in said
    assert 0 < len(entries) < 8
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == said


async def test_tools_are_dropped_where_the_template_has_none(wire: httpx2.AsyncClient) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with_tool = await ask(wire, tools=[tool], **USAGE)
    without = await ask(wire, **USAGE)
    assert with_tool.status == 200
    prompts = [r.chunks[-1]["usage"]["prompt_tokens"] for r in (with_tool, without)]
    assert prompts[0] == prompts[1]
    refused = await ask(wire, tools=[tool], logprobs=True)
    assert refused.status == 400


async def test_a_cached_prompt_shifts_the_numbers_and_none_does_not(
    wire: httpx2.AsyncClient,
) -> None:
    """Why a seeded request that shall be repeatable is read anew each time."""

    async def first(times: int, *, cache: bool) -> float:
        said = "Write about " + "a river, a stone, a lamp, " * times
        reply = await ask(wire, said, max_tokens=1, logprobs=True, cache_prompt=cache)
        told = next(c for c in reply.choices if "logprobs" in c)
        return float(told["logprobs"]["content"][0]["top_logprobs"][0]["logprob"])

    shifted = []
    for times in (8, 12, 16, 20):
        anew = await first(times, cache=False)
        await first(times - 5, cache=True)
        shifted.append(await first(times, cache=True) != anew)
        assert await first(times, cache=False) == anew
    assert any(shifted), shifted
