"""Real models are found to be well: the bundled file, the checkpoint made of it, and a server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bourn.catalog import Checkpoint, Endpoint, Gguf, Source, gguf
from bourn.doctor import Finding, State, examine
from bourn.settings import Settings
from tests.support import llama_server

pytestmark = pytest.mark.real


async def examined(source: Source) -> dict[str, Finding]:
    return {each.check: each async for each in examine(source, Settings())}


@pytest.fixture
def server(smollm2: Path, tmp_path: Path) -> Iterator[Path]:
    """llama.cpp's own server, as anybody might run it. Its socket."""
    socket = tmp_path / "s.sock"
    command = [sys.executable, llama_server.__file__, str(smollm2), str(socket)]
    with subprocess.Popen(
        command,
        env=os.environ | {"GOMP_SPINCOUNT": "1000"},  # else a busy machine makes it crawl
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield socket
        child.kill()


@pytest.fixture
def bundled(smollm2: Path) -> Gguf:
    return Gguf(smollm2, gguf.read(smollm2), "smollm2", smollm2.stat().st_size)


async def test_the_bundled_file(bundled: Gguf) -> None:
    found = await examined(bundled)
    assert {each.state for each in found.values()} == {State.OK}
    assert "<|im_end|> (2)" in found["end of turn"].found
    assert "Paris" in found["clean text"].found


async def test_the_checkpoint(checkpoint: Path) -> None:
    found = await examined(Checkpoint(checkpoint, "smollm2"))
    assert found.pop("padding").state is State.NOTE  # its makers pad with its end
    assert {each.state for each in found.values()} == {State.OK}
    assert "Paris" in found["clean text"].found


async def test_a_server(server: Path) -> None:
    found = await examined(Endpoint(f"unix:{server}"))
    assert {each.state for each in found.values()} == {State.OK}, found
    assert "/slots" in found["hang-up"].found
