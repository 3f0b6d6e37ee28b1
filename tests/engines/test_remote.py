"""The remote engine against a server on this machine that does what real ones were seen to do."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bourn.engines import remote as module
from bourn.engines.dialects import LLAMACPP, OPENAI
from bourn.engines.remote import Remote
from bourn.errors import (
    BournError,
    ConnectionFailed,
    EngineError,
    EngineTimeout,
    Interrupted,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    PromptTooLong,
    RateLimited,
    SettingsError,
    Unauthorized,
)
from bourn.types import FinishReason, Message, Piece, Request, Sampling, Usage
from tests.support.openai_server import (
    JSON,
    SSE,
    Answer,
    Cue,
    LoopbackServer,
    Step,
    chunk,
    error,
    listing,
    serving,
    sse,
    text_stream,
    usage,
)

HI = Request(messages=(Message("user", "hi"),))
HELLO = Answer(text_stream("Hello", " you"))
NOW = {"Retry-After": "0"}

pytestmark = pytest.mark.usefixtures("bare_environment")


@pytest.fixture
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.upper().endswith(("_API_KEY", "_PROXY", "_BASE_URL")):
            monkeypatch.delenv(name)


async def collect(engine: Remote, request: Request = HI) -> list[Piece]:
    async with aclosing(engine.generate(request)) as pieces:
        return [piece async for piece in pieces]


async def answer_of(engine: Remote, request: Request = HI) -> str:
    return "".join(piece.text for piece in await collect(engine, request))


async def failure_of(engine: Remote, request: Request = HI) -> tuple[str, BournError]:
    """The text before the failure, and the failure."""
    text = ""
    try:
        async for piece in engine.generate(request):
            text += piece.text
    except BournError as error:
        return text, error
    pytest.fail(f"it did not fail, but said {text!r}")


# -- finding out -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("models", "engine", "window", "resolves"),
    [
        (listing("m", owner="vllm", max_model_len=4096), "vllm", 4096, True),
        (listing("m", owner="sglang", max_model_len=8192), "sglang", 8192, True),
        (listing("m", owner="library"), "ollama", None, False),
        (listing("m", owner="somebody", context_length=32768), "generic", 32768, False),
        (listing("m", owner="llamacpp"), "llamacpp", None, True),
    ],
)
async def test_each_kind_is_known_by_its_list_of_models(
    models: Answer, engine: str, window: int | None, resolves: bool
) -> None:
    async with serving(models=models) as server:
        remote = Remote(server.url)
        info = await remote.start()
        assert (info.name, info.engine, info.window, info.resolves) == (
            "m",
            engine,
            window,
            resolves,
        )
        assert remote.info is info
        assert await remote.start() is info
        await remote.aclose()


def props(**more: Any) -> Answer:
    told = {
        "default_generation_settings": {
            "n_ctx": 1024,
            "params": {"temperature": 0.20000000298, "top_k": 7, "seed": 4294967295, "x": "y"},
        },
        "total_slots": 2,
        "modalities": {"vision": False},
        "chat_template": "{{ messages }}",
        "chat_template_caps": {"supports_tools": True},
    }
    return Answer(json.dumps(told | more).encode(), headers=JSON)


async def llamacpp_info(page: Answer) -> Any:
    models = listing("/models/m.gguf", owner="llamacpp", aliases=["m"])
    async with serving(models=models, pages={"/props": page}) as server:
        remote = Remote(server.url, model="m")
        info = await remote.start()
        await remote.aclose()
        return info


async def test_llamacpp_tells_its_slots_window_and_settings() -> None:
    info = await llamacpp_info(props())
    assert (info.name, info.window, info.slots, info.chat_template) == ("m", 1024, 2, True)
    assert info.defaults == Sampling(temperature=0.2, top_k=7)
    assert "tools" in info.honours
    assert "images" not in info.honours


async def test_llamacpp_with_eyes_without_tools_and_without_a_template() -> None:
    info = await llamacpp_info(
        props(
            modalities={"vision": True},
            chat_template="",
            chat_template_caps={"supports_tools": False},
        )
    )
    assert "images" in info.honours
    assert not {"tools", "tool_choice"} & info.honours
    assert not info.chat_template


@pytest.mark.parametrize(
    "page", [error(401, {}), error(500, {}), error(404, {}), Answer(b"[]"), Answer(b"?")]
)
async def test_what_is_only_good_to_know_fails_nothing(page: Answer) -> None:
    info = await llamacpp_info(page)
    assert (info.engine, info.window, info.slots) == ("llamacpp", None, None)


async def test_settings_of_llamacpp_without_meaning_here_are_left() -> None:
    strange = {"params": {"temperature": -1.0}}
    info = await llamacpp_info(props(default_generation_settings=strange))
    assert info.defaults == Sampling()


async def test_sglang_tells_whether_it_sees() -> None:
    for sees in (True, False):
        page = Answer(json.dumps({"has_image_understanding": sees}).encode())
        models = listing("m", owner="sglang")
        async with serving(models=models, pages={"/get_model_info": page}) as server:
            remote = Remote(server.url)
            assert ("images" in (await remote.start()).honours) is sees
            await remote.aclose()


@pytest.mark.parametrize(
    "page", [error(404, {}), error(405, {}), error(501, {}), Answer(b"<html>"), Answer(b"{}")]
)
async def test_without_a_list_of_models_it_is_some_endpoint(page: Answer) -> None:
    async with serving(HELLO, models=page) as server:
        remote = Remote(server.url, model="mine")
        assert (await remote.start()).engine == "generic"
        assert await answer_of(remote) == "Hello you"
        assert server.asked[0].json["model"] == "mine"
        await remote.aclose()
        with pytest.raises(ModelNotFound, match="does not tell its models"):
            await Remote(server.url).start()


async def test_a_hosted_api_is_not_asked_what_it_has() -> None:
    async with serving(HELLO, models=error(500, {})) as server:
        remote = Remote(server.url, model="gpt", dialect=OPENAI)
        assert (await remote.start()).engine == "openai"
        assert server.requests == []
        await remote.aclose()


@pytest.mark.parametrize(
    ("names", "wanted"), [(["qwen"], "qwen"), (["qwen:latest"], "qwen"), (["a/b"], "a/b:free")]
)
async def test_a_model_may_be_spelt_in_other_ways(names: list[str], wanted: str) -> None:
    async with serving(models=listing(*names)) as server:
        remote = Remote(server.url, model=wanted)
        assert (await remote.start()).name == wanted
        await remote.aclose()


async def test_a_model_that_is_not_there() -> None:
    async with serving(models=listing("qwen2-7b", "llama-3", "qwen2-72b")) as server:
        with pytest.raises(ModelNotFound, match="has no model 'qwen2'") as raised:
            await Remote(server.url, model="qwen2").start()
        assert raised.value.hint == "it has qwen2-7b, qwen2-72b and 1 more"


async def test_of_several_models_one_must_be_named() -> None:
    async with serving(models=listing("a", "b")) as server:
        with pytest.raises(ModelNotFound, match="2 models, and none was named") as raised:
            await Remote(server.url).start()
        assert raised.value.hint == "name one, URL#model: a, b"
    async with serving(models=listing("base", "adapter", owner="vllm")) as server:
        remote = Remote(server.url)
        assert (await remote.start()).name == "base"
        await remote.aclose()


async def test_nobody_there() -> None:
    async with serving() as server:
        url = server.url
    remote = Remote(url.replace("//", "//ann:s3cret@"), model="m")
    with pytest.raises(ConnectionFailed) as raised:
        await remote.start()
    assert str(raised.value) == f"{url} cannot be reached: Connection refused"
    assert "is it running" in raised.value.hint
    await remote.aclose()


async def test_no_such_host() -> None:
    remote = Remote("http://nowhere.invalid/v1", model="m")
    with pytest.raises(ConnectionFailed, match=r"^http://nowhere.invalid/v1 cannot be reached: .+"):
        await remote.start()
    await remote.aclose()


async def test_no_socket_there(tmp_path: Path) -> None:
    remote = Remote(f"unix:{tmp_path}/none.sock")
    with pytest.raises(ConnectionFailed, match=r"none.sock cannot be reached: No such file"):
        await remote.start()


async def test_a_key_that_is_refused() -> None:
    async with serving(models=error(401, {"error": {"message": "who are you?"}})) as server:
        with pytest.raises(Unauthorized, match="who are you") as raised:
            await Remote(server.url).start()
        assert "BOURN_API_KEY" in raised.value.hint


async def test_a_server_that_still_loads_is_asked_again() -> None:
    loading = error(503, {"error": {"message": "Loading model"}}, **NOW)
    async with serving(models=loading) as server:
        with pytest.raises(Overloaded, match="Loading model"):
            await Remote(server.url, retries=2).start()
        assert len(server.requests) == 3


def test_info_before_start_is_an_error() -> None:
    with pytest.raises(EngineError, match="not started"):
        Remote("http://localhost/v1").info  # noqa: B018


# -- an answer -------------------------------------------------------------------------------------


async def test_an_answer_over_tcp_and_over_a_socket(tmp_path: Path) -> None:
    for socket in (None, tmp_path / "s.sock"):
        async with serving(HELLO, socket=socket) as server:
            remote = Remote(server.url)
            pieces = await collect(remote)
            assert [piece.text for piece in pieces] == ["Hello", " you", ""]
            assert [piece.tokens for piece in pieces] == [1, 1, 0]
            assert pieces[-1] == Piece(finish=FinishReason.STOP, usage=Usage(5, 2))
            (asked,) = server.asked
            assert asked.path == "/v1/chat/completions"
            assert asked.json["messages"] == [{"role": "user", "content": "hi"}]
            assert asked.headers["accept-encoding"] == "identity"
            await remote.aclose()
            await remote.aclose()


async def test_a_raw_prompt_is_a_completion() -> None:
    told = [{"choices": [{"index": 0, "text": "a", "finish_reason": "length"}]}]
    async with serving(Answer(sse(*told))) as server:
        remote = Remote(server.url)
        text, last = await collect(remote, Request(prompt="Once"))
        assert (text.text, last.finish) == ("a", FinishReason.LENGTH)
        assert server.asked[0].path == "/v1/completions"
        assert server.asked[0].json["prompt"] == "Once"
        await remote.aclose()


async def test_text_comes_as_soon_as_it_is_sent() -> None:
    more = asyncio.Event()
    steps: list[Step] = [sse(chunk("a"), done=False), more, text_stream("b")]
    async with serving(Answer(steps)) as server:
        remote = Remote(server.url)
        async with aclosing(remote.generate(HI)) as pieces:
            assert (await anext(pieces)).text == "a"
            more.set()
            assert (await anext(pieces)).text == "b"
        await remote.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        Answer(text_stream("Hello", " you"), headers=JSON),
        Answer(text_stream("Hello", " you"), headers={}),
        Answer(text_stream("Hello", " you"), framing="close"),
        Answer(text_stream("Hello", " you"), framing="length"),
        Answer([bytes([byte]) for byte in text_stream("Hello", " you")]),
        Answer(
            gzip.compress(text_stream("Hello", " you")), headers=SSE | {"Content-Encoding": "gzip"}
        ),
        Answer(
            json.dumps(
                {
                    "choices": [{"message": {"content": "Hello you"}, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 5, "completion_tokens": 2},
                }
            ).encode(),
            headers=JSON,
        ),
    ],
)
async def test_bodies_of_all_kinds(answer: Answer) -> None:
    async with serving(answer) as server:
        remote = Remote(server.url)
        pieces = await collect(remote)
        assert "".join(piece.text for piece in pieces) == "Hello you"
        assert pieces[-1] == Piece(finish=FinishReason.STOP, usage=Usage(5, 2))
        await remote.aclose()


async def test_the_end_mark_ends_it_though_the_connection_stays_open() -> None:
    async with serving(Answer([text_stream("a"), Cue.HANG])) as server:
        remote = Remote(server.url)
        async with asyncio.timeout(20):
            assert await answer_of(remote) == "a"
        await server.hung_up.wait()
        await remote.aclose()


async def test_a_finish_ends_it_though_nothing_more_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LINGER", 0.05)
    frames = sse(chunk("a"), chunk(finish="stop"), done=False)
    async with serving(Answer([frames, Cue.HANG])) as server:
        remote = Remote(server.url)
        pieces = await collect(remote)
        assert pieces[-1] == Piece(finish=FinishReason.STOP, usage=Usage(0, 1, estimated=True))
        await remote.aclose()


async def test_usage_that_comes_a_moment_later_is_waited_for() -> None:
    finish = sse(chunk("a"), chunk(finish="stop"), done=False)
    async with serving(Answer([finish, 0.05, sse(usage(7, 1), done=False), Cue.HANG])) as server:
        remote = Remote(server.url)
        assert (await collect(remote))[-1].usage == Usage(7, 1)
        await remote.aclose()


async def test_many_at_once() -> None:
    async with serving(Answer([0.01, text_stream("a", "b")])) as server:
        remote = Remote(server.url)
        answers = await asyncio.gather(*(answer_of(remote) for _ in range(20)))
        assert answers == ["ab"] * 20
        await remote.aclose()


async def test_a_connection_is_used_again_where_there_is_a_pool() -> None:
    async with serving(HELLO) as server:
        remote = Remote(server.url, transport=httpx2.AsyncHTTPTransport())
        for _ in range(3):
            assert await answer_of(remote) == "Hello you"
        assert server.connections == 1
        await remote.aclose()


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "told", "kind"),
    [
        (400, {"error": {"message": "temperature is odd"}}, InvalidRequest),
        (422, {"detail": [{"loc": ["body", "n"], "msg": "too many"}]}, InvalidRequest),
        (401, {"error": {"message": "no"}}, Unauthorized),
        (404, {"error": "model 'm' not found"}, ModelNotFound),
        (404, {"detail": "Not Found"}, EngineError),
        (500, {"error": {"message": "image input is not supported"}}, EngineError),
        (301, {}, EngineError),
    ],
)
async def test_a_refusal_is_told_at_once_in_its_own_words(
    status: int, told: dict[str, Any], kind: type[BournError]
) -> None:
    async with serving(error(status, told)) as server:
        remote = Remote(server.url)
        text, raised = await failure_of(remote)
        assert (text, type(raised)) == ("", kind)
        assert str(raised).startswith(f"{server.url} answered {status}")
        assert len(server.asked) == 1
        await remote.aclose()


async def test_an_endless_refusal_is_not_read_to_its_end() -> None:
    async with serving(Answer([b"no " * 50_000, Cue.HANG], 400)) as server:
        remote = Remote(server.url)
        _, raised = await failure_of(remote)
        assert type(raised) is InvalidRequest
        assert len(str(raised)) < 600
        await server.hung_up.wait()
        await remote.aclose()


async def test_a_body_that_cannot_be_unpacked() -> None:
    async with serving(Answer(b"no gzip", headers=SSE | {"Content-Encoding": "gzip"})) as server:
        remote = Remote(server.url)
        _, raised = await failure_of(remote)
        assert type(raised) is EngineError
        assert "cannot be read" in str(raised)
        await remote.aclose()


async def test_a_prompt_that_is_too_long_names_both_numbers() -> None:
    told = {"type": "exceed_context_size_error", "n_prompt_tokens": 3031, "n_ctx": 1024}
    async with serving(error(400, {"error": told | {"message": "too long"}})) as server:
        remote = Remote(server.url)
        _, raised = await failure_of(remote)
        assert isinstance(raised, PromptTooLong)
        assert (raised.prompt_tokens, raised.window) == (3031, 1024)
        await remote.aclose()


async def test_an_error_after_three_tokens_comes_after_their_text() -> None:
    frames = sse(chunk("a"), chunk("b"), chunk("c"), {"error": {"message": "out of memory"}})
    async with serving(Answer(frames), HELLO) as server:
        remote = Remote(server.url)
        text, raised = await failure_of(remote)
        assert (text, type(raised)) == ("abc", EngineError)
        assert "out of memory" in str(raised)
        assert await answer_of(remote) == "Hello you"
        await remote.aclose()


@pytest.mark.parametrize("cue", [[], [Cue.ABORT]])
async def test_a_stream_that_ends_early_is_interrupted_and_not_asked_again(cue: list[Cue]) -> None:
    async with serving(Answer([sse(chunk("a"), chunk("b"), done=False), *cue])) as server:
        remote = Remote(server.url)
        text, raised = await failure_of(remote)
        assert (text, type(raised)) == ("ab", Interrupted)
        assert len(server.asked) == 1
        await remote.aclose()


async def test_a_cut_after_the_finish_is_an_end() -> None:
    frames = sse(chunk("a"), chunk(finish="stop"), done=False)
    async with serving(Answer([frames, Cue.ABORT])) as server:
        remote = Remote(server.url)
        assert (await collect(remote))[-1].finish is FinishReason.STOP
        await remote.aclose()


@pytest.mark.parametrize("body", [b"", b"data: [DONE]\n\n", sse(chunk(None, role="assistant"))])
async def test_a_stream_of_nothing_is_no_answer(body: bytes) -> None:
    async with serving(Answer(body)) as server:
        remote = Remote(server.url)
        text, raised = await failure_of(remote)
        assert (text, type(raised)) == ("", Interrupted)
        assert len(server.asked) == 1
        await remote.aclose()


async def test_what_is_no_http_is_a_failed_connection() -> None:
    async with serving(Answer(before=[b"what?\r\n\r\n", Cue.ABORT])) as server:
        remote = Remote(server.url, retries=0)
        _, raised = await failure_of(remote)
        assert type(raised) is ConnectionFailed
        await remote.aclose()


# -- asking again ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "passing",
    [
        error(429, {"error": "slow down"}, **NOW),
        error(503, {"error": "busy"}, **NOW),
        Answer(before=[Cue.ABORT]),
        Answer([Cue.ABORT]),
        Answer([sse(chunk(None, role="assistant"), done=False), Cue.ABORT]),
        Answer(sse({"error": {"message": "busy", "code": 503}})),
        error(502, {}),
        error(504, {}),
    ],
)
async def test_what_may_pass_is_asked_again(passing: Answer) -> None:
    async with serving(passing, HELLO) as server:
        remote = Remote(server.url, retries=1)
        assert await answer_of(remote) == "Hello you"
        assert len(server.asked) == 2
        assert server.asked[0].body == server.asked[1].body
        await remote.aclose()


async def test_asking_again_has_an_end() -> None:
    async with serving(error(429, {"error": "slow down"}, **NOW)) as server:
        remote = Remote(server.url)
        _, raised = await failure_of(remote)
        assert isinstance(raised, RateLimited)
        assert raised.retry_after == 0
        assert len(server.asked) == 4
        await remote.aclose()


async def test_what_takes_too_long_to_pass_is_told_at_once() -> None:
    async with serving(error(429, {"error": "slow down"}, **{"Retry-After": "3600"})) as server:
        remote = Remote(server.url)
        _, raised = await failure_of(remote)
        assert isinstance(raised, RateLimited)
        assert raised.retry_after == 3600
        assert len(server.asked) == 1
        await remote.aclose()


async def test_waiting_to_ask_again_can_be_cancelled() -> None:
    async with serving(error(429, {}, **{"Retry-After": "50"})) as server:
        remote = Remote(server.url)
        task = asyncio.create_task(collect(remote))
        await server.was_asked.wait()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await remote.aclose()


# -- hanging up ------------------------------------------------------------------------------------

WAITING: dict[str, Answer] = {
    "for the head": Answer(before=[Cue.HANG]),
    "for the first event": Answer([Cue.HANG]),
    "for the first token": Answer([sse(chunk(None, role="assistant"), done=False), Cue.HANG]),
    "in the middle": Answer([sse(chunk("a"), done=False), Cue.HANG]),
    "for the usage": Answer([sse(chunk("a"), chunk(finish="stop"), done=False), Cue.HANG]),
}
Maker = Callable[[LoopbackServer], Remote]
MAKERS: dict[str, Maker] = {
    "light": lambda server: Remote(server.url),
    "usual": lambda server: Remote(server.url, transport=httpx2.AsyncHTTPTransport()),
}


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("answer", WAITING.values(), ids=WAITING)
async def test_a_cancelled_task_hangs_up_at_once(answer: Answer, maker: Maker) -> None:
    async with serving(answer) as server:
        remote = maker(server)
        task = asyncio.create_task(collect(remote))
        await server.was_asked.wait()
        await asyncio.sleep(0.05)
        assert not server.hung_up.is_set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(20):
            await server.hung_up.wait()
        await remote.aclose()


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
async def test_closing_the_generator_hangs_up_at_once(maker: Maker) -> None:
    async with serving(Answer([sse(chunk("a"), done=False), Cue.HANG])) as server:
        remote = maker(server)
        async with aclosing(remote.generate(HI)) as pieces:
            await anext(pieces)
        async with asyncio.timeout(20):
            await server.hung_up.wait()
        await remote.aclose()


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def test_reading_half_again_and_again_leaves_nothing_open() -> None:
    async with serving(Answer([text_stream("a", "b"), Cue.HANG])) as server:
        remote = Remote(server.url)
        await remote.start()

        async def half() -> None:
            async with aclosing(remote.generate(HI)) as pieces:
                await anext(pieces)

        await half()
        await asyncio.sleep(0.05)
        before = open_files()
        for _ in range(50):
            await half()
        async with asyncio.timeout(20):
            while open_files() > before + 1:
                await asyncio.sleep(0.01)
        await remote.aclose()


# -- time ------------------------------------------------------------------------------------------


async def test_silence_is_a_failure_only_if_one_says_so() -> None:
    async with serving(Answer([Cue.HANG])) as server:
        remote = Remote(server.url, idle_limit=0.05)
        _, raised = await failure_of(remote)
        assert isinstance(raised, EngineTimeout)
        await server.hung_up.wait()
        assert len(server.asked) == 1
        await remote.aclose()


@pytest.mark.parametrize(
    "sign",
    [b": ping\n\n", sse(chunk() | {"prompt_progress": {"total": 9, "processed": 1}}, done=False)],
)
async def test_any_sign_of_life_starts_the_clock_anew(sign: bytes) -> None:
    steps = [step for _ in range(5) for step in (0.15, sign)]
    async with serving(Answer([*steps, text_stream("a")])) as server:
        remote = Remote(server.url, idle_limit=0.6)
        assert await answer_of(remote) == "a"
        await remote.aclose()


# -- secrets ---------------------------------------------------------------------------------------


async def authorization(server: LoopbackServer, url: str = "", **options: Any) -> str | None:
    remote = Remote(url or server.url, **options)
    await answer_of(remote)
    await remote.aclose()
    return server.asked[-1].headers.get("authorization")


async def test_which_key_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(HELLO) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
        assert await authorization(server) is None
        monkeypatch.setenv("BOURN_API_KEY", "sk-bourn")
        assert await authorization(server) == "Bearer sk-bourn"
        assert await authorization(server, api_key="sk-mine\n") == "Bearer sk-mine"
        assert await authorization(server, api_key="") is None
        login = server.url.replace("//", "//ann:p%40ss@")
        assert await authorization(server, login, api_key="") == "Basic YW5uOnBAc3M="
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert await authorization(server) == "Bearer sk-openai"


@pytest.mark.parametrize("transport", [httpx2.AsyncHTTPTransport, lambda: None])
async def test_secrets_are_nowhere_to_be_seen(
    transport: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = {"error": {"message": "the key sk-s3cret is wrong"}}
    frame = sse(chunk("a"), {"error": "sk-s3cret has no credit"})
    async with serving(error(401, told), Answer(frame)) as server:
        url = server.url.replace("//", "//ann:pa55word@")
        remote = Remote(url, api_key="sk-s3cret", transport=transport())
        shown = [repr(remote)]
        for _ in range(2):
            _, raised = await failure_of(remote)
            shown += [str(raised), raised.hint, repr(raised), str(vars(raised))]
        assert "the key <key> is wrong" in shown[1]
        assert server.asked[0].headers["authorization"] == "Bearer sk-s3cret"
        for text in [*shown, caplog.text]:
            assert "s3cret" not in text
            assert "pa55word" not in text
        await remote.aclose()


async def test_a_key_that_is_none() -> None:
    with pytest.raises(SettingsError, match="characters that no key has"):
        await Remote("http://127.0.0.1:1/v1", api_key="sk-\u201cquoted\u201d").start()


async def test_a_query_goes_with_every_request() -> None:
    async with serving(HELLO, pages={"/v1/models?version=3": listing("m")}) as server:
        remote = Remote(f"{server.url}/?version=3")
        assert await answer_of(remote) == "Hello you"
        assert server.asked[0].path == "/v1/chat/completions?version=3"
        await remote.aclose()


# -- the environment -------------------------------------------------------------------------------


async def test_proxies_are_for_others_than_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    for socket in (None, tmp_path / "s.sock"):
        async with serving(HELLO, socket=socket) as server:
            remote = Remote(server.url)
            assert await answer_of(remote) == "Hello you"
            await remote.aclose()


async def test_a_proxy_is_used_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "http://far.invalid/v1/models"
    async with serving(HELLO, pages={page: listing("m")}) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
        remote = Remote("http://far.invalid/v1")
        assert await answer_of(remote) == "Hello you"
        assert server.asked[0].path == "http://far.invalid/v1/chat/completions"
        await remote.aclose()


async def test_a_proxy_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "gopher://ann:s3cret@proxy")
    with pytest.raises(SettingsError, match="proxy") as raised:
        await Remote("http://far.invalid/v1").start()
    assert "s3cret" not in str(raised.value)


def test_importing_it_does_not_import_httpx() -> None:
    code = (
        "import sys; from bourn.engines.remote import Remote; Remote('http://h/v1');"
        " print('httpx2' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=15
    )
    assert told.stdout.strip() == "False"


async def test_a_given_dialect_is_spoken() -> None:
    async with serving(HELLO) as server:
        remote = Remote(server.url, dialect=LLAMACPP)
        await answer_of(remote)
        assert server.asked[0].json["return_progress"] is True
        await remote.aclose()
