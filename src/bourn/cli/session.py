"""The talk: what was said, to which model, and how it is asked. It knows no terminal.

attempt = session.begin(session.chat.ask("Why?"))
for event in attempt.stream.events(): ...
session.end(attempt)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bourn.asking import Options
from bourn.chat import UNCALIBRATED, Chat, Fitted, Room, suited
from bourn.chat.sending import Sending, in_words
from bourn.cli.tuning import changed, kept, said, to_load
from bourn.conversations import Conversations, new_id
from bourn.errors import InvalidRequest, PromptTooLong, StoreFailed
from bourn.settings import Settings
from bourn.types import DEFAULT_MAX_NEW_TOKENS, FinishReason, Message

if TYPE_CHECKING:
    from bourn.engines.base import ModelInfo
    from bourn.stream import Answer
    from bourn.sync import Model, Stream

Load = Callable[[Settings], AbstractContextManager["Model"]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """An answer on its way. `notice`: what was left out of the conversation, where that is new."""

    sending: Sending
    stream: Stream
    notice: str = ""

    @property
    def fitted(self) -> Fitted:
        return self.sending.fitted


class Session:
    """One conversation with one model at a time. `hold` comes first, `close` last.

    settings: what is wanted now. load: gives a model for settings, ready while it is held.
    chat, id: of a conversation that is gone on with. store: None keeps nothing. fold_system: the
    system message is put before the first question, for templates that refuse one.
    """

    def __init__(
        self,
        settings: Settings,
        load: Load,
        *,
        chat: Chat | None = None,
        id: str | None = None,  # noqa: A002
        store: Conversations | None = None,
        fold_system: bool = False,
    ) -> None:
        self.settings = settings
        self.last: Answer | None = None
        self.written: set[Path] = set()
        self._began_with = settings
        self._load = load
        self._store = store
        self._fold_system = fold_system
        self._models = ExitStack()
        self._model: Model | None = None
        self.take_up(Chat(settings.system) if chat is None else chat, id)

    # -- the model ---------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        assert self._model is not None, "hold() comes first"
        return self._model

    @property
    def info(self) -> ModelInfo:
        return self.model.info

    def loading(self) -> AbstractContextManager[Model]:
        """The model of the settings, which begins to load; `hold` waits for it."""
        return self._load(to_load(self.settings))

    def hold(self, loading: AbstractContextManager[Model]) -> None:
        """Talk with this model, once it is ready. Where it fails, the one before stays.

        Raises:
            BournError: what `Engine.start` raises.
        """
        with ExitStack() as stack:
            model = stack.enter_context(loading)
            before, self._models = self._models, stack.pop_all()
        self._model, self._window, self._estimate = model, model.info.window, UNCALIBRATED
        before.close()

    def switch(self, name: str) -> None:
        """Go on with another model. Raises what `engine_for` and `Engine.start` raise."""
        settings = replace(
            self.settings,
            model=name,
            chat_template=None,  # it has one of its own
            trust_remote_code=False,  # which was said of the one before
            called_for=frozenset(),
        )
        self.hold(self._load(to_load(settings)))
        self.settings = settings

    def close(self) -> None:
        self._models.close()

    # -- how it is asked ---------------------------------------------------------------------------

    def change(self, name: str, text: str) -> None:
        """Another value for a setting, as text; an empty one takes it back. Raises as `changed`."""
        self.settings = changed(self.settings, name, text, self.info)

    def reset(self) -> None:
        """The settings as they were at the beginning, for the model of now."""
        self.settings = replace(self.settings, **said(self._began_with, all=True))

    # -- answers -----------------------------------------------------------------------------------

    def begin(self, asked: Chat) -> Attempt:
        """Have it answered. Until something came, `pending` is what was asked.

        Raises:
            BournError: it cannot be asked; it is too long, or the model cannot be reached.
        """
        self.pending = asked if asked.bridge is None else None
        most = self.settings.max_new_tokens or DEFAULT_MAX_NEW_TOKENS
        room = Room(self._window, most, estimate=self._estimate)
        try:
            return self._attempt(Sending(asked, asked.fit(self._count, room)))
        except InvalidRequest as refusal:
            return self._otherwise(asked, refusal)

    def end(self, attempt: Attempt) -> Attempt | None:
        """Take in what came of it. What an endpoint found too long is asked again, shorter.

        Raises:
            BournError: why it failed; what came before that is kept.
        """
        stream = attempt.stream
        if isinstance(stream.error, InvalidRequest) and not stream.text:
            return self._refused(attempt, stream.error)
        if attempt.fitted.estimated:
            self._estimate = self._estimate.learned(attempt.fitted.messages, stream.usage)
        if stream.text or stream.state == "complete":
            self._answered(attempt)
        if stream.error is not None:
            raise stream.error
        return None

    def again(self) -> Chat:
        """The last question, to be asked once more.

        Raises:
            InvalidRequest: nothing was asked.
        """
        return self.pending or self.chat.retry()

    def more(self) -> Chat:
        """The last answer, to be gone on with.

        Raises:
            InvalidRequest: there is none.
        """
        broken_off = bool(self.chat.turns) and self.chat.turns[-1].broken_off
        return self.chat.continued(prefill=broken_off and self.info.prefills)

    def reworded(self, text: str) -> Chat:
        """The last question in other words.

        Raises:
            InvalidRequest: nothing was asked.
        """
        return (self.pending or self.chat).edit(-1, text)

    # -- the conversation --------------------------------------------------------------------------

    def take_up(self, chat: Chat, id: str | None = None) -> None:  # noqa: A002
        """Go on with another conversation. A question at its end without an answer is pending."""
        waits = chat.open and chat.bridge is None
        self.chat = chat.undo() if waits else replace(chat, bridge=None)
        self.pending = chat if waits else None
        self.id = id or new_id()
        self.last = None
        self._noticed = ""

    def undo(self, turns: int) -> None:
        """Without the last turns; a question that has no answer counts as one.

        Raises:
            InvalidRequest: there are not so many.
        """
        self.chat = self.chat.undo(turns - (self.pending is not None))
        self.pending = None
        self.save()

    def instruct(self, system: str | None) -> None:
        """Another system message, or none."""
        self.chat = self.chat.with_system(system)
        self.settings = replace(self.settings, system=system)
        if self.chat.turns:
            self.save()

    def save(self) -> None:
        """Keep the conversation where conversations are kept, if they are.

        Raises:
            StoreFailed: this time, and it is not tried again.
        """
        if self._store is None:
            return
        try:
            if self.chat.turns:
                self._store.save(self.id, self.chat, kept(self.settings))
            else:
                self._store.delete(self.id)
        except StoreFailed:
            self._store = None
            raise

    # -- inside ------------------------------------------------------------------------------------

    def _attempt(self, sending: Sending) -> Attempt:
        fitted = sending.fitted
        options: dict[str, Any] = {
            "system": None,  # the conversation has its own
            "max_new_tokens": fitted.max_new_tokens,
            "stop": self.settings.stop,
            **self.settings.sampling.given(),
        }
        stream = self.model.stream(self._sent(fitted.messages), **cast("Options", options))
        notice = "" if fitted.notice == self._noticed else fitted.notice
        self._noticed = fitted.notice
        return Attempt(sending, stream, notice)

    def _count(self, messages: Sequence[Message]) -> int | None:
        return self.model.count(self._sent(messages), system=None)

    def _sent(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages as the model's template takes them."""
        if not self._fold_system:
            return messages
        return suited(messages, system="mend", repeats="mend")

    def _refused(self, attempt: Attempt, refusal: InvalidRequest) -> Attempt:
        if not isinstance(refusal, PromptTooLong):
            return self._otherwise(attempt.sending.asked, refusal)
        shorter = attempt.sending.shorter(refusal)
        self._window, self._estimate = shorter.fitted.room.window, shorter.fitted.room.estimate
        return self._attempt(shorter)

    def _otherwise(self, asked: Chat, refusal: InvalidRequest) -> Attempt:
        return self.begin(in_words(asked, refusal))

    def _answered(self, attempt: Attempt) -> None:
        stream = attempt.stream
        given_up = stream.state is None  # nobody waited for its end
        self.chat = attempt.sending.asked.answered(
            stream,
            finish_reason=FinishReason.CANCELLED if given_up else None,
            model=self.info.name,
        )
        self.pending = None
        self.last = stream
        self.save()
