"""How answers of real models end: told alike by both engines, streamed and whole."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.scripted_site import CHAT, TEXT, Frame, frames
from tests.support.serve import Served, serving

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform == "win32", reason="signals"),
]

WINDOW = 256
SEVEN = 39
"""The token "7"."""

WORKERS = {"gguf": "llamacpp_worker", "checkpoint": "hf.child.worker"}
"""What stands in the commands of their processes."""


def asking(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **more}


FRANCE = asking("Name the capital of France.")
COUNTING = {"prompt": "1, 2, 3, 4,"}
LONG = asking("Tell me a long story", ignore_eos=True, max_tokens=None)


@dataclass(frozen=True)
class Ending:
    """body: what is asked. text: a pattern of the answer. tokens: how many it takes.

    refused: the field that an engine cannot honour, by the model's name.
    """

    body: Mapping[str, Any]
    reason: str
    text: str = ".+"
    tokens: int | None = None
    refused: Mapping[str, str] = field(default_factory=dict)


ENDINGS = {
    "the model's own end": Ending(FRANCE, "stop", ".*Paris.*"),
    "a stop string within a token": Ending(FRANCE | {"stop": "aris"}, "stop", "[^!]* P"),
    "a stop string across tokens": Ending(COUNTING | {"stop": ["x", "6, 7"]}, "stop", " 5, "),
    "a stop token": Ending(
        COUNTING | {"stop_token_ids": [SEVEN]},
        "stop",
        " 5, 6, ",
        refused={"gguf": "stop_token_ids"},
    ),
    "the limit": Ending(COUNTING | {"max_tokens": 4}, "length", " 5, ", tokens=4),
    "the limit, by its newer name": Ending(
        FRANCE | {"max_completion_tokens": 2, "max_tokens": 9}, "length", tokens=2
    ),
    "the limit, with what may become a stop string": Ending(
        COUNTING | {"max_tokens": 3, "stop": " 5, x"}, "length", " 5,", tokens=3
    ),
    "the limit, beyond the model's own end": Ending(
        FRANCE | {"max_tokens": 16, "ignore_eos": True}, "length", "(?s).*Paris.*", tokens=16
    ),
    "no end before the least": Ending(
        FRANCE | {"min_tokens": 16, "max_tokens": 20},
        "stop|length",
        "(?s).*Paris.*",
        refused={"gguf": "min_tokens"},
    ),
    "the window": Ending(
        {"prompt": "word" + " word" * (WINDOW - 13), "max_tokens": None, "ignore_eos": True},
        "length",
        "(?s).+",
        tokens=12,
    ),
}


class Asked:
    """One request that was answered."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.status = answer.status_code
        self.headers = answer.headers
        self.text = answer.text

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def frames(self) -> list[Frame]:
        *told, done = frames(self.text)
        assert done.data == "[DONE]"
        return told

    @property
    def chunks(self) -> list[Any]:
        return [json.loads(frame.data) for frame in self.frames]


def ask(server: Served, model: str, body: Mapping[str, Any], *, stream: bool = False) -> Asked:
    """Greedy, and made anew each time."""
    how: dict[str, Any] = {"model": model, "temperature": 0, "seed": 1, "max_tokens": 60}
    how |= {"bourn": {"cache": "no-cache"}}
    if stream:
        how |= {"stream": True, "stream_options": {"include_usage": True}}
    with server.client() as client:
        return Asked(client.post(TEXT if "prompt" in body else CHAT, json=how | dict(body)))


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_endings(both: Served, model: str, ending: Ending) -> None:
    whole, streamed = (ask(both, model, ending.body, stream=stream) for stream in (False, True))
    if (refused := ending.refused.get(model)) is not None:
        for told in (whole, streamed):
            assert (told.status, told.error["param"]) == (400, refused)
            assert f"`{refused}`" in told.error["message"]
        return
    assert (whole.status, streamed.status) == (200, 200)
    (choice,) = whole.json["choices"]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    assert re.fullmatch(ending.text, text)
    assert re.fullmatch(ending.reason, choice["finish_reason"])
    usage = whole.json["usage"]
    assert usage["completion_tokens"] == ending.tokens or not ending.tokens
    assert usage["prompt_tokens"] > 5
    assert "estimated" not in usage
    assert_streamed(streamed, text, choice["finish_reason"], usage)


def assert_streamed(told: Asked, text: str, reason: str, usage: Mapping[str, Any]) -> None:
    """Its frames tell the same, each in its place."""
    *parts, finish, last = told.chunks
    id_ = told.headers["x-bourn-stream"]
    assert {chunk["id"] for chunk in told.chunks} == {id_}
    numbers = [frame.number for frame in told.frames if frame.id]
    assert numbers == sorted(set(numbers))
    assert {frame.id.rpartition(":")[0] for frame in told.frames if frame.id} == {id_}
    choices = [part["choices"][0] for part in parts]
    if "delta" in choices[0]:
        assert choices.pop(0)["delta"] == {"role": "assistant", "content": ""}
        assert all(each["delta"].keys() == {"content"} for each in choices)
        assert finish["choices"][0]["delta"] == {}
    texts = [each["delta"]["content"] if "delta" in each else each["text"] for each in choices]
    assert "".join(texts) == text
    assert texts
    assert all(texts)
    assert {each["finish_reason"] for each in choices} == {None}
    assert finish["choices"][0]["finish_reason"] == reason
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], usage["total_tokens"])


