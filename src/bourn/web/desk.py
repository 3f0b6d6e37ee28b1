"""Where visitors ask: the conversations of each, and the answers that are being made for them."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from bourn.chat import Chat, Room
from bourn.conversations import Conversations
from bourn.errors import InvalidRequest, Overloaded, RateLimited
from bourn.server.fleet import Fleet
from bourn.terms import Timeouts
from bourn.web.answering import CUT_OFF, Answering
from bourn.web.exchange import Question
from bourn.web.heard import Phase
from bourn.web.wishes import Wishes


class Desk:
    """Belongs to the fleet's event loop.

    store: the file for conversations; None is the user's own, as `Conversations` has it.
    at_once: the most answers that may be made for one owner at the same time.
    """

    def __init__(
        self,
        fleet: Fleet,
        store: Path | None,
        *,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 (frozen)
        at_once: int = 8,
    ) -> None:
        self.fleet = fleet
        self._store = store
        self._timeouts = timeouts
        self._at_once = at_once
        self._live: dict[tuple[str, str], Answering] = {}
        self._rooms: dict[str, Room] = {}
        self._closed = False

    def conversations(self, owner: str) -> Conversations:
        """Those of one visitor."""
        return Conversations(self._store, owner)

    def live(self, owner: str, talk: str) -> Answering | None:
        """The answer that is being made in a conversation, if one is."""
        answering = self._live.get((owner, talk))
        return None if answering is None or answering.phase is Phase.ENDED else answering

    def chat(self, owner: str, talk: str) -> Chat:
        """A conversation, with what was seen of an answer that is being made in it.

        Opens the file, where none is. From any thread.

        Raises:
            InvalidRequest: there is none.
            StoreFailed: it cannot be read.
        """
        live = self.live(owner, talk)
        return self.conversations(owner).load(talk) if live is None else live.snapshot

    async def ask(
        self, owner: str, talk: str, chat: Chat, wishes: Wishes, *, example: bool = False
    ) -> Answering:
        """Have a conversation answered. Whatever goes wrong then, the answer tells.

        chat: asks something, or wants more of its last answer; the system message is the wishes'.
        example: it is the page's own question, which others were answered, too; at the beginning
            of a conversation an answer of theirs will do.

        Raises:
            InvalidRequest: nothing is asked in it, or an answer is being made in it.
            Overloaded: too many answers are being made for this owner, or the server stops.
        """
        self._check(owner, talk, chat)
        question = Question(
            owner, talk, chat.with_system(wishes.system), wishes, example, self._timeouts
        )
        keep = partial(self._keep, self.conversations(owner), talk, wishes)
        answering = Answering(question, self.fleet, keep, self._rooms)
        self._live[owner, talk] = answering
        answering.begin().add_done_callback(lambda _: self._forget(answering))
        return answering

    async def delete(self, owner: str, talk: str) -> bool:
        """Forget a conversation, and end the answer in it; whether there was one."""
        live = self.live(owner, talk)
        if live is not None:
            live.stop()
            await live.end()
        return await asyncio.to_thread(self.conversations(owner).delete, talk)

    async def aclose(self) -> None:
        """End all answers, as broken off, and wait until they are kept. Idempotent."""
        self._closed = True
        answers = list(self._live.values())
        for answering in answers:
            answering.cut_off()
        await asyncio.gather(*(answering.end() for answering in answers))

    def _check(self, owner: str, talk: str, chat: Chat) -> None:
        if self._closed:
            raise Overloaded(CUT_OFF, hint="ask again in a moment")
        if not chat.open:
            raise InvalidRequest("nothing was asked", hint="write something first")
        if self.live(owner, talk) is not None:
            raise InvalidRequest(
                "this conversation is being answered", hint="wait for the end, or stop it"
            )
        if sum(each == owner for each, _ in self._live) >= self._at_once:
            raise RateLimited(
                f"{self._at_once} answers are being made for you already",
                hint="wait for one of them, or stop one",
            )

    def _forget(self, answering: Answering) -> None:
        place = answering.owner, answering.talk
        if self._live.get(place) is answering:  # and not the next one in that conversation
            del self._live[place]

    @staticmethod
    def _keep(store: Conversations, talk: str, wishes: Wishes, chat: Chat) -> None:
        store.save(talk, chat, wishes.to_json())
