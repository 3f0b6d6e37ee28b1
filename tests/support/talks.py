"""A talk with an engine that says what a test has scripted, and without a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bourn import aio
from bourn.chat import Chat
from bourn.cli.session import Attempt, Session
from bourn.engines.scripted import Script, Scripted
from bourn.errors import ModelNotFound
from bourn.settings import Settings
from bourn.sync import Model
from bourn.types import Delta, Event, Message, Request


class Says:
    """An engine that answers with what `reply` makes of the request, and notes the requests."""

    def __init__(self, reply: Callable[[Request], Script] | None = None, **facts: Any) -> None:
        self.asked: list[Request] = []
        self._reply = reply or (lambda _: Script(["The ", "quick ", "fox"]))
        self.engine = Scripted(self._script, **facts)

    @property
    def sent(self) -> list[tuple[str, str]]:
        """The messages of the last request."""
        return told(self.asked[-1].messages)

    def _script(self, request: Request) -> Script:
        self.asked.append(request)
        return self._reply(request)


def told(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


@contextmanager
def talking(*models: Says, settings: Settings | None = None, **more: Any) -> Iterator[Session]:
    """A session with the first model; the others by the names "1", "2" …"""

    @contextmanager
    def load(settings: Settings) -> Iterator[Model]:
        number = int(settings.model) if settings.model.isdigit() else 0
        if number >= len(models):
            raise ModelNotFound("there is none")
        with Model(aio.Model(models[number].engine, settings)) as model:
            yield model.start()

    session = Session(settings or Settings(), load, **more)
    session.hold(session.loading())
    try:
        yield session
    finally:
        session.close()


def ask(
    session: Session, asked: str | Chat, *, stop_after: int | None = None
) -> tuple[Attempt, list[Event]]:
    """Have it answered; stopped once so many pieces came. The last attempt, and all events."""
    chat = session.chat.ask(asked) if isinstance(asked, str) else asked
    attempt = session.begin(chat)
    events: list[Event] = []
    while True:
        for event in attempt.stream.events():
            events.append(event)
            if stop_after == sum(isinstance(each, Delta) for each in events):
                attempt.stream.cancel()
        another = session.end(attempt)
        if another is None:
            return attempt, events
        attempt = another
