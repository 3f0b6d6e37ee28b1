"""What visitors do, and what they get to see of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from bourn.engines.scripted import Script
from bourn.errors import InvalidRequest
from bourn.web.acts import Acts, Sights, Visit
from bourn.web.sight import Sight
from bourn.web.wishes import Wishes
from tests.support.desks import SLOW, Place, desk, until
from tests.support.shown import texts

WISHES = Wishes()
ANN = Visit("ann", "tab", "")


async def told(acts: Acts, visit: Visit, act: Awaitable[Sight]) -> list[Sight]:
    """What an act shows, and all that follows, as the page does it."""
    first = await act
    visit = visit if first.talk is None else visit._replace(talk=first.talk)
    return [first, *[sight async for sight in acts.follow(visit)], await acts.settled(visit)]


async def asked(acts: Acts, visit: Visit, text: str, wishes: Wishes = WISHES) -> Visit:
    """Ask, and wait for the end; the visit with the conversation that it has become."""
    first, *_ = await told(acts, visit, acts.ask(visit, text, wishes))
    return visit._replace(talk=first.talk or "")


async def begun(acts: Acts, visit: Visit, at: Place) -> tuple[asyncio.Task[list[Sight]], Visit]:
    """An answer that somebody follows, with some words there."""
    first = await acts.ask(visit, "Why?", WISHES)
    visit = visit._replace(talk=first.talk or "")
    following = asyncio.create_task(all_of(acts.follow(visit)))
    live = at.desk.live(visit.owner, visit.talk)
    assert live is not None
    await until(lambda: live.tokens > 2)
    return following, visit


async def all_of(sights: Sights) -> list[Sight]:
    return [sight async for sight in sights]


def last(sights: list[Sight]) -> list[str]:
    """The last turn, as it was shown at last."""
    return texts([sight.now for sight in sights if sight.now is not None][-1])


async def test_a_question_is_shown_at_once_and_grows(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so "] * 100, delay=0.01)) as at:
        acts = Acts(at.desk)
        seen = await told(acts, ANN, acts.ask(ANN, "Why?", WISHES))
    first, *middle, settled = seen
    assert first.draft == ""  # the box is free again
    assert first.busy
    assert first.talks == settled.talks == (("Why?", first.talk),)
    assert texts(first.now) == ["Why?"]
    assert last(middle) == ["Why?", "so " * 100]
    assert 3 < len(middle) < 100  # joined
    assert settled.busy is False
    assert settled.can_continue


async def test_what_follows_is_little(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so "] * 30, delay=0.01)) as at:
        acts = Acts(at.desk)
        visit = await asked(acts, ANN, "1")
        first, *middle, _ = await told(acts, visit, acts.ask(visit, "2", WISHES))
    assert texts(first.past) == ["1", "so " * 30]
    for sight in middle:
        assert sight == Sight(
            now=sight.now, status=sight.status, spoken=sight.spoken, wrong=sight.wrong
        )


async def test_what_cannot_be_asked_stays_in_the_box(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        acts = Acts(at.desk)
        following, visit = await begun(acts, ANN, at)
        sight = await acts.ask(visit, "And?", WISHES)
        assert sight.draft == "And?"
        assert "being answered" in (sight.wrong or "")
        assert (await acts.settled(visit)).busy
        await acts.stop(visit)
        assert (await following)[-1].wrong == ""
        assert (await acts.settled(visit)).busy is False


async def test_who_asks_twice_before_the_page_knows_has_begun_one_conversation(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as at:
        acts = Acts(at.desk)
        following, visit = await begun(acts, ANN, at)
        again = await acts.ask(ANN, "Why?", WISHES)
        assert "being answered" in (again.wrong or "")
        assert again.talk == visit.talk
        await acts.fresh(ANN)
        other = await acts.ask(ANN, "How?", WISHES)
        assert other.talk not in {visit.talk, "", None}
        await acts.delete(ANN._replace(talk=other.talk or ""))
        await acts.stop(visit)
        await following


async def test_what_is_asked_in_another_tab_is_shown_instead(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so "] * 100, delay=0.01)) as at:
        acts = Acts(at.desk)
        following, visit = await begun(acts, ANN, at)
        other = visit._replace(tab="other")
        first, *more = await told(acts, other, acts.ask(other, "And?", WISHES))
        assert (first.draft, first.busy) == ("And?", True)
        assert "being answered" in (first.wrong or "")
        assert last(more) == last(await following) == ["Why?", "so " * 100]


async def test_a_conversation_that_was_deleted_elsewhere_is_told_of(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so"])) as at:
        acts = Acts(at.desk)
        visit = await asked(acts, ANN, "Why?")
        await acts.delete(visit._replace(tab="other"))
        with pytest.raises(InvalidRequest, match="there no more"):
            await acts.ask(visit, "And?", WISHES)


async def test_a_question_that_cannot_be_edited_is_shown_as_it_was(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        acts = Acts(at.desk)
        following, visit = await begun(acts, ANN, at)
        for text in ("  ", "How?"):
            sight = await acts.edit(visit, None, text, WISHES)
            assert sight.wrong
            assert texts(sight.now)[0] == "Why?"
        await acts.stop(visit)
        await following


async def test_nothing_is_no_question(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        acts = Acts(at.desk)
        assert await acts.ask(ANN, " \n", WISHES) == Sight()
        assert await all_of(acts.follow(ANN)) == []
        assert (await acts.settled(ANN)).busy is False


async def test_an_answer_that_has_ended_already_is_shown(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so"])) as at:
        acts = Acts(at.desk)
        first = await acts.ask(ANN, "Why?", WISHES)
        visit = ANN._replace(talk=first.talk or "")
        await until(lambda: at.desk.live("ann", visit.talk) is None)
        assert last(await all_of(acts.follow(visit))) == ["Why?", "so"]
        assert await all_of(acts.follow(visit)) == []


async def test_who_opens_it_again_sees_it_and_follows(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so "] * 100, delay=0.01)) as at:
        acts = Acts(at.desk)
        following, visit = await begun(acts, ANN, at)
        other = visit._replace(tab="other")
        seen = await told(acts, other, acts.open(other))
        assert seen[0].busy
        assert last(seen) == last(await following) == ["Why?", "so " * 100]
        (again, settled) = await told(acts, other, acts.open(other))
        assert texts(again.now) == ["Why?", "so " * 100]
        assert again.busy is settled.busy is False


@pytest.mark.parametrize("talk", ["nowhere", "../etc", ""])
async def test_what_is_not_there_is_a_new_conversation(talk: str, tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        sight = await Acts(at.desk).open(ANN._replace(talk=talk))
        assert sight.talk == ""
        assert sight.now == []
        assert bool(sight.wrong) is bool(talk)  # who comes by an address is told


async def test_another_visitors_is_not_there(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so"])) as at:
        acts = Acts(at.desk)
        visit = await asked(acts, ANN, "Why?")
        bob = visit._replace(owner="bob")
        sight = await acts.open(bob)
        assert sight.talks == ()
        assert sight.talk == ""
        for act in (acts.undo(bob), acts.rename(bob, "Mine")):
            with pytest.raises(InvalidRequest):
                await act
        await acts.delete(bob)
        assert at.desk.chat("ann", visit.talk).turns


async def test_a_closed_tab_ends_what_only_it_has_followed(tmp_path: Path) -> None:
    async with desk(tmp_path, SLOW) as at:
        acts = Acts(at.desk)
        following, visit = await begun(acts, ANN, at)
        second = asyncio.create_task(all_of(acts.follow(visit._replace(tab="second"))))
        live = at.desk.live("ann", visit.talk)
        assert live is not None
        await asyncio.sleep(0.1)
        acts.left("tab")
        await asyncio.sleep(0.1)
        assert at.engine.running  # the other one looks at it
        acts.left("second")
        await at.idle()
        await following
        await second


async def test_a_tab_closed_before_it_follows_ends_it(tmp_path: Path) -> None:
    async with desk(tmp_path, SLOW) as at:
        acts = Acts(at.desk)
        await acts.ask(ANN, "Why?", WISHES)
        acts.left("tab")
        await at.idle()


async def test_a_closed_tab_does_not_end_what_keeps_going(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so "] * 100, delay=0.01)) as at:
        acts = Acts(at.desk)
        following, visit = await begun(acts, ANN, at)
        await acts.keep_going(visit, True)
        acts.left("tab")
        await following
        assert at.kept(visit.talk).turns[0].messages[1].text == "so " * 100


async def test_only_what_is_looked_at_is_shown(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so "] * 100, delay=0.01)) as at:
        acts = Acts(at.desk)
        following, visit = await begun(acts, ANN, at)
        fresh = await acts.fresh(visit)
        assert fresh.talk == ""
        assert fresh.talks == (("Why?", visit.talk),)  # to go back to
        seen = await following
        assert not any("so " * 100 in texts(sight.now) for sight in seen)
        # it was made to its end: the tab is still open
        assert at.kept(visit.talk).turns[0].messages[1].text == "so " * 100


async def test_what_comes_late_of_a_conversation_that_was_left_is_not_shown(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so "] * 100, delay=0.01)) as at:
        acts = Acts(at.desk)
        first = await acts.ask(ANN, "Why?", WISHES)
        visit = ANN._replace(talk=first.talk or "")
        await acts.fresh(visit)  # before the page has followed it
        assert await all_of(acts.follow(visit)) == []
        assert await acts.settled(visit) == Sight()
        again = await acts.ask(ANN, "How?", WISHES)
        assert await acts.settled(ANN) == Sight()  # of the empty page
        await acts.delete(ANN._replace(talk=again.talk or ""))
        await acts.open(visit)
        assert last(await all_of(acts.follow(visit))) == ["Why?", "so " * 100]
        assert (await acts.settled(visit)).talk == visit.talk


async def test_of_two_that_are_turned_to_at_once_the_last_is_shown(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so"])) as at:
        acts = Acts(at.desk)
        one = await asked(acts, ANN, "One?")
        await acts.fresh(one)
        two = await asked(acts, ANN, "Two?")
        for last_one in (two, ANN):
            first, second = await asyncio.gather(acts.open(one), acts.open(last_one))
            assert (first, second.talk) == (Sight(), last_one.talk)
        gone, second = await asyncio.gather(acts.open(ANN._replace(talk="no")), acts.open(two))
        assert (gone, second.talk) == (Sight(), two.talk)
        fresh, second = await asyncio.gather(acts.fresh(one), acts.open(two))
        assert (fresh, second.talk) == (Sight(), two.talk)


async def test_after_one_that_is_not_there_a_new_one_is_begun(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so"])) as at:
        acts = Acts(at.desk)
        await acts.open(ANN._replace(talk="nowhere"))
        visit = await asked(acts, ANN, "Why?")
        assert visit.talk not in {"nowhere", ""}


async def test_a_tab_from_before_a_restart_goes_on(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so"])) as at:
        visit = await asked(Acts(at.desk), ANN, "Why?")
        acts = Acts(at.desk)
        assert (await acts.settled(visit)).talk == visit.talk
        assert last(await told(acts, visit, acts.again(visit, WISHES))) == ["Why?", "so"]


async def test_again_edit_undo_and_more(tmp_path: Path) -> None:
    async with desk(tmp_path, lambda request: Script([f"{request.messages[-1].text}! "])) as at:
        acts = Acts(at.desk)
        visit = await asked(acts, ANN, "1")
        await asked(acts, visit, "2")
        assert last(await told(acts, visit, acts.again(visit, WISHES))) == ["2", "2! "]
        edited = await told(acts, visit, acts.edit(visit, 0, "one", WISHES))
        assert last(edited) == ["one", "one! "]
        assert len(at.kept(visit.talk).turns) == 1
        with pytest.raises(InvalidRequest):
            await acts.edit(visit, 1, "no question", WISHES)
        longer = await told(acts, visit, acts.more(visit, WISHES))
        assert last(longer)[1].startswith("one! ")
        sight = await acts.undo(visit)
        assert sight.draft == "one"
        assert sight.now == []
        assert sight.talks == ()


async def test_names_and_wishes_are_kept(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so"])) as at:
        acts = Acts(at.desk)
        wishes = Wishes(model="m", system="Be brief.", temperature=0.5, stop=("x",))
        visit = await asked(acts, ANN, "Why?", wishes)
        assert (await acts.rename(visit, " ")).wrong
        renamed = await acts.rename(visit, " Reasons ")
        assert renamed.talks == (("Reasons", visit.talk),)
        assert renamed.wrong == ""
        assert (await acts.rename(ANN, "Nothing")).wrong
        sight = await acts.open(visit)
        assert sight.wishes == wishes
        assert sight.title == "Reasons"
        assert (await acts.delete(visit)).talks == ()
