"""`bourn serve` with real models, started as people start it, and asked with OpenAI's own SDK."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.serve import Served, gone, serving

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform == "win32", reason="signals"),
]

LONG: dict[str, Any] = {"messages": [{"role": "user", "content": "Tell me a long story"}]}
LONG |= {"max_tokens": 400, "extra_body": {"ignore_eos": True}}


@contextmanager
def sdk(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60
    ) as client:
        yield client


def said(client: openai.OpenAI, **more: Any) -> str:
    """A short answer, streamed."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Say hello."}]}
    body |= {"max_tokens": 12, "temperature": 0, "stream": True} | more
    parts = client.chat.completions.create(model="m", **body)
    return "".join(part.choices[0].delta.content or "" for part in parts if part.choices)


def test_one_streamed_answer_then_a_drain(named: tuple[str, ...], tmp_path: Path) -> None:
    with serving(*named, home=tmp_path) as server, sdk(server) as client:
        assert [model.id for model in client.models.list()] == ["m"]
        first = said(client)  # which waits for the model
        assert first
        assert said(client) == first
        processes = server.engines
        assert processes

        begun = threading.Event()

        def read() -> list[str]:
            told = []
            for part in client.chat.completions.create(
                model="m", stream=True, **(LONG | {"max_tokens": 60})
            ):
                begun.set()
                told += [choice.finish_reason or "" for choice in part.choices]
            return told

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read)
            assert begun.wait(30)
            assert server.end() == 0
            assert reading.result()[-1] == "length"
        assert gone(processes)
    assert "Traceback" not in server.told


def test_a_kill_of_the_engine_is_told_and_one_of_the_server_leaves_nothing(
    named: tuple[str, ...], tmp_path: Path
) -> None:
    with serving(*named, "--slots", "8", home=tmp_path) as server, sdk(server) as client:
        server.ready()
        all_read = threading.Barrier(9)

        def read() -> float:
            """The moment of the news."""
            parts = client.chat.completions.create(model="m", stream=True, **LONG)
            next(part for part in parts if part.choices and part.choices[0].delta.content)
            all_read.wait(30)
            with pytest.raises(openai.APIError, match="killed by signal 9"):
                list(parts)
            return time.monotonic()

        with ThreadPoolExecutor(8) as pool:
            reading = [pool.submit(read) for _ in range(8)]
            all_read.wait(30)
            killed = time.monotonic()
            for process in server.engines:
                os.kill(process.pid, signal.SIGKILL)
            news = [each.result() for each in reading]
        assert max(news) - killed < 10
        assert said(client)  # the ninth is served

        processes = server.engines
        assert processes
        server.process.kill()
        assert gone(processes)


def test_an_idle_model_is_unloaded_and_loaded_again(smollm2: Path, tmp_path: Path) -> None:
    arguments = (f"m={smollm2}", "--keep-alive", "1s")
    with serving(*arguments, home=tmp_path) as server, sdk(server) as client:
        first = said(client)
        processes = server.engines
        assert gone(processes)
        with server.client() as plain:
            assert plain.get("/ready").json()["models"] == {"m": "unloaded"}
        assert said(client) == first
        assert server.end() == 0
    assert "m is unloaded" in server.told
