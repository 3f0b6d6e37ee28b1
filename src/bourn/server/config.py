"""How a server behaves. Values only; where they come from is the command line's business."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bourn.terms import Timeouts


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Times in seconds, sizes in bytes.

    host, port: where it listens. keys: who may ask; none lets everybody on this machine.
    metrics_key: for `/metrics` alone; None is one of `keys`. origins: of web pages that may ask
    (CORS); none may.
    hold: how long headers wait for the first event, so that a failure before it is a status.
    ping: of silence, after which a comment is sent. drain: that running answers have at a stop.
    largest_body: of a request. queue_limit: of requests that wait for a slot, a model.
    timeouts: of each request. log_prompts: whether the log may show what people write.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    keys: frozenset[str] = field(default=frozenset(), repr=False)
    metrics_key: str | None = field(default=None, repr=False)
    origins: tuple[str, ...] = ()
    hold: float = 10.0
    ping: float = 15.0
    drain: float = 30.0
    largest_body: int = 10 * 2**20
    queue_limit: int = 256
    timeouts: Timeouts = field(default_factory=Timeouts)
    log_prompts: bool = False


@dataclass(frozen=True, slots=True)
class WebConfig:
    """How the page behaves.

    conversations: the file where they are kept; None is that of `bourn chat`. examples: questions
    that are offered.
    """

    conversations: Path | None = None
    examples: tuple[str, ...] = (
        "Explain what a language model is, in three sentences.",
        "Write a short poem about a river.",
        "Write a Python function that tells whether a word is a palindrome.",
    )
