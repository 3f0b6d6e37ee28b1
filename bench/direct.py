"""llama.cpp's server asked directly: the least client there can be, to compare bourn with."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple


class Told(NamedTuple):
    """One streamed answer: its tokens, and the seconds from the first to the last of them."""

    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return (self.tokens - 1) / self.seconds


async def ask(socket: Path, question: str, **more: Any) -> Told:
    """Stream one chat completion over a unix socket; a chunk with text is a token."""
    body = {"messages": [{"role": "user", "content": question}], "stream": True, **more}
    sent = json.dumps(body).encode()
    reader, writer = await asyncio.open_unix_connection(str(socket), limit=1 << 20)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(sent)}\r\n\r\n"
    writer.write(head.encode() + sent)
    moments = []
    async for line in reader:
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:])["choices"]
            if choices and choices[0]["delta"].get("content"):
                moments.append(perf_counter())
        elif line.startswith(b"data: [DONE]"):
            break
    writer.close()
    return Told(len(moments), moments[-1] - moments[0])
