"""`bourn.gradio.chat`: what it yields, and what becomes of an answer that nobody wants any more.

First the function alone, then behind a real server of Gradio's, asked as a browser asks it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest

import bourn
from bourn import aio, sync
from bourn.engines.scripted import Script, Scripted
from bourn.errors import EngineCrashed, InvalidRequest, PromptTooLong
from bourn.gradio import chat
from bourn.gradio.answers import BEAT, INTERVAL
from bourn.types import Channel, Message, Piece, Request

WORDS = ["one ", "two ", "three ", "four"]
WHOLE = "".join(WORDS)

HELLO = Script(WORDS)
SLOW = Script(["word "] * 1000, delay=0.02)
READS = Script(["read"], prompt=1000, prompt_steps=1000, prompt_delay=0.05)
SILENT = Script(["at last"], delay=60)


class Talked:
    """A model that says what a script says, and what it was asked."""

    def __init__(self, script: Script | Callable[[Request], Script], **facts: Any) -> None:
        self.asked: list[Request] = []
        self._script = script
        self.engine = Scripted(self._spoken, **facts)
        self.model = aio.Model(self.engine)

    def _spoken(self, request: Request) -> Script:
        self.asked.append(request)
        return self._script if isinstance(self._script, Script) else self._script(request)

    @property
    def messages(self) -> tuple[Message, ...]:
        """Those that were sent last."""
        return self.asked[-1].messages

    async def idle(self) -> None:
        while self.engine.running or self.model.hub.live:  # the test's timeout is the limit
            await asyncio.sleep(0.001)


@pytest.fixture
async def talked() -> AsyncIterator[Callable[..., Any]]:
    """Makes one, started in this loop."""
    made: list[Talked] = []

    async def start(script: Any = HELLO, **facts: Any) -> Talked:
        each = Talked(script, **facts)
        await each.model.start()
        made.append(each)
        return each

    yield start
    for each in made:
        await each.model.aclose()


async def told(respond: Any, message: Any = "hi", history: Any = (), *given: Any) -> list[Any]:
    """All that it yields."""
    return [shown async for shown in respond(message, list(history), *given)]


def texts(shown: Any) -> list[str]:
    """The texts of a list of messages, those beside the answer with their titles."""
    each = [{"content": shown}] if isinstance(shown, str) else shown
    return [
        " ".join(filter(None, (_title(message), _content(message["content"])))) for message in each
    ]


def _title(message: dict[str, Any]) -> str:
    return (message.get("metadata") or {}).get("title") or ""


def _content(said: Any) -> str:
    return said if isinstance(said, str) else "".join(part.get("text", "") for part in said)


# -- what it yields --------------------------------------------------------------------------------


async def test_the_text_so_far_again_and_again(talked: Any) -> None:
    shown = await told(chat((await talked(Script(WORDS, delay=0.03))).model))
    said = [each for each in shown if each]
    assert said[-1] == WHOLE
    assert len(set(said)) > 1
    assert all(later.startswith(earlier) for earlier, later in pairwise(said))


async def test_at_most_so_many_a_second(talked: Any) -> None:
    model = (await talked(Script(["x"] * 1000))).model
    began = time.monotonic()
    shown = await told(chat(model))
    assert shown[-1] == "x" * 1000
    assert len(shown) <= 3 + (time.monotonic() - began) * (1 / INTERVAL + 1 / BEAT)


async def test_where_nothing_comes_gradio_still_has_its_turn(talked: Any) -> None:
    site = await talked(SILENT)
    async with aclosing(chat(site.model)("hi", [])) as watched:
        assert [await anext(watched) for _ in range(3)] == [[], [], []]
    await site.idle()


async def test_reasoning_is_folded_and_told_apart(talked: Any) -> None:
    pieces = [Piece("Hm. ", Channel.REASONING, tokens=1), Piece("Yes.", tokens=1)]
    shown = await told(chat((await talked(Script(pieces, delay=0.1))).model))
    thinking = next(each for each in shown if each)
    assert [message["metadata"] for message in thinking] == [{"title": "Reasoning"}]
    thought, answer = shown[-1]
    assert thought["content"] == [{"type": "text", "text": "Hm. "}]
    assert thought["metadata"]["status"] == "done"
    assert thought["metadata"]["duration"] >= 0.1
    assert "metadata" not in answer
    assert _content(answer["content"]) == "Yes."


async def test_the_place_in_the_queue_and_the_prompt_are_told(talked: Any) -> None:
    script = Script(WORDS, prompt=100, prompt_steps=4, prompt_delay=0.06)
    site = await talked(script, slots=1)
    respond = chat(site.model)
    answers = await asyncio.gather(told(respond), told(respond))
    titles = {title for answer in answers for each in answer for title in texts(each)}
    assert {"Reading the prompt, 50 %", "Waiting, at place 1 of the queue"} <= titles
    assert [answer[-1] for answer in answers] == [WHOLE, WHOLE]


async def test_indents_and_tabs_survive_gradio(talked: Any) -> None:
    gr = pytest.importorskip("gradio")
    code = "    def f():\n\treturn 1\n\n    f()\n"
    (shown,) = (await told(chat((await talked(Script([code]))).model)))[-1]
    box = gr.Chatbot(render=False)
    (kept,) = box.preprocess(box.postprocess([shown]))
    assert kept["content"] == [{"type": "text", "text": code}]


async def test_an_empty_answer_is_an_answer(talked: Any) -> None:
    assert (await told(chat((await talked(Script([]))).model)))[-1] == ""


async def test_a_model_by_its_name_and_one_that_waits_for_nobody() -> None:
    assert (await told(chat("scripted:Good day")))[-1] == "Good day"
    model = bourn.load("scripted:Good night")
    try:
        assert (await told(bourn.gradio.chat(model)))[-1] == "Good night"
    finally:
        model.close()


# -- what it asks ----------------------------------------------------------------------------------


def turn(role: str, text: str, **metadata: Any) -> dict[str, Any]:
    """A message as Gradio gives it in the history."""
    content = [{"type": "text", "text": text}]
    return {"role": role, "content": content, "metadata": metadata or None, "options": None}


async def test_the_history_becomes_messages(talked: Any) -> None:
    site = await talked()
    history = [turn("user", "a"), turn("assistant", "b"), {"role": "user", "content": "c"}]
    history.append({"role": "assistant", "content": "d"})
    await told(chat(site.model, system="Be brief."), "e", history)
    assert [(each.role, each.content) for each in site.messages] == [
        ("system", "Be brief."),
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
        ("assistant", "d"),
        ("user", "e"),
    ]


async def test_what_stands_beside_the_conversation_is_not_sent(talked: Any) -> None:
    site = await talked()
    history = [
        turn("user", "stopped before a word came"),
        turn("assistant", "", title="Reading the prompt, 20 %"),
        turn("user", "a"),
        turn("assistant", "I think.", title="Reasoning", status="done"),
        turn("assistant", "b"),
        turn("assistant", "ask again", title="⚠ the engine's process died"),
    ]
    await told(chat(site.model), "c", history)
    assert [each.text for each in site.messages] == ["a", "b", "c"]
    assert not any(each.reasoning for each in site.messages)


async def test_the_history_as_gradio_has_made_it_of_what_was_yielded(talked: Any) -> None:
    gr = pytest.importorskip("gradio")
    pieces = [Piece("Hm. ", Channel.REASONING, tokens=1), Piece("\tYes.", tokens=1)]
    site = await talked(Script(pieces))
    box = gr.Chatbot(render=False)
    shown = (await told(chat(site.model)))[-1]
    history = box.preprocess(box.postprocess([{"role": "user", "content": "hi"}, *shown]))
    await told(chat(site.model), "more", history)
    assert [each.text for each in site.messages] == ["hi", "\tYes.", "more"]


async def test_additional_inputs_are_options_in_their_order(talked: Any) -> None:
    site = await talked()
    await told(chat(site.model, system="No."), "hi", [], "Be brief.", 3.0, 0.5, 0.9)
    assert site.messages[0] == Message("system", "Be brief.")
    asked = site.asked[-1]
    assert (asked.max_new_tokens, asked.sampling.temperature) == (3, 0.5)
    assert isinstance(asked.max_new_tokens, int)
    assert (await told(chat(site.model), "hi", [], "", 2, None))[-1] == "one two "
    assert [each.role for each in site.messages] == ["user"]
    respond = chat(site.model, inputs=["seed", "stop"], temperature=0.0)
    assert (await told(respond, "hi", [], 7.0, "three"))[-1] == "one two "
    assert site.asked[-1].sampling.seed == 7


async def test_a_wrong_value_is_told_on_the_page(talked: Any) -> None:
    respond = chat((await talked()).model)
    (wrong,) = texts((await told(respond, "hi", [], "", 5, -1.0))[-1])
    assert wrong.startswith("⚠ temperature is -1.0 give a number")
    (wrong,) = texts((await told(respond, "hi", [], "", 5, 1.0, 1.0, "more"))[-1])
    assert "5 additional inputs" in wrong


async def test_a_wrong_option_is_refused_at_once(talked: Any) -> None:
    model = (await talked()).model
    with pytest.raises(InvalidRequest, match="temprature"):
        chat(model, temprature=1.0)
    with pytest.raises(InvalidRequest, match="temprature"):
        chat(model, inputs=["temprature"])
    with pytest.raises(InvalidRequest, match="raw"):
        chat(model, raw=True)


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.mark.parametrize("form", ["sent", "retried", "said before"])
async def test_images_go_to_models_that_see(talked: Any, tmp_path: Path, form: str) -> None:
    path = tmp_path / "dot.png"
    path.write_bytes(PIXEL)
    site = await talked()
    file = {"path": str(path), "mime_type": "image/png"}
    if form == "said before":
        content = [{"type": "file", "file": file}, {"type": "text", "text": "What is it?"}]
        history = [{"role": "user", "content": content}, turn("assistant", "A dot.")]
        await told(chat(site.model), {"text": "Sure?", "files": []}, history)
    else:
        files = [str(path)] if form == "sent" else [file]
        await told(chat(site.model), {"text": "What is it?", "files": files})
    asked = site.messages[0]
    assert asked.text == "What is it?"
    url = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    assert [image.url for image in asked.images] == [url]


@pytest.mark.parametrize(
    ("name", "facts", "told_so"),
    [
        ("dot.png", {"honours": frozenset({"seed"})}, "this model reads text only"),
        ("song.mp3", {}, "song.mp3 is no image"),
        ("gone.png", {}, "gone.png cannot be read"),
    ],
)
async def test_files_that_cannot_be_sent(
    talked: Any, tmp_path: Path, name: str, facts: dict[str, Any], told_so: str
) -> None:
    if not name.startswith("gone"):
        (tmp_path / name).write_bytes(PIXEL)
    site = await talked(**facts)
    shown = await told(chat(site.model), {"text": "What?", "files": [str(tmp_path / name)]})
    assert told_so in texts(shown[-1])[0]
    assert not site.asked
    file = {"type": "file", "file": {"path": str(tmp_path / name)}}
    refused = [{"role": "user", "content": [file, {"type": "text", "text": "What?"}]}, *shown[-1]]
    assert (await told(chat(site.model), "Then what?", refused))[-1] == WHOLE
    assert [each.content for each in site.messages] == ["Then what?"]


async def test_a_text_is_never_taken_for_a_path(talked: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(PIXEL)
    site = await talked()
    path = str(secret)
    await told(
        chat(site.model), {"text": path, "files": []}, [turn("user", path), turn("assistant", "?")]
    )
    await told(chat(site.model), path, [{"role": "user", "content": path}, turn("assistant", "?")])
    assert all(message.content == path for each in site.asked for message in each.messages[::2])


# -- a window that is full -------------------------------------------------------------------------


def long_talk(turns: int) -> list[dict[str, Any]]:
    pairs = [(f"question {n} " + "word " * 20, f"answer {n} " + "word " * 20) for n in range(turns)]
    return [
        turn(role, text)
        for pair in pairs
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]


async def test_old_turns_are_left_out_and_it_is_said_once(talked: Any) -> None:
    site = await talked(window=200)
    history = long_talk(10)
    shown = (await told(chat(site.model), "last", history))[-1]
    notice, answer = texts(shown)
    assert "no longer fit" in notice
    assert answer == WHOLE
    assert sum(len(each.text.split()) for each in site.messages) < 200
    shown = (await told(chat(site.model), "last", [*history[:-1], *shown[:1], history[-1]]))[-1]
    assert shown == WHOLE


async def test_what_an_endpoint_finds_too_long_is_asked_again_shorter(talked: Any) -> None:
    def script(request: Request) -> Script:
        if len(request.messages) < 10:
            return Script(WORDS)
        refusal = PromptTooLong("too long", prompt_tokens=None, window=None)
        return Script([], fail_at=0, error=refusal)

    site = await talked(script)
    shown = (await told(chat(site.model), "last", long_talk(6)))[-1]
    assert texts(shown)[-1] == WHOLE
    assert len(site.asked) > 1


# -- what fails ------------------------------------------------------------------------------------

CRASH = EngineCrashed(
    "the engine's process died", last_words=("secret/path.c:77",), hint="ask again"
)


@pytest.mark.parametrize("words", [0, 2])
async def test_an_error_is_told_in_words_and_what_came_before_stays(
    talked: Any, words: int
) -> None:
    site = await talked(Script(WORDS, fail_at=words, error=CRASH))
    shown = (await told(chat(site.model)))[-1]
    before = ["one two "] if words else []
    assert texts(shown) == [*before, "⚠ the engine's process died ask again"]
    assert "secret" not in json.dumps(shown)


async def test_no_other_exception_is_shown(talked: Any, caplog: Any) -> None:
    site = await talked(Script(WORDS, fail_at=2, error=KeyError("password=hunter2")))
    with caplog.at_level(logging.ERROR, "bourn"):
        shown = (await told(chat(site.model)))[-1]
    assert texts(shown) == ["one two ", "⚠ Something went wrong here The server's log tells what."]
    assert "hunter2" in caplog.text


async def test_a_model_that_is_not_started_says_so() -> None:
    shown = await told(chat(aio.Model(Scripted(Script(WORDS)))))
    assert "the model is not started" in texts(shown[-1])[0]


def test_a_model_whose_loop_has_ended_says_so() -> None:
    model = asyncio.run(aio.Model(Scripted(Script(WORDS))).start())
    shown = asyncio.run(told(chat(model)))
    assert "the model is closed" in texts(shown[-1])[0]


@pytest.mark.parametrize("script", [SLOW, READS, SILENT], ids=["answer", "prompt", "silence"])
@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_whoever_leaves_ends_the_answer(talked: Any, script: Script, how: str) -> None:
    site = await talked(script)
    if how == "closed":
        async with aclosing(chat(site.model)("hi", [])) as watched:
            while not site.engine.running:
                await anext(watched)
    else:
        reading = asyncio.create_task(told(chat(site.model)))
        while not site.engine.running:
            await asyncio.sleep(0.001)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    await site.idle()
    assert len(asyncio.all_tasks()) == 1


async def test_whoever_leaves_the_queue_is_not_answered(talked: Any) -> None:
    site = await talked(SLOW, slots=1)
    async with aclosing(chat(site.model)("first", [])) as first:
        while not site.engine.running:
            await anext(first)
        async with aclosing(chat(site.model)("second", [])) as second:
            while not site.model.hub.waiting:
                await anext(second)
    await site.idle()
    assert site.engine.started == 1


# -- behind Gradio ---------------------------------------------------------------------------------


def spoken(request: Request) -> Script:
    """What is asked says what happens."""
    return {
        "slow": SLOW,
        "reads": READS,
        "silent": SILENT,
        "fails at once": Script(WORDS, fail_at=0, error=CRASH),
        "fails later": Script(WORDS, fail_at=2, error=CRASH),
    }.get(request.messages[-1].text, Script(WORDS))


class Site:
    """A server with one page, and the model behind it."""

    def __init__(self, talked: Talked, url: str) -> None:
        self.talked = talked
        self.url = url

    def idle(self) -> None:
        self.until(lambda: not (self.talked.engine.running or self.talked.model.hub.live))

    def until(self, is_so: Callable[[], bool]) -> float:
        """Seconds that it took; the test's timeout is the limit."""
        began = time.monotonic()
        while not is_so():
            time.sleep(0.001)
        return time.monotonic() - began


