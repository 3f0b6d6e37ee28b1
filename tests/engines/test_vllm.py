"""`vllm:org/name`, with a program that plays `vllm serve`: the real one needs a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bourn.engines.vllm import Vllm
from bourn.errors import LoadFailed
from bourn.messages import messages_of
from bourn.types import Piece, Request

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs shebangs and unix sockets")

SERVER = """
import json, os, re, socket, sys
program, serve, model, flag, path = sys.argv
if model == "org/missing":
    sys.exit(f"OSError: {model} is not a model identifier")
def told(asked):
    if asked.startswith(b"GET /health "):
        return "text/plain", b""
    if asked.startswith(b"GET /v1/models "):
        model = {"id": sys.argv[2], "owned_by": "vllm", "max_model_len": 32768}
        return "application/json", json.dumps({"data": [model]}).encode()
    if asked.startswith(b"POST /tokenize "):
        return "application/json", b'{"count": 12}'
    body = json.loads(asked.partition(b"\\r\\n\\r\\n")[2])
    says = f"{body['model']} {body.get('temperature')} {body['stream_options']}"
    chunks = [{"delta": {"content": says}}, {"delta": {}, "finish_reason": "stop"}]
    lines = [json.dumps({"choices": [{"index": 0, **chunk}]}) for chunk in chunks]
    return "text/event-stream", "".join(f"data: {line}\\n\\n" for line in lines).encode()
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(path)
    listener.listen()
    while True:
        connection, _ = listener.accept()
        with connection:
            asked = b""
            while (part := connection.recv(65536)):
                asked += part
                head, _, body = asked.partition(b"\\r\\n\\r\\n")
                length = re.search(b"content-length: ([0-9]+)", head, re.IGNORECASE)
                if len(body) == (int(length[1]) if length else 0):
                    kind, answer = told(asked)
                    head = f"HTTP/1.1 200 OK\\r\\nContent-Type: {kind}\\r\\n"
                    head += f"Content-Length: {len(answer)}\\r\\n\\r\\n"
                    connection.sendall(head.encode() + answer)
                    break
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "vllm"
    path.write_text(f"#!{sys.executable}\n{SERVER}")
    path.chmod(0o755)
    return path


async def test_it_is_started_asked_in_its_dialect_and_ended(program: Path) -> None:
    engine = Vllm("org/model", program)
    info = await engine.start()
    assert (info.name, info.engine, info.window) == ("org/model", "vllm", 32768)
    request = Request(messages=messages_of("hello"))
    pieces: list[Piece] = [piece async for piece in engine.generate(request)]
    said = "".join(piece.text for piece in pieces)
    assert said.startswith("org/model")
    assert "continuous_usage_stats" in said
    assert await engine.count(request) == 12
    life = engine.spawn().spawn()
    await engine.aclose()
    assert life.dead


async def test_what_it_says_when_it_fails_is_told(program: Path) -> None:
    engine = Vllm("org/missing", program)
    with pytest.raises(LoadFailed, match="not a model identifier"):
        await engine.start()
    await engine.aclose()
