"""One answer: watched, stopped, left alone, broken, kept."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from time import monotonic

import pytest

from bourn.chat import CONTINUE, Chat
from bourn.engines.base import ModelInfo
from bourn.engines.scripted import Script, Scripted
from bourn.errors import EngineCrashed, PromptTooLong, TemplateError
from bourn.sharing import key_for
from bourn.types import Channel, FinishReason, Piece, Request
from bourn.web import answering as module
from bourn.web import exchange
from bourn.web.answering import CUT_OFF, WRONG, Phase
from bourn.web.wishes import Wishes
from tests.support.desks import GUARD, desk, until, watch_until

FOX = Script(["The ", "quick ", "fox"])


def said(chat: Chat) -> str:
    answer = chat.turns[-1].answer
    return "" if answer is None else answer.text


def sent(request: Request) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in request.messages]


class Noting:
    """Says a script, and notes what it was asked."""

    def __init__(self, script: Script = FOX) -> None:
        self.script = script
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> Script:
        self.asked.append(request)
        return self.script


# -- as it comes -----------------------------------------------------------------------------------


async def test_an_answer_is_watched_to_its_end_and_kept(tmp_path: Path) -> None:
    async with desk(tmp_path, FOX) as at:
        answering = await at.whole("Why?", Wishes(seed=7))
        (turn,) = answering.chat.turns
        assert said(answering.chat) == answering.text == "The quick fox"
        assert (answering.phase, turn.finish_reason) == (Phase.ENDED, FinishReason.STOP)
        assert (turn.model, turn.seed, turn.error) == ("m", 7, None)
        assert turn.metrics is not None
        assert turn.metrics.tokens == answering.tokens == 3
        assert at.kept() == answering.chat
        assert at.desk.conversations("ann").settings("t") == {"seed": 7}


async def test_the_first_words_are_there_before_the_last(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        answering = await at.ask()
        await watch_until(answering, lambda: answering.text)
        assert answering.text.startswith("so ")
        assert len(answering.text) < len("so " * 400) / 2
        assert said(answering.chat) == answering.text


async def test_updates_are_joined(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["x"] * 300, delay=0.001)) as at:
        answering = await at.ask()
        began = monotonic()
        lengths = [len(answering.text) async for _ in answering.watch(0.05)]
        assert lengths[-1] == 300
        assert lengths == sorted(lengths)
        assert len(lengths) <= (monotonic() - began) / 0.05 + 2


async def test_several_may_watch_and_one_may_go(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["x"] * 60, delay=0.002)) as at:
        answering = await at.ask()

        async def watch() -> str:
            return [answering.text async for _ in answering.watch()][-1]

        one = asyncio.create_task(watch())
        await watch_until(answering, lambda: answering.text)
        assert await one == "x" * 60


async def test_who_comes_after_the_end_is_told_once(tmp_path: Path) -> None:
    async with desk(tmp_path, FOX) as at:
        answering = await at.whole()
        assert [answering.text async for _ in answering.watch()] == ["The quick fox"]


async def test_the_phases(tmp_path: Path) -> None:
    thought = Piece("hm ", Channel.REASONING, tokens=1)
    script = Script([thought, thought, "so ", "it is"], 0.01, 100, 4, 0.01)
    async with desk(tmp_path, script) as at:
        answering = await at.ask()
        seen = [(answering.phase, answering.progress) async for _ in answering.watch(0.0)]
        phases = list(dict.fromkeys(phase for phase, _ in seen))
        assert phases[-4:] == [Phase.READING, Phase.THINKING, Phase.ANSWERING, Phase.ENDED]
        assert (Phase.READING, (50, 100)) in seen
        assert answering.reasoning == "hm hm "
        answer = answering.chat.turns[0].answer
        assert answer is not None
        assert answer.reasoning == "hm hm "


async def test_the_place_in_the_queue(tmp_path: Path) -> None:
    async with desk(tmp_path, slots=1) as at:
        first, second, third = [await at.ask(talk=talk) for talk in "abc"]
        await until(lambda: third.place)
        assert [each.place for each in (first, second, third)] == [None, 1, 2]
        assert third.phase is Phase.WAITING
        second.stop()
        await until(lambda: third.place == 1)
        first.stop()
        await until(lambda: third.place is None)
        assert third.phase in (Phase.READING, Phase.ANSWERING)


class Loading(Scripted):
    """Loads when its gate is open."""

    def __init__(self, script: Script = FOX) -> None:
        super().__init__(script)
        self.gate = asyncio.Event()

    async def start(self) -> ModelInfo:
        await self.gate.wait()
        return await super().start()


async def test_a_model_that_is_loading(tmp_path: Path) -> None:
    engine = Loading()
    async with desk(tmp_path, engine) as at:
        answering = await at.ask()
        await asyncio.sleep(0.01)
        assert answering.phase is Phase.LOADING
        stopped = await at.ask(talk="other")
        stopped.stop()
        await stopped.end()
        assert (said(stopped.chat), stopped.chat.turns[-1].stopped) == ("", True)
        engine.gate.set()
        await watch_until(answering, lambda: answering.phase is Phase.ENDED)
        assert answering.text == "The quick fox"
        assert (await at.ask(talk="third")).phase is Phase.WAITING, "it is loaded"


# -- stopped ---------------------------------------------------------------------------------------


async def test_stopped_at_a_word(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        answering = await at.ask()
        await until(lambda: answering.tokens > 3)
        answering.stop()
        answering.stop()
        await answering.end()
        await at.idle()
        (turn,) = answering.chat.turns
        assert turn.stopped
        assert said(answering.chat).startswith("so so so ")
        assert answering.tokens < 100
        assert at.kept() == answering.chat


async def test_stopped_in_the_queue(tmp_path: Path) -> None:
    async with desk(tmp_path, slots=1) as at:
        first = await at.ask(talk="a")
        second = await at.ask(talk="b")
        await until(lambda: second.place == 1)
        second.stop()
        await second.end()
        assert at.engine.started == 1
        assert at.kept("b").turns[0].stopped
        assert first.phase is not Phase.ENDED


async def test_stopped_while_the_prompt_is_read(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["x"], 0, 1000, 100, 0.05)) as at:
        answering = await at.ask()
        await until(lambda: answering.progress)
        answering.stop()
        await answering.end()
        await at.idle()
        assert answering.chat.turns[0].stopped
        assert answering.chat.turns[0].answer is None


async def test_it_stops_when_nobody_watches_any_more(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        answering = await at.ask()
        await watch_until(answering, lambda: answering.tokens > 3)
        await answering.end()
        await at.idle()
        assert at.kept().turns[0].stopped
        assert said(at.kept()).startswith("so so so ")
        assert at.desk.live("ann", "t") is None


async def test_it_stops_when_nobody_begins_to_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_WATCHER", 0.02)
    async with desk(tmp_path) as at:
        answering = await at.ask()
        await answering.end()
        assert answering.chat.turns[0].stopped


async def test_it_keeps_going_where_that_is_wished(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["x"] * 40, delay=0.002)) as at:
        answering = await at.ask("Why?", Wishes(keep_going=True))
        await watch_until(answering, lambda: said(answering.chat))
        live = at.desk.live("ann", "t")
        assert live is answering
        assert said(await asyncio.to_thread(at.desk.chat, "ann", "t")).startswith("x")
        assert [live.text async for _ in live.watch()][-1] == "x" * 40
        assert said(at.kept()) == "x" * 40
        assert at.kept().turns[0].finish_reason is FinishReason.STOP


async def test_alone_to_its_end(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["x"] * 40, delay=0.002)) as at:
        answering = await at.ask("Why?", Wishes(keep_going=True))
        await watch_until(answering, lambda: answering.text)
        await answering.end()
        assert said(at.kept()) == "x" * 40


async def test_nobody_is_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ABANDONED", 0.02)
    async with desk(tmp_path) as at:
        answering = await at.ask("Why?", Wishes(keep_going=True))
        await watch_until(answering, lambda: answering.text)
        await answering.end()
        assert at.kept().turns[0].stopped


async def test_it_may_be_left_to_go_on_and_called_back(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        answering = await at.ask()
        answering.keep_going = True
        await watch_until(answering, lambda: answering.text)
        await asyncio.sleep(0.03)
        assert answering.phase is Phase.ANSWERING
        answering.keep_going = False
        await answering.end()
        assert answering.chat.turns[0].stopped


def _threads() -> int:
    """Without the loop's own, which wait for the next that is to be written."""
    own = ("asyncio_", "ThreadPoolExecutor")
    return sum(not thread.name.startswith(own) for thread in threading.enumerate())