def test_an_end_at_the_limit_is_the_models_own(both: Served, model: str) -> None:
    needed = ask(both, model, FRANCE).json["usage"]["completion_tokens"]
    for limit, reason in ((needed - 1, "length"), (needed, "stop")):
        for stream in (False, True):
            told = ask(both, model, FRANCE | {"max_tokens": limit}, stream=stream)
            end = told.chunks[-2] if stream else told.json
            assert end["choices"][0]["finish_reason"] == reason


# -- endings that are no end -----------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_prompt_that_is_too_long_is_refused(both: Served, model: str, stream: bool) -> None:
    told = ask(both, model, asking("word " * 600), stream=stream)
    assert (told.status, told.error["code"]) == (400, "context_length_exceeded")
    assert str(WINDOW) in told.error["message"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_tools_that_the_template_does_not_show_are_refused(
    both: Served, model: str, stream: bool
) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    told = ask(both, model, FRANCE | {"tools": [tool]}, stream=stream)
    assert (told.status, told.error["param"]) == (400, "tools")


class Begun:
    """A request that runs on in a thread, and is seen to run."""

    def __init__(self, server: Served, model: str, *, stream: bool) -> None:
        self._running = threading.Event()
        self._others = server.count("bourn:num_requests_running", model)
        self._pool = ThreadPoolExecutor(1)
        self._told = self._pool.submit(self._ask, server, model, stream)
        self.id = ""
        assert self._running.wait(50)

    def _ask(self, server: Served, model: str, stream: bool) -> str:
        body = LONG | {"model": model, "stream": stream, "bourn": {"cache": "no-store"}}
        told = ""
        with server.client() as client:
            if not stream:
                threading.Thread(target=self._watch, args=(server, model), daemon=True).start()
                return client.post(CHAT, json=body).text
            with client.stream("POST", CHAT, json=body) as answer:
                for part in answer.iter_text():
                    told += part
                    self.id = answer.headers["x-bourn-stream"]
                    self._running.set()
        return told

    def _watch(self, server: Served, model: str) -> None:
        if server.becomes("bourn:num_requests_running", model, self._others + 1):
            self._running.set()

    def end(self) -> str:
        told = self._told.result(30)
        self._pool.shutdown()
        return told


def test_a_client_that_leaves_ends_it(both: Served, model: str) -> None:
    cancelled, running = "bourn:request_cancelled_total", "bourn:num_requests_running"
    before = both.count(cancelled, model)
    body = LONG | {"model": model}
    with (
        both.client() as client,
        client.stream("POST", CHAT, json=body | {"stream": True}) as answer,
    ):
        next(answer.iter_text())
    assert both.becomes(cancelled, model, before + 1)
    whole = HTTPConnection(both.url.removeprefix("http://"))
    whole.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json"})
    assert both.becomes(running, model, 1)
    whole.close()
    assert both.idle(model)
    assert both.becomes(cancelled, model, before + 2)


def test_a_stream_that_is_cancelled_by_its_id(both: Served, model: str) -> None:
    begun = Begun(both, model, stream=True)
    with both.client() as client:
        for cancelled in (True, False):
            told = client.post(f"/v1/streams/{begun.id}/cancel").json()
            assert told["cancelled"] is cancelled
    *_, finish, done = frames(begun.end())
    assert json.loads(finish.data)["choices"][0]["finish_reason"] == "cancelled"
    assert done.data == "[DONE]"
    assert both.idle(model)


@pytest.fixture(scope="module")
def hasty(
    smollm2: Path, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """One that has little time for an answer, and one slot of each model for all."""
    models = (f"gguf={smollm2}", f"checkpoint={checkpoint}")
    how = ("--threads", "1", "--window", "2048", "--cpu-only", "--slots", "1")
    times = ("--timeout", "6s", "--queue-timeout", "1s")
    with serving(*models, *how, *times, home=tmp_path_factory.mktemp("home")) as server:
        server.ready()
        yield server


def test_what_takes_too_long_is_cut_off_with_an_error(hasty: Served, model: str) -> None:
    told = ask(hasty, model, LONG)
    assert (told.status, told.error["code"]) == (504, "answer_timeout")
    told = ask(hasty, model, LONG, stream=True)
    assert told.status == 200
    _, *texts, failed = told.chunks
    assert texts
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in texts)
    assert failed["error"]["code"] == "answer_timeout"
    assert hasty.idle(model)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_who_waits_too_long_for_a_slot_is_told(hasty: Served, model: str, stream: bool) -> None:
    begun = Begun(hasty, model, stream=True)
    told = ask(hasty, model, FRANCE, stream=stream)
    begun.end()
    assert hasty.idle(model)
    assert (told.status, told.error["code"]) == (503, "overloaded")
    assert int(told.headers["retry-after"]) > 0


def test_an_engine_that_is_killed_is_told_and_the_next_is_answered(
    both: Served, model: str
) -> None:
    begun = [Begun(both, model, stream=stream) for stream in (True, False)]
    (engine,) = (each for each in both.engines if WORKERS[model] in " ".join(each.cmdline()))
    engine.kill()
    streamed, whole = (each.end() for each in begun)
    *_, failed, done = frames(streamed)
    assert done.data == "[DONE]"
    for told in (failed.data, whole):
        error = json.loads(told)["error"]
        assert (error["code"], error["status"]) == ("engine_crashed", 500)
        assert "signal 9" in error["message"]
    assert ask(both, model, COUNTING | {"max_tokens": 2}).status == 200
