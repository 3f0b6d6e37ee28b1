"""Who may ask what, and whose it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bourn.chat import Chat
from bourn.engines.scripted import Script, Scripted
from bourn.errors import InvalidRequest, Overloaded, RateLimited
from bourn.types import Request
from bourn.web.desk import Desk
from bourn.web.heard import Phase
from bourn.web.wishes import Wishes
from tests.support.desks import desk, until, watch_until


def echo(request: Request) -> Script:
    return Script([f"{request.messages[-1].text} "] * 200, delay=0.003)


async def test_two_visitors_see_and_stop_their_own_only(tmp_path: Path) -> None:
    async with desk(tmp_path, echo) as at:
        ann = await at.ask("ann's", owner="ann", talk="a")
        bob = await at.ask("bob's", owner="bob", talk="b")
        assert at.desk.live("bob", "a") is None
        assert at.desk.live("ann", "a") is ann
        await until(lambda: ann.tokens and bob.tokens)
        ann.stop()
        await ann.end()
        assert bob.phase is Phase.ANSWERING
        bob.stop()
        await bob.end()
        for owner, talk, other in (("ann", "a", "b"), ("bob", "b", "a")):
            kept = at.desk.conversations(owner)
            assert [entry.id for entry in kept.list()] == [talk]
            assert set(kept.load(talk).turns[0].messages[1].text.split()) == {f"{owner}'s"}
            with pytest.raises(InvalidRequest):
                at.desk.chat(owner, other)
            assert not await at.desk.delete(owner, other)
        assert at.kept("a", "ann").turns


async def test_one_answer_at_a_time_in_a_conversation(tmp_path: Path) -> None:
    async with desk(tmp_path, echo) as at:
        first = await at.ask()
        with pytest.raises(InvalidRequest, match="being answered"):
            await at.ask()
        other = await at.ask(talk="u")
        first.stop()
        await watch_until(first, lambda: first.phase is Phase.ENDED)
        again = await at.ask(first.chat.ask("And?"))
        assert at.desk.live("ann", "t") is again
        await first.end()
        assert at.desk.live("ann", "t") is again, "the end of the first has not taken it away"
        assert other.phase is not Phase.ENDED


async def test_the_next_question_may_follow_the_end_at_once(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["x"])) as at:
        chat = Chat()
        for number in range(5):
            answering = await at.ask(chat.ask(str(number)))
            async for _ in answering.watch(0.0):
                pass
            chat = answering.chat
        assert len(at.kept().turns) == 5


async def test_nothing_asked_is_nothing_answered(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        for chat in (Chat(), Chat().ask("Why?").answered("So.")):
            with pytest.raises(InvalidRequest, match="nothing was asked"):
                await at.ask(chat)
        assert at.desk.conversations("ann").list() == ()


async def test_so_many_at_once_for_one_visitor(tmp_path: Path) -> None:
    async with desk(tmp_path, echo, at_once=2) as at:
        for talk in "ab":
            await at.ask(talk=talk)
        with pytest.raises(RateLimited, match="2 answers"):
            await at.ask(talk="c")
        assert await at.ask(talk="d", owner="bob")


async def test_the_wishes_say_the_system_message(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["x"])) as at:
        chat = Chat(system="Be long.").ask("Why?")
        wishes = Wishes(system="Be brief.", max_new_tokens=5, keep_going=True)
        assert (await at.whole(chat, wishes)).chat.system == "Be brief."
        settings = at.desk.conversations("ann").settings("t")
        assert Wishes.from_json(settings) == wishes
        assert (await at.whole(chat, talk="u")).chat.system is None


async def test_the_model_is_chosen_by_its_name(tmp_path: Path) -> None:
    engines = {"m": Scripted(Script(["one"])), "n": Scripted(Script(["two"]))}
    async with desk(tmp_path, engines=engines) as at:
        told = [
            (await at.whole("?", Wishes(model=name))).chat.turns[0] for name in (None, "m", "n")
        ]
        assert [turn.messages[1].text for turn in told] == ["one", "one", "two"]
        assert [turn.model for turn in told] == ["m", "m", "n"]


async def test_what_is_deleted_while_it_is_answered_is_gone(tmp_path: Path) -> None:
    async with desk(tmp_path, echo) as at:
        answering = await at.ask()
        await until(lambda: answering.tokens)
        assert await at.desk.delete("ann", "t")
        await at.idle()
        assert answering.phase is Phase.ENDED
        assert at.desk.conversations("ann").list() == ()
        assert not await at.desk.delete("ann", "t")


async def test_a_name_stays_while_it_is_answered(tmp_path: Path) -> None:
    async with desk(tmp_path, echo) as at:
        answering = await at.ask("A question")
        await until(lambda: at.desk.conversations("ann").list())
        at.desk.conversations("ann").rename("t", "Mine")
        answering.stop()
        await answering.end()
        assert at.desk.conversations("ann").entry("t").title == "Mine"


async def test_a_closed_desk_has_kept_all_and_takes_nothing_more(tmp_path: Path) -> None:
    async with desk(tmp_path, echo) as at:
        for talk in "abc":
            await at.ask("Why?", Wishes(keep_going=True), talk=talk)
        await at.desk.aclose()
        await at.desk.aclose()
        assert [at.kept(talk).turns[0].error for talk in "abc"] == ["the server was stopped"] * 3
        with pytest.raises(Overloaded, match="the server was stopped"):
            await at.ask(talk="d")
        await at.idle()


async def test_a_draining_server_says_so(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["x"])) as at:
        at.fleet.draining = True
        refused = await at.whole()
        assert refused.error == "the server is about to stop (ask again in a moment)"


async def test_another_desk_finds_what_one_has_kept(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["x"])) as at:
        answering = await at.whole()
        another = Desk(at.fleet, at.store)
        assert another.chat("ann", "t") == answering.chat