async def test_twenty_stops_leave_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await at.whole(
            Chat().ask("Once, so that threads that stay are there."), Wishes(max_new_tokens=1)
        )
        for _ in range(8):
            await asyncio.to_thread(int)
        tasks, threads = len(asyncio.all_tasks()), _threads()
        for number in range(20):
            answering = await at.ask(talk=str(number))
            await watch_until(answering, lambda: answering.tokens > 2)  # noqa: B023 (called here)
            answering.stop()
            await answering.end()
        await at.idle()
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        assert _threads() == threads
        (hub,) = at.fleet.hubs.values()
        assert (hub.readers, hub.live) == (0, 0)


# -- broken ----------------------------------------------------------------------------------------


async def test_an_engine_that_dies_half_way(tmp_path: Path) -> None:
    died = EngineCrashed("the engine died", last_words=("secret",), hint="ask again")

    def says(request: Request) -> Script:
        first = request.messages[-1].text == "Why?"
        return Script(["The ", "quick ", "fox"], fail_at=2 if first else None, error=died)

    async with desk(tmp_path, says) as at:
        answering = await at.whole("Why?")
        (turn,) = answering.chat.turns
        assert (said(answering.chat), turn.finish_reason) == ("The quick ", None)
        assert turn.error == answering.error == "the engine died (ask again)"
        assert at.kept() == answering.chat
        another = await at.whole(answering.chat.ask("And now?"))
        assert said(another.chat) == "The quick fox"
        assert [turn.error for turn in at.kept().turns] == ["the engine died (ask again)", None]


