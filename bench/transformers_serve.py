"""`transformers serve --continuous-batching`, and clients that stream from it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from urllib.error import URLError
from urllib.request import Request, urlopen

PATIENCE = 120  # seconds for it to be up


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A server of this folder; its address. It needs `transformers[serving]`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).parent / "transformers", "serve", str(folder)]
    command += ["--continuous-batching", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(
        [*map(str, command), "--dtype", "bfloat16"],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(f"{url}/health", server)
            yield url
        finally:
            server.terminate()


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(PATIENCE * 10):
        if server.poll() is not None:
            raise RuntimeError("it ended by itself: pip install transformers[serving]")
        try:
            with urlopen(url):
                return
        except URLError:
            time.sleep(0.1)
    raise TimeoutError(url)


def streamed(url: str, model: str, questions: list[str], tokens: int) -> float:
    """Tokens a second of all questions asked at once."""
    counts = [0] * len(questions)

    def ask(number: int) -> None:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": questions[number]}],
            "stream": True,
            "max_tokens": tokens,
            "generation_config": json.dumps(
                {"do_sample": False, "min_new_tokens": tokens, "max_new_tokens": tokens}
            ),
        }
        request = Request(
            f"{url}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urlopen(request) as answer:
            for line in answer:
                if line.startswith(b"data: {") and json.loads(line[6:])["choices"]:
                    counts[number] += 1

    began = perf_counter()
    askers = [threading.Thread(target=ask, args=(number,)) for number in range(len(questions))]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    return len(questions) * tokens / (perf_counter() - began)
