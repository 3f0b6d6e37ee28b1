"""The engine around a child, with a server of the user's own that is a script without a model."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from bourn.engines.llamacpp import LlamaCpp
from bourn.engines.llamacpp_checks import check_request
from bourn.errors import (
    EngineCrashed,
    EngineError,
    InvalidRequest,
    LoadFailed,
    ModelNotFound,
    TemplateError,
    UnsupportedField,
)
from bourn.messages import messages_of
from bourn.types import DEFAULT_SAMPLING, FinishReason, Piece, Request
from tests.support.played_server import written_to

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs shebangs and unix sockets")


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF")
    return path


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return written_to(tmp_path / "llama-server")


@pytest_asyncio.fixture
async def engine(gguf: Path, server: Path) -> AsyncGenerator[LlamaCpp, None]:
    made = LlamaCpp(gguf, llama_server=server, slots=2, window=512)
    yield made
    await made.aclose()


def request(text: str) -> Request:
    return Request(messages=messages_of(text), sampling=replace(DEFAULT_SAMPLING, seed=1))


async def read(engine: LlamaCpp, text: str) -> list[Piece]:
    async with aclosing(engine.generate(request(text))) as pieces:
        return [piece async for piece in pieces]


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def test_the_users_own_server_is_asked(engine: LlamaCpp) -> None:
    info = await engine.start()
    assert (info.window, info.slots) == (1024, 2)  # this one tells the sum
    pieces = await read(engine, "hello")
    assert "".join(piece.text for piece in pieces) == "one two"
    assert pieces[-1].finish is FinishReason.STOP
    life = engine.spawn().spawn()
    assert life.last_words[0].startswith("started with --host /")
    assert "--no-kv-unified" in life.last_words[0]
    assert "--cache-ram" not in life.last_words[0]  # its help knows no such flag


async def test_a_crash_in_the_middle_is_an_error_with_last_words(engine: LlamaCpp) -> None:
    pieces = engine.generate(request("crash"))
    assert (await anext(pieces)).text == "one "
    with pytest.raises(EngineCrashed, match=r"llama-server was killed by signal 6") as caught:
        await anext(pieces)
    assert caught.value.last_words[-1] == "assertion failed"
    assert caught.value.retryable
    assert "".join(piece.text for piece in await read(engine, "again")) == "one two"


async def test_crash_after_crash_waits_longer(engine: LlamaCpp) -> None:
    for _ in range(2):
        with pytest.raises(EngineCrashed):
            await read(engine, "crash")
    assert engine.spawn().pause > 0
    await read(engine, "fine")
    assert engine.spawn().deaths == 0


async def test_an_answer_that_breaks_off_while_the_process_lives_is_no_crash(
    engine: LlamaCpp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bourn.engines.served._DEATH_THROES", 0.1)
    with pytest.raises(EngineError) as caught:
        await read(engine, "hang up")
    assert not isinstance(caught.value, EngineCrashed)


async def test_where_it_listens_is_in_no_message(engine: LlamaCpp) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await read(engine, "say no")
    assert str(caught.value) == "the engine answered 400: no"


async def test_tools_are_refused_where_the_template_has_none(engine: LlamaCpp) -> None:
    asked = replace(request("x"), tools=({"type": "function"},))
    with pytest.raises(UnsupportedField, match="`tools`") as caught:
        await anext(engine.generate(asked))
    assert "template" in caught.value.hint


def called(arguments: str) -> Request:
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    told = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]
    return replace(request("x"), messages=messages_of(told))


SHAPE = {
    "type": "json_schema",
    "json_schema": {"schema": {"type": "string", "pattern": "^a{2,1}$"}},
}


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (replace(request("x"), messages=(), prompt=""), "prompt"),
        (replace(request("x"), response_format={"type": "json_object"}, logprobs=1), "logprobs"),
        (replace(request("x"), response_format=SHAPE), "response_format"),
        (
            replace(
                request("x"),
                tools=({"function": {"parameters": SHAPE["json_schema"]["schema"]}},),  # type: ignore[index]
            ),
            "tools",
        ),
        (called("{not json"), "messages[1].tool_calls"),
        (called("[" * 100_000), "messages[1].tool_calls"),
    ],
)
def test_what_its_server_would_stumble_over_is_refused(asked: Request, field: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        check_request(asked, takes_tools=True)
    assert raised.value.field == field
    assert raised.value.hint


def test_a_template_without_tools_reads_no_calls() -> None:
    check_request(called("{not json"), takes_tools=False)
    check_request(called('{"city": "Rome"}'), takes_tools=True)
    check_request(called(""), takes_tools=True)  # of a function without parameters


async def test_many_requests_leave_no_files_open(engine: LlamaCpp) -> None:
    await read(engine, "hello")
    before = open_files()
    for _ in range(30):
        await read(engine, "hello")
    assert open_files() == before


async def test_closed_for_good(engine: LlamaCpp) -> None:
    await engine.start()
    life = engine.spawn().spawn()
    await engine.aclose()
    await engine.aclose()
    assert life.dead
    with pytest.raises(EngineError, match="was closed"):
        await engine.start()


async def test_closing_what_never_started_leaves_nothing(gguf: Path) -> None:
    engine = LlamaCpp(gguf)
    assert engine._berth.path is not None
    folder = engine._berth.path.parent
    assert folder.exists()
    await engine.aclose()
    assert not folder.exists()


async def test_a_forgotten_engine_leaves_nothing(gguf: Path, server: Path) -> None:
    engine = LlamaCpp(gguf, llama_server=server)
    await engine.start()
    assert engine._berth.path is not None
    folder, life = engine._berth.path.parent, engine.spawn().spawn()
    del engine
    gc.collect()
    await asyncio.wait_for(life.died(), 10)
    assert not folder.exists()


async def test_a_server_that_cannot_start_tells_why(gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "llama-server"
    text = "import sys\nif '--help' in sys.argv: sys.exit('--host --ctx-size')\nsys.exit('no CUDA')"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    engine = LlamaCpp(gguf, llama_server=path)
    with pytest.raises(LoadFailed, match=r"llama-server ended with exit code 1\n.*no CUDA"):
        await engine.start()
    await engine.aclose()


def test_paths_are_checked_at_once(gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="there is no file"):
        LlamaCpp(tmp_path / "none.gguf")
    pointer = tmp_path / "pointer.gguf"
    pointer.write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(LoadFailed, match="is no GGUF file") as caught:
        LlamaCpp(pointer)
    assert "LFS" in caught.value.hint
    with pytest.raises(LoadFailed, match="cannot be read"):
        LlamaCpp(tmp_path)
    with pytest.raises(LoadFailed, match="there is no program"):
        LlamaCpp(gguf, llama_server=tmp_path / "llama-server")


def test_a_word_is_no_template(gguf: Path) -> None:
    with pytest.raises(TemplateError, match="'llama3' is no chat template"):
        LlamaCpp(gguf, chat_template="llama3")


@pytest.mark.parametrize(
    ("window", "trained", "taken"),
    [(None, None, 4096), (None, 131072, 4096), (None, 2048, 2048), (8192, 2048, 8192)],
)
def test_the_window(gguf: Path, window: int | None, trained: int | None, taken: int) -> None:
    engine = LlamaCpp(gguf, window=window, train_window=trained)
    assert engine._config.window == taken