async def test_what_nobody_expected_is_logged_and_not_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk(tmp_path, Script(["x"], fail_at=1, error=RuntimeError("/etc/secret"))) as at:
        answering = await at.whole()
        assert answering.chat.turns[0].error == WRONG
        assert said(answering.chat) == "x"
        assert "/etc/secret" in caplog.text


async def test_a_full_queue_and_an_unknown_model(tmp_path: Path) -> None:
    async with desk(tmp_path, slots=1, queue_limit=1) as at:
        for talk in "ab":
            await at.ask(talk=talk)
        (hub,) = at.fleet.hubs.values()
        await until(lambda: hub.waiting)
        refused = await at.whole(talk="c")
        error = refused.chat.turns[0].error
        assert error is not None
        assert "waiting" in error
        assert at.kept("c").turns[0].error == error
        assert at.kept("c").turns[0].answer is None
        unknown = await at.whole("Why?", Wishes(model="z"), talk="d")
        assert unknown.error == "there is no model `z` here (there is m)"


async def test_a_wish_that_the_engine_cannot_honour(tmp_path: Path) -> None:
    async with desk(tmp_path, FOX, honours=frozenset()) as at:
        answering = await at.whole("Why?", Wishes(seed=1))
        assert answering.error == "scripted cannot honour `seed` (leave `seed` out)"


async def test_a_question_without_an_answer_is_not_sent_again(tmp_path: Path) -> None:
    says = Noting()
    async with desk(tmp_path, says) as at:
        unknown = await at.whole("One?", Wishes(model="z"))
        answering = await at.whole(unknown.chat.ask("Two?"))
        assert sent(says.asked[-1]) == [("user", "Two?")]
        assert [turn.question.text for turn in answering.chat.turns if turn.question] == [
            "One?",
            "Two?",
        ]
        again = await at.whole(unknown.chat)
        assert again.chat.turns[0].error is None
        assert said(again.chat) == "The quick fox"


async def test_a_store_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk(tmp_path, FOX) as at:
        at.store.write_text("my diary\n" * 1000)
        answering = await at.whole()
        assert said(answering.chat) == "The quick fox"
        assert answering.error is None
        assert "not kept" in answering.notice
        assert "not kept" in caplog.text


# -- asked once more -------------------------------------------------------------------------------


async def test_it_is_gone_on_with(tmp_path: Path) -> None:
    says = Noting(Script(["and on"]))
    begun = Chat().ask("Why?").answered("So", finish_reason=FinishReason.CANCELLED)
    async with desk(tmp_path, says) as at:
        asked = begun.continued(prefill=True)
        answering = await at.whole(asked)
        assert said(answering.chat) == "So and on"
        assert answering.text == "and on"
        assert sent(says.asked[-1])[-1] == ("user", CONTINUE)
        assert answering.chat.turns[0].finish_reason is FinishReason.STOP
    async with desk(tmp_path, says, prefills=True) as at:
        assert said((await at.whole(asked, talk="u")).chat) == "Soand on"
        assert sent(says.asked[-1])[-1] == ("assistant", "So")
        whole = Chat().ask("Why?").answered("So.").continued(prefill=True)
        assert said((await at.whole(whole, talk="v")).chat) == "So. and on"
        assert sent(says.asked[-1])[-1] == ("user", CONTINUE)


async def test_the_oldest_turns_are_left_out(tmp_path: Path) -> None:
    says = Noting()
    chat = Chat()
    for number in range(10):
        chat = chat.ask(f"{number} " * 10).answered("x " * 10)
    async with desk(tmp_path, says, window=60) as at:
        answering = await at.whole(chat.ask("Now?"), Wishes(max_new_tokens=10))
        assert said(answering.chat) == "The quick fox"
        assert len(answering.chat.turns) == 11
        assert "were left out" in answering.notice
        assert sent(says.asked[-1])[-1] == ("user", "Now?")
        assert len(says.asked[-1].messages) < 8


class Uncounted(Scripted):
    """Nobody can count, and a prompt of more than so many words is refused."""

    async def count(self, request: Request) -> int | None:
        return None


