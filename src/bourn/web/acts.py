"""What a visitor can do on the page, and what is to be seen of it. It knows no Gradio.

Each act gives a sight: what has changed at once. Where something is being answered then, `follow`
goes on with what comes of it, which is little and comes often; `settled` is what is to be seen once
that has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bourn.chat import Chat
from bourn.conversations import new_id
from bourn.errors import BournError, InvalidRequest
from bourn.web.answering import Answering, Phase, in_plain_words
from bourn.web.desk import Desk
from bourn.web.sight import Sight
from bourn.web.view import now, past, question_at
from bourn.web.wishes import Wishes
from bourn.web.words import Announcer, status

Sights = AsyncGenerator[Sight, None]

_NO_TITLE = "…"


class Visit(NamedTuple):
    """Who acts, in which tab, on which conversation: the one that is shown there."""

    owner: str
    tab: str
    talk: str


@dataclass
class Tab:
    """A tab of a browser.

    shows: the conversation that was turned to last, of which its page may not know yet; None where
    the tab is older than we are. follows: the last `follow` in it; earlier ones are silent.
    answers: those made for it, by conversation.
    """

    shows: str | None = None
    follows: object = None
    answers: dict[str, Answering] = field(default_factory=dict)

    def has_left(self, talk: str) -> bool:
        """Whether something else was turned to meanwhile."""
        return self.shows not in (None, talk)


class Acts:
    """For all tabs of all visitors. Belongs to the desk's event loop.

    limit: of the conversations that are listed.
    """

    def __init__(self, desk: Desk, limit: int = 200) -> None:
        self.desk = desk
        self._limit = limit
        self._tabs: dict[str, Tab] = {}

    # -- which conversation ------------------------------------------------------------------------

    async def open(self, visit: Visit) -> Sight:
        """Show a conversation; a new one where there is none, or it is somebody else's."""
        tab = self._turn(visit, visit.talk)
        try:
            chat = await self._chat(visit)
        except InvalidRequest as gone:
            sight = replace(await self._blank(visit), wrong=in_plain_words(gone))
            if not tab.has_left(visit.talk):
                self._turn(visit, "")
        else:
            sight = await (self._whole(visit, chat) if visit.talk else self._blank(visit))
        return Sight() if tab.has_left(sight.talk or "") else sight

    async def fresh(self, visit: Visit) -> Sight:
        """Begin another conversation, with the same wishes."""
        tab = self._turn(visit, "")
        sight = await self._blank(visit)
        return Sight() if tab.has_left("") else sight

    async def rename(self, visit: Visit, title: str) -> Sight:
        store = self.desk.conversations(visit.owner)
        if not title.strip():
            return Sight(wrong="give the conversation a name")
        if not visit.talk:
            return Sight(wrong="ask something first")
        chat = await self._chat(visit)
        await asyncio.to_thread(store.rename, visit.talk, title.strip())
        return replace(await self._listed(visit, chat), wrong="")

    async def delete(self, visit: Visit) -> Sight:
        """Forget the conversation, and what is being made for it."""
        self._turn(visit, "")
        await self.desk.delete(visit.owner, visit.talk)
        return await self._blank(visit)

    # -- answers -----------------------------------------------------------------------------------

    async def ask(self, visit: Visit, text: str, wishes: Wishes, *, example: bool = False) -> Sight:
        if not text.strip():
            return Sight()
        visit = visit._replace(talk=visit.talk or self._tab(visit).shows or "")
        chat = (await self._chat(visit)).ask(text)
        return await self._asked(visit, chat, wishes, draft=text, example=example)

    async def again(self, visit: Visit, wishes: Wishes) -> Sight:
        """The last question once more; its answer goes."""
        return await self._asked(visit, (await self._chat(visit)).retry(), wishes)

    async def more(self, visit: Visit, wishes: Wishes) -> Sight:
        """Go on with the last answer."""
        chat = (await self._chat(visit)).continued(prefill=True)
        return await self._asked(visit, chat, wishes)

    async def edit(self, visit: Visit, index: int | None, text: str, wishes: Wishes) -> Sight:
        """Ask a question in other words; what came after it goes.

        index: of the message in what is shown of the past; None is the last question.
        """
        chat = await self._chat(visit)
        turn = -1 if index is None else question_at(chat.turns, index)
        if turn is None:
            raise InvalidRequest("this is no question", hint="edit a question")
        if not text.strip():
            return await self._refused(visit, InvalidRequest("nothing was asked"))
        return await self._asked(visit, chat.edit(turn, text), wishes)

    async def follow(self, visit: Visit) -> Sights:
        """What comes of the answer that is being made, until it has ended.

        Silent once something else is turned to, or followed, in that tab.
        """
        tab, announcer, token = self._tab(visit), Announcer(), object()
        live = tab.answers.get(visit.talk) or self.desk.live(visit.owner, visit.talk)
        if live is None or tab.has_left(visit.talk):
            return
        tab.follows, tab.answers[visit.talk] = token, live
        try:
            async with aclosing(live.watch()) as changes:
                async for _ in changes:
                    if tab.follows is token:
                        yield _of(live, announcer)
        finally:
            if tab.answers.get(visit.talk) is live:
                del tab.answers[visit.talk]

    async def settled(self, visit: Visit) -> Sight:
        """What can be done now."""
        if self._tab(visit).has_left(visit.talk):
            return Sight()
        if not visit.talk:
            return Sight(busy=False, can_continue=False)
        chat = await self._chat(visit)
        return replace(
            await self._listed(visit, chat),
            busy=self.desk.live(visit.owner, visit.talk) is not None,
            can_continue=_can_continue(chat),
        )

    async def undo(self, visit: Visit) -> Sight:
        """Take the last question back, into the box."""
        if self.desk.live(visit.owner, visit.talk) is not None:
            return Sight(wrong="stop the answer first")
        chat = await self._chat(visit)
        asked = chat.turns[-1].question if chat.turns else None
        chat = chat.undo(min(1, len(chat.turns)))
        store = self.desk.conversations(visit.owner)
        if chat.turns:
            settings = await asyncio.to_thread(store.settings, visit.talk)
            await asyncio.to_thread(store.save, visit.talk, chat, settings)
            sight = await self._whole(visit, chat)
        else:
            await asyncio.to_thread(store.delete, visit.talk)
            sight = await self.fresh(visit)
        return replace(sight, draft=asked.text if asked else "")

    async def stop(self, visit: Visit) -> Sight:
        """End the answer that is being made; what there is of it stays."""
        if (live := self.desk.live(visit.owner, visit.talk)) is not None:
            live.stop()
        return Sight()

    async def keep_going(self, visit: Visit, wanted: bool) -> Sight:  # noqa: FBT001 (a checkbox)
        """Whether the answer that is being made goes on when the tab is closed."""
        if (live := self.desk.live(visit.owner, visit.talk)) is not None:
            live.keep_going = wanted
        return Sight()

    def left(self, tab: str) -> None:
        """A tab was closed: nothing is made for it any more, unless it is to keep going.

        Gradio ends what a tab follows only at its next sight, which may be long in coming.
        """
        gone = self._tabs.pop(tab, Tab())
        followed = [each for tab in self._tabs.values() for each in tab.answers.values()]
        for answering in gone.answers.values():
            if answering not in followed and not answering.keep_going:
                answering.stop()

    # -- inside ------------------------------------------------------------------------------------

    async def _asked(
        self,
        visit: Visit,
        chat: Chat,
        wishes: Wishes,
        *,
        draft: str | None = None,
        example: bool = False,
    ) -> Sight:
        visit = visit if visit.talk else visit._replace(talk=new_id())
        try:
            live = await self.desk.ask(visit.owner, visit.talk, chat, wishes, example=example)
        except BournError as error:
            return await self._refused(visit, error, draft)
        tab = self._tab(visit)
        tab.shows, tab.answers[visit.talk] = visit.talk, live
        turns = live.chat.turns
        return replace(
            await self._listed(visit, live.chat),
            past=past(turns),
            now=now(turns, live=True),
            wrong="",
            busy=True,
            can_continue=False,
            draft="",
        )

    async def _refused(self, visit: Visit, error: BournError, draft: str | None = None) -> Sight:
        """Why; and what there is, since the page may show something else."""
        try:
            sight = await self._whole(visit, await self._chat(visit))
        except InvalidRequest:  # nothing yet
            sight = Sight()
        return replace(sight, wrong=in_plain_words(error), status=None, draft=draft, wishes=None)

    async def _blank(self, visit: Visit) -> Sight:
        """No conversation yet."""
        return Sight(
            talk="",
            title="",
            talks=await self._talks(visit.owner),
            past=[],
            now=[],
            status="",
            wrong="",
            busy=False,
            can_continue=False,
        )

    async def _whole(self, visit: Visit, chat: Chat) -> Sight:
        store = self.desk.conversations(visit.owner)
        wishes = Wishes.from_json(await asyncio.to_thread(store.settings, visit.talk))
        busy = self.desk.live(visit.owner, visit.talk) is not None
        return replace(
            await self._listed(visit, chat),
            past=past(chat.turns),
            now=now(chat.turns, live=busy),
            status="",
            wrong="",
            busy=busy,
            can_continue=_can_continue(chat),
            wishes=wishes,
        )

    async def _listed(self, visit: Visit, chat: Chat) -> Sight:
        """The conversation among the others, also where it is not kept yet."""
        talks = await self._talks(visit.owner)
        titles = {talk: title for title, talk in talks}
        if chat.turns and visit.talk not in titles:
            talks = ((chat.title or _NO_TITLE, visit.talk), *talks)
        return Sight(talk=visit.talk, title=titles.get(visit.talk, chat.title), talks=talks)

    async def _chat(self, visit: Visit) -> Chat:
        if not visit.talk:
            return Chat()
        try:
            return await asyncio.to_thread(self.desk.chat, visit.owner, visit.talk)
        except InvalidRequest as gone:
            raise InvalidRequest(
                "this conversation is there no more", hint="begin a new one"
            ) from gone

    async def _talks(self, owner: str) -> tuple[tuple[str, str], ...]:
        store = self.desk.conversations(owner)
        entries = await asyncio.to_thread(store.list, self._limit)
        return tuple((entry.title or _NO_TITLE, entry.id) for entry in entries)

    def _turn(self, visit: Visit, talk: str) -> Tab:
        """Something else is looked at in that tab."""
        tab = self._tab(visit)
        tab.shows, tab.follows = talk, None
        return tab

    def _tab(self, visit: Visit) -> Tab:
        return self._tabs.setdefault(visit.tab, Tab())


def _of(live: Answering, announcer: Announcer) -> Sight:
    """An answer as it is now."""
    busy = live.phase is not Phase.ENDED
    spoken = announcer.feed(live.phase, live.text, time.monotonic())
    return Sight(
        now=now(live.chat.turns, live=busy),
        status=" · ".join(filter(None, (status(live), live.notice))),
        wrong=None if busy else "",
        spoken=spoken or None,
    )


def _can_continue(chat: Chat) -> bool:
    """Whether the last answer broke off, or was cut."""
    if not chat.turns or (answer := chat.turns[-1].answer) is None:
        return False
    return not answer.tool_calls
