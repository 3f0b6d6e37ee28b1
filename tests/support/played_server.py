"""A program that plays llama-server, without a model: "one two" is its answer to everything.

Asked to crash it aborts in the middle; asked to hang up, or to say no, it does.
"""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """
import json, os, re, socket, sys
arguments = sys.argv[1:]
if arguments == ["--help"]:
    sys.exit("--host HOST, --ctx-size N, --no-kv-unified, --jinja")
value = lambda name: arguments[arguments.index(name) + 1]
print("started with", *arguments, file=sys.stderr, flush=True)
print(os.getpid(), file=sys.stderr, flush=True)
PROPS = {
    "total_slots": int(value("--parallel")),
    "default_generation_settings": {"n_ctx": int(value("--ctx-size")), "params": {}},
    "chat_template": "x", "chat_template_caps": {"supports_tools": False},
}
def chunk(**choice):
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": None, **choice}]}
def answer(connection, asked):
    head, _, rest = asked.partition(b"\\r\\n\\r\\n")
    path = head.split()[1].decode()
    if path != "/v1/chat/completions":
        told = {"/health": {"status": "ok"}, "/props": PROPS}.get(
            path, {"data": [{"id": "m", "owned_by": "llamacpp"}]})
        body = json.dumps(told).encode()
        length = b"Content-Length: %d" % len(body)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\n" + length + b"\\r\\n\\r\\n" + body)
        return
    if b"say no" in asked:
        connection.sendall(b"HTTP/1.1 400 Bad Request\\r\\nContent-Length: 2\\r\\n\\r\\nno")
        return
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n\\r\\n")
    say = lambda told: connection.sendall(b"data: " + json.dumps(told).encode() + b"\\n\\n")
    say(chunk(delta={"content": "one "}))
    if b"crash" in asked:
        print("assertion failed", file=sys.stderr, flush=True)
        os.abort()
    if b"hang up" in asked:
        return
    say(chunk(delta={"content": "two"}))
    say(chunk(finish_reason="stop"))
    connection.sendall(b"data: [DONE]\\n\\n")
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(value("--host"))
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
                    answer(connection, asked)
                    break
"""


def written_to(path: Path) -> Path:
    """The program, at `path`, to be run. Its second line on stderr is its process id."""
    path.write_text(f"#!{sys.executable}\n{_PROGRAM}")
    path.chmod(0o755)
    return path