async def test_what_an_endpoint_finds_too_long_is_asked_again_shorter(tmp_path: Path) -> None:
    def says(request: Request) -> Script:
        long = sum(len(message.text.split()) for message in request.messages)
        if long > 50:
            error = PromptTooLong("too long", prompt_tokens=long, window=60)
            return Script(fail_at=0, error=error)
        return FOX

    chat = Chat()
    for number in range(10):
        chat = chat.ask(f"{number} " * 10).answered("x " * 10)
    async with desk(tmp_path, Uncounted(says)) as at:
        answering = await at.whole(chat.ask("Now?"), Wishes(max_new_tokens=10))
        assert said(answering.chat) == "The quick fox"
        assert "left out" in answering.notice
        alone = await at.whole(Chat().ask("why " * 60), talk="u")
        assert alone.error is not None
        assert alone.error.startswith("too long")


async def test_a_template_that_takes_no_system_message(tmp_path: Path) -> None:
    def says(request: Request) -> Script:
        asked.append(request)
        if request.messages[0].role == "system":
            return Script(fail_at=0, error=TemplateError("no system message"))
        return FOX

    asked: list[Request] = []
    async with desk(tmp_path, says) as at:
        answering = await at.whole("Why?", Wishes(system="Be brief."))
        assert said(answering.chat) == "The quick fox"
        assert sent(asked[-1]) == [("user", "Be brief.\n\nWhy?")]
        assert "system prompt" in answering.notice


# -- what was made before --------------------------------------------------------------------------


async def test_an_example_comes_in_its_steps_and_stops_where_it_is_stopped(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["x "] * 20, 0.01), key=key_for("m")) as at:
        first = await at.whole(example=True)
        assert at.engine.started == 1
        again = await at.ask(owner="bob", talk="b", example=True)
        seen = [again.text async for _ in again.watch(0.0)]
        assert (again.text, at.engine.started) == (first.text, 1)
        assert len(set(seen)) >= 5
        assert at.kept("b", owner="bob").turns[0].metrics == first.metrics
        assert again.speed is None
        third = await at.ask(owner="carl", talk="c", example=True)
        await watch_until(third, lambda: third.text)
        await third.end()
        assert third.chat.turns[0].stopped
        assert 0 < len(third.text) < len(first.text)


async def test_what_a_visitor_writes_is_kept_in_the_conversation_alone(tmp_path: Path) -> None:
    async with desk(tmp_path, FOX, key=key_for("m")) as at:
        (hub,) = at.fleet.hubs.values()
        for wishes in (Wishes(temperature=0.0), Wishes(seed=7), Wishes(keep_going=True)):
            answering = await at.whole("My secret", wishes)
        await at.whole("Example?", Wishes(system="My secret"), example=True)
        await at.whole(answering.chat.ask("Example?"), example=True)
        await until(lambda: not hub.readers)
        assert hub.archive.kept == 0
        assert at.engine.started == 5
        await at.whole("Example?", example=True, talk="u")
        await until(lambda: hub.archive.kept == 1)


async def test_an_example_that_is_cut_at_the_limit_is_computed_once_too(tmp_path: Path) -> None:
    async with desk(tmp_path, Script(["so "] * 9), key=key_for("m")) as at:
        for owner in ("ann", "bob"):
            wishes = Wishes(max_new_tokens=5)
            answering = await at.whole("Example?", wishes, example=True, talk=owner)
            assert answering.text == "so " * 5
        assert at.engine.started == 1


async def test_long_examples_are_shown_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_LONGEST_REPLAY", 0.05)
    async with desk(tmp_path, Script(["x "] * 150, 0.01), key=key_for("m")) as at:
        first = await at.whole(example=True)
        began = monotonic()
        again = await at.whole(example=True, talk="u")
        assert again.text == first.text
        assert first.metrics is not None
        assert monotonic() - began < first.metrics.total


# -- when the server ends --------------------------------------------------------------------------


async def test_what_was_live_is_kept_as_broken_off(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        answering = await at.ask()
        await until(lambda: answering.tokens > 3)
        await at.desk.aclose()
        (turn,) = at.kept().turns
        assert (turn.error, turn.finish_reason) == (CUT_OFF, None)
        assert said(at.kept()).startswith("so so so ")
        assert answering.phase is Phase.ENDED


async def test_what_was_live_when_the_server_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the file meanwhile is what is found then."""
    monkeypatch.setattr(module, "_BETWEEN_SAVES", 0.01)
    async with desk(tmp_path) as at:
        answering = await at.ask()
        await until(lambda: answering.tokens > 20)
        (turn,) = at.kept().turns
        assert turn.error == CUT_OFF
        assert said(at.kept()).startswith("so so ")
        assert answering.chat.turns[0].error is None


def test_the_guard_is_longer_than_any_wait() -> None:
    assert GUARD > exchange._LONGEST_REPLAY
