"""The seam: what every engine is. One method makes text; the rest says what it is made with."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bourn.errors import InvalidRequest, TemplateError, UnsupportedField
from bourn.types import Piece, Request, Sampling
from bourn.wire.dialect import spoken


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of a loaded model.

    window: tokens that one request may use, prompt and answer together; None where unknown.
    slots: requests served at once; None where the endpoint decides.
    honours: the optional request fields (`Request.asks`) that this engine can honour.
    defaults: the model's own sampling settings, above bourn's and below the user's.
    resolves: whether bourn's defaults are sent in full. False for hosted endpoints, which have
        their own and may refuse ours.
    channels: the family of markers (`text.channels`) that the model writes into its text, None
        where the engine has split the text already.
    calls: the notation (`text.calls`) of the tool calls in that text, None where they stay text.
    stop: texts that end its chats, where the model ends a turn with what is no single token.
    prefills: whether it goes on with an assistant's message that the messages end with.
    why: for a field that it does not honour, the reason, where there is one to tell.
    kv_bytes: memory that keys and values may take in all; None where nobody can tell.
    notice: something a person should be told at load, such as a GPU that lies idle.
    """

    name: str
    engine: str
    window: int | None = None
    slots: int | None = None
    honours: frozenset[str] = frozenset()
    defaults: Sampling = field(default_factory=Sampling)
    resolves: bool = True
    channels: str | None = None
    calls: str | None = None
    stop: tuple[str, ...] = ()
    chat_template: bool = True
    why: Mapping[str, str] = field(default_factory=dict)
    prefills: bool = False
    kv_bytes: int | None = None
    notice: str = ""


def check(request: Request, info: ModelInfo) -> None:
    """Refuse what the model cannot do, before anything is started.

    Raises:
        UnsupportedField: it would be dropped, or misunderstood.
        InvalidRequest: it wants more choices than there are slots.
        TemplateError: a chat is asked of a model without a chat template.
    """
    for name in sorted(request.asks() - info.honours):
        raise UnsupportedField(name, spoken(info.engine), hint=info.why.get(name, ""))
    if info.slots is not None and request.n > info.slots:
        raise InvalidRequest(
            f"n is {request.n}, but there are {info.slots} slots",
            hint="ask for fewer choices, or load the model with more slots",
            field="n",
        )
    if request.messages and not info.chat_template:
        raise TemplateError(
            f"{info.name} carries no chat template, so it cannot chat",
            hint="name one with --chat-template (chat_template=), or use --raw (raw=True)",
        )


class Engine(Protocol):
    """A model that can be asked. Safe for many `generate` at once, up to `info.slots`.

    An engine knows nothing of clients: it yields pieces until each choice has a finish reason, or
    raises a `BournError`. Ending without a finish reason is an error, never a silence.
    """

    async def start(self) -> ModelInfo:
        """Make ready: load, connect, find out. Idempotent; a dead engine is started anew.

        Raises:
            LoadFailed, ModelNotFound, ConnectionFailed, Unauthorized: with what to do.
        """
        ...

    def generate(self, request: Request) -> AsyncGenerator[Piece, None]:
        """The pieces of one request, whose sampling is resolved.

        Closing the generator, or cancelling the task that waits for it, ends the computing at once.
        """
        ...

    async def count(self, request: Request) -> int | None:
        """How many tokens its prompt is, template included; None where nobody can tell.

        Raises:
            TemplateError: the template refuses the messages.
        """
        ...

    async def aclose(self) -> None:
        """Give everything back: processes, sockets, memory. Idempotent."""
        ...