@contextmanager
def launched(talked: Talked) -> Iterator[Site]:
    """One line of Gradio's."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    gr = pytest.importorskip("gradio")
    model = sync.Model(talked.model).start()

    async def launch() -> Any:  # where no loop runs Gradio makes one, and forgets it
        demo = gr.ChatInterface(chat(model))
        demo.launch(prevent_thread_lock=True, quiet=True, server_port=_free_port())
        return demo

    demo = asyncio.run(launch())
    try:
        yield Site(talked, demo.local_url)
    finally:
        demo.close(verbose=False)
        model.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with launched(Talked(spoken)) as there:
        yield there


@pytest.fixture(scope="module")
def narrow() -> Iterator[Site]:
    """With one slot."""
    with launched(Talked(spoken, slots=1)) as there:
        yield there


class Tab:
    """A page in a browser, as far as the server can tell."""

    def __init__(self, site: Site) -> None:
        self._hash = secrets.token_hex(5)
        self._client = httpx2.Client(base_url=f"{site.url}gradio_api/", timeout=20)
        self._heart = self._open(f"heartbeat/{self._hash}")
        config = self._client.get(f"{site.url}config").json()
        self._events = config["dependencies"]
        self._api = next(each["id"] for each in self._events if each["api_name"] == "respond")
        self._running: tuple[int, str] | None = None
        self._news: httpx2.Response | None = None

    def _open(self, path: str) -> httpx2.Response:
        return self._client.send(self._client.build_request("GET", path), stream=True)

    def begin(self, text: str | None, event: int | None = None) -> Iterator[Any]:
        """Ask; what is shown, again and again, to the end."""
        event = self._api if event is None else event
        body = {"data": [text, None], "fn_index": event, "session_hash": self._hash}
        joined = self._client.post("queue/join", json={**body, "event_data": None})
        self._running = event, joined.json()["event_id"]
        self._news = self._open(f"queue/data?session_hash={self._hash}")
        return self._shown(self._news)

    def _shown(self, news: httpx2.Response) -> Iterator[Any]:
        from gradio_client.utils import apply_diff

        data: list[Any] = []
        for line in news.iter_lines():
            message = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
            said: Any = (message.get("output") or {}).get("data")
            if message.get("msg") == "process_generating":
                data = [*map(apply_diff, data, said)] if data else said
                yield next(each for each in data if each is not None)
            elif message.get("msg") == "process_completed":
                assert message["success"], message
                return

    def ask(self, text: str) -> Any:
        """What was shown last."""
        *_, last = self.begin(text)
        return last

    def stop(self) -> None:
        assert self._running is not None
        event, id_ = self._running
        body = {"session_hash": self._hash, "fn_index": event, "event_id": id_}
        assert self._client.post("cancel", json=body).json() == {"success": True}

    def close(self) -> None:
        """All its sockets are gone."""
        for each in (self._news, self._heart):
            if each is not None:
                each.close()
        self._client.close()

    # as the page does it, which keeps the conversation in the browser

    def type(self, text: str) -> list[Any]:
        """Send what was typed; the conversation as it is shown in the end."""
        (typed,) = (each["id"] for each in self._events if self._submits(each))
        self._run(typed, text)
        (appending, *_) = self._after(typed)
        shown = self._run(appending, None, self._box)
        (answering,) = self._after(appending)
        for shown in self.begin(None, answering):
            self._box = shown
        (keeping, *_) = self._after(answering)
        self._run(keeping, self._box)
        return texts(self._box)

    _box: list[Any] = []  # noqa: RUF012 (never changed in place)

    def _submits(self, event: dict[str, Any]) -> bool:
        return any(trigger == "submit" for _, trigger in event["targets"])

    def _after(self, event: int) -> list[int]:
        return [each["id"] for each in self._events if each["trigger_after"] == event]

    def _run(self, event: int, *data: Any) -> Any:
        body = {"data": data, "fn_index": event, "session_hash": self._hash}
        told = self._client.post("run/predict", json=body)
        return told.json()["data"][0]


@pytest.fixture
def tab(site: Site) -> Iterator[Tab]:
    tab = Tab(site)
    yield tab
    tab.close()
    site.idle()


def test_one_line_answers(tab: Tab) -> None:
    assert tab.ask("hi") == WHOLE


@pytest.mark.parametrize("asked", ["slow", "reads", "silent"])
@pytest.mark.parametrize("how", ["stop", "close"])
def test_stop_and_a_closed_tab_end_the_answer(site: Site, tab: Tab, asked: str, how: str) -> None:
    shown = tab.begin(asked)
    site.until(lambda: site.talked.engine.running == 1)
    next(shown)
    getattr(tab, how)()
    site.idle()


@pytest.mark.parametrize("how", ["stop", "close"])
def test_whoever_waits_leaves_the_queue(narrow: Site, how: str) -> None:
    first, second = Tab(narrow), Tab(narrow)
    try:
        first.begin("slow")
        narrow.until(lambda: narrow.talked.engine.running == 1)
        next(second.begin("silent"))
        narrow.until(lambda: narrow.talked.model.hub.waiting == 1)
        getattr(second, how)()
        narrow.until(lambda: not narrow.talked.model.hub.waiting)
        assert narrow.talked.engine.running == 1
    finally:
        first.close()
        second.close()
    narrow.idle()


@pytest.mark.parametrize("asked", ["fails at once", "fails later"])
def test_after_an_error_the_next_question_works(tab: Tab, asked: str) -> None:
    before = ["one two "] if asked == "fails later" else []
    assert texts(tab.ask(asked)) == [*before, "⚠ the engine's process died ask again"]
    assert tab.ask("hi") == WHOLE


def test_the_page_keeps_the_conversation_and_it_is_sent(site: Site, tab: Tab) -> None:
    assert tab.type("first") == ["first", WHOLE]
    shown = tab.type("fails later")
    assert shown[2:] == ["fails later", "one two ", "⚠ the engine's process died ask again"]
    tab.type("third")
    assert [each.text for each in site.talked.messages] == [
        *("first", WHOLE),
        *("fails later", "one two "),
        "third",
    ]


def test_eight_are_answered_at_once_though_they_come_one_by_one(site: Site) -> None:
    tabs = [Tab(site) for _ in range(8)]
    try:
        for number, tab in enumerate(tabs, 1):
            tab.begin("slow")
            site.until(partial(_running, site, number))
    finally:
        for tab in tabs:
            tab.close()
    site.idle()


def _running(site: Site, number: int) -> bool:
    return site.talked.engine.running == number


def test_what_the_user_says_of_gradios_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_DEFAULT_CONCURRENCY_LIMIT", "1")
    with launched(Talked(spoken)) as site:
        first, second = Tab(site), Tab(site)
        first.begin("slow")
        site.until(lambda: site.talked.engine.running == 1)
        second.begin("slow")
        time.sleep(0.2)
        assert site.talked.engine.running == 1
        first.close()
        second.close()


def test_twenty_stops_leave_nothing_behind(site: Site, tab: Tab) -> None:
    def stopped() -> tuple[int, int]:
        """Threads, and tasks in the model's loop."""
        next(tab.begin("slow"))
        tab.stop()
        site.idle()
        return threading.active_count(), len(asyncio.all_tasks(site.talked.model.hub.loop))

    before = [stopped() for _ in range(5)]
    after = [stopped() for _ in range(20)]
    assert max(after[-5:]) <= max(before)
    assert site.talked.engine.running == 0
