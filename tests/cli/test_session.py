from __future__ import annotations

from pathlib import Path

import pytest

from bourn.chat import CONTINUE, Chat
from bourn.conversations import Conversations
from bourn.engines.scripted import Script
from bourn.errors import (
    EngineError,
    InvalidRequest,
    ModelNotFound,
    PromptTooLong,
    SettingsError,
    StoreFailed,
    TemplateError,
    UnsupportedField,
)
from bourn.settings import Settings
from bourn.types import FinishReason, Message, Piece, Request, Started
from tests.support.talks import Says, ask, talking, told

WORDS = [f"w{number} " for number in range(60)]


def failing(*pieces: str, error: Exception | None = None) -> Script:
    return Script(pieces, fail_at=len(pieces), error=error)


# -- answers ---------------------------------------------------------------------------------------


def test_what_was_said_is_sent_with_the_next_question() -> None:
    model = Says()
    with talking(model, settings=Settings(system="Be brief.")) as session:
        ask(session, "one")
        ask(session, "two")
        assert model.sent == [
            ("system", "Be brief."),
            ("user", "one"),
            ("assistant", "The quick fox"),
            ("user", "two"),
        ]
        assert session.chat.model == "scripted"


def test_a_system_message_can_be_folded_into_the_first_question() -> None:
    model = Says()
    settings = Settings(system="Be brief.")
    with talking(model, settings=settings, fold_system=True) as session:
        attempt, _ = ask(session, "one")
        assert model.sent == [("user", "Be brief.\n\none")]
        assert attempt.fitted.prompt_tokens == 3
        ask(session, "two")
        assert model.sent[0] == ("user", "Be brief.\n\none")
        assert model.sent[-1] == ("user", "two")
        assert session.chat.system == "Be brief."


def test_a_stopped_answer_stays_marked_and_is_sent() -> None:
    model = Says(lambda _: Script(WORDS, delay=0.005))
    with talking(model) as session:
        ask(session, "count", stop_after=3)
        assert session.chat.turns[-1].stopped
        partial = session.chat.turns[-1].messages[-1].text
        assert "w2" in partial
        assert "w59" not in partial
        ask(session, "which was the last?", stop_after=1)
        assert model.sent == [
            ("user", "count"),
            ("assistant", partial),
            ("user", "which was the last?"),
        ]


def test_stopped_before_the_first_word_it_is_no_turn_and_can_be_asked_again() -> None:
    model = Says(lambda _: Script(WORDS, delay=0.005, prompt_steps=3, prompt_delay=0.01))
    with talking(model) as session:
        attempt = session.begin(session.chat.ask("count"))
        attempt.stream.cancel()
        assert session.end(attempt) is None
        assert session.chat.turns == ()
        ask(session, session.again(), stop_after=1)
        assert told(session.chat.messages)[0] == ("user", "count")


def test_an_answer_whose_end_nobody_waited_for_is_a_stopped_one() -> None:
    with talking(Says(lambda _: Script(WORDS, delay=0.005))) as session:
        attempt = session.begin(session.chat.ask("count"))
        for _ in attempt.stream:
            break
        session.end(attempt)
        assert session.chat.turns[-1].finish_reason is FinishReason.CANCELLED


def test_a_failure_is_raised_and_the_question_waits() -> None:
    scripts = iter([failing(), Script(["yes"])])
    with talking(Says(lambda _: next(scripts))) as session:
        with pytest.raises(EngineError, match="fail here"):
            ask(session, "one")
        assert session.chat.turns == ()
        ask(session, session.again())
        assert told(session.chat.messages) == [("user", "one"), ("assistant", "yes")]
        assert session.pending is None


def test_what_came_before_a_failure_is_kept() -> None:
    with talking(Says(lambda _: failing("half ", "an "))) as session:
        with pytest.raises(EngineError):
            ask(session, "one")
        assert told(session.chat.messages)[-1] == ("assistant", "half an ")
        assert session.chat.turns[-1].finish_reason is None


def test_another_question_takes_the_place_of_one_that_failed() -> None:
    model = Says(lambda r: failing() if r.messages[-1].text == "one" else Script(["yes"]))
    with talking(model) as session:
        with pytest.raises(EngineError):
            ask(session, "one")
        ask(session, "two")
        assert model.sent == [("user", "two")]
        session.undo(1)
        assert session.chat.turns == ()


def test_a_retry_that_fails_leaves_the_answer_before() -> None:
    scripts = iter([Script(["first"]), failing()])
    with talking(Says(lambda _: next(scripts))) as session:
        ask(session, "one")
        with pytest.raises(EngineError):
            ask(session, session.again())
        assert told(session.chat.messages)[-1] == ("assistant", "first")


def test_edit_asks_the_last_question_in_other_words_also_one_that_failed() -> None:
    model = Says(lambda r: failing() if r.messages[-1].text == "two" else Script(["yes"]))
    with talking(model) as session:
        ask(session, "one")
        ask(session, session.reworded("uno"))
        assert told(session.chat.messages) == [("user", "uno"), ("assistant", "yes")]
        with pytest.raises(EngineError):
            ask(session, "two")
        ask(session, session.reworded("due"))
        assert [turn.question for turn in session.chat.turns] == [
            Message("user", "uno"),
            Message("user", "due"),
        ]


# -- going on with an answer -----------------------------------------------------------------------


def test_an_engine_that_can_goes_on_with_a_cut_answer_itself() -> None:
    model = Says(lambda _: Script(WORDS), prefills=True)
    with talking(model, settings=Settings(max_new_tokens=2)) as session:
        ask(session, "count")
        ask(session, session.more())
        assert model.sent == [("user", "count"), ("assistant", "w0 w1 ")]
        assert session.chat.turns[-1].messages[-1].text == "w0 w1 w0 w1 "
        assert len(session.chat.turns) == 1


def test_an_engine_that_cannot_is_asked_for_more() -> None:
    model = Says(lambda _: Script(WORDS))
    with talking(model, settings=Settings(max_new_tokens=2)) as session:
        ask(session, "count")
        ask(session, session.more())
        assert model.sent[-1] == ("user", CONTINUE)
        assert told(session.chat.messages) == [("user", "count"), ("assistant", "w0 w1 w0 w1 ")]


def test_so_is_one_whose_template_refuses_a_begun_answer() -> None:
    def reply(request: Request) -> Script:
        if request.messages[-1].role == "assistant":
            return failing(error=TemplateError("no prefill with thinking"))
        return Script(WORDS)

    model = Says(reply, prefills=True)
    with talking(model, settings=Settings(max_new_tokens=2)) as session:
        ask(session, "count")
        ask(session, session.more())
        assert model.sent[-1] == ("user", CONTINUE)
        assert len(session.chat.turns) == 1


def test_there_is_nothing_to_go_on_with() -> None:
    with talking(Says()) as session, pytest.raises(InvalidRequest, match="no answer"):
        session.more()


# -- the window ------------------------------------------------------------------------------------


def test_ten_turns_in_a_small_window_drop_the_oldest_and_say_so() -> None:
    model = Says(lambda _: Script(WORDS), window=512)
    notices = []
    with talking(model, settings=Settings(system="Be brief.", max_new_tokens=100)) as session:
        for number in range(10):
            attempt, _ = ask(session, f"question {number}: " + "why " * 40)
            notices.append(attempt.notice)
            sent = sum(len(text.split()) for _, text in model.sent)
            assert sent <= 512 - 100
            assert model.sent[0] == ("system", "Be brief.")
            assert model.sent[-1][1].startswith(f"question {number}:")
        assert len(session.chat.turns) == 10, "all of them are still there to be read"
    assert notices[0] == ""
    assert "window of 512 tokens" in notices[-1]
    assert len(set(filter(None, notices))) == len(list(filter(None, notices))), (
        "told when it changes"
    )


def test_a_question_that_can_never_fit_is_told() -> None:
    with talking(Says(window=50)) as session:
        with pytest.raises(PromptTooLong, match="window has 50"):
            ask(session, "why " * 60)
        assert session.pending is not None
        ask(session, "why?")


class Uncounted(Says):
    """An endpoint that counts no tokens and does not tell its window of 60 words."""

    def __init__(self) -> None:
        super().__init__(self._within)

        async def count(_: Request) -> None:
            return None

        self.engine.count = count  # type: ignore[assignment]  # as an endpoint without /tokenize

    def _within(self, request: Request) -> Script:
        words = sum(len(message.text.split()) for message in request.messages)
        if words > 60:
            refusal = PromptTooLong("too long", prompt_tokens=words, window=60)
            return failing(error=refusal)
        return Script(["fine"])


def test_what_an_endpoint_refuses_as_too_long_is_asked_again_without_the_oldest_turns() -> None:
    model = Uncounted()
    with talking(model, settings=Settings(max_new_tokens=10)) as session:
        for number in range(5):
            attempt, _ = ask(session, f"q{number} " + "why " * 20)
        assert attempt.notice
        assert model.sent[-1][1].startswith("q4")
        assert not any(text.startswith("q0") for _, text in model.sent)
        refused = len(model.asked) - 5
        assert 0 < refused <= 4, "what was learned of the window is used for the next questions"


# -- settings --------------------------------------------------------------------------------------


def test_a_changed_setting_is_sent_and_can_be_taken_back() -> None:
    model = Says()
    with talking(model, settings=Settings(temperature=0.5)) as session:
        session.change("temperature", "0.25")
        session.change("stop", '["a", "b"]')
        session.change("max_new_tokens", "2")
        _, events = ask(session, "one")
        request = model.asked[-1]
        assert (request.sampling.temperature, request.max_new_tokens) == (0.25, 2)
        assert session.chat.turns[-1].finish_reason is FinishReason.LENGTH
        assert next(e for e in events if isinstance(e, Started)).sampling.temperature == 0.25
        session.change("temperature", "")
        ask(session, "two")
        assert model.asked[-1].sampling.temperature == 0.8, "not what the model was loaded with"
        session.reset()
        ask(session, "three")
        assert model.asked[-1].sampling.temperature == 0.5
        assert model.asked[-1].max_new_tokens == 1024


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("temperature", "hot", SettingsError),
        ("temperature", "-1", SettingsError),
        ("temperature", "nan", SettingsError),
        ("top_k", "1.5", SettingsError),
        ("seed", "__import__('os')", SettingsError),
        ("max_new_tokens", "0", SettingsError),
        ("temprature", "1", SettingsError),
        ("window", "4096", InvalidRequest),
        ("threads", "2", InvalidRequest),
        ("model", "other", InvalidRequest),
        ("system", "x", InvalidRequest),
        ("min_p", "0.1", UnsupportedField),
    ],
)
def test_a_wrong_setting_changes_nothing(name: str, text: str, error: type[Exception]) -> None:
    model = Says(honours=frozenset({"temperature", "top_k", "seed"}))
    with talking(model, settings=Settings(seed=5)) as session:
        before = session.settings
        with pytest.raises(error):
            session.change(name, text)
        assert session.settings == before


def test_the_seed_is_drawn_for_each_answer_until_it_is_set() -> None:
    with talking(Says()) as session:
        drawn = {ask(session, "x")[0].stream.seed for _ in range(3)}
        assert len(drawn) == 3
        session.change("seed", "7")
        assert {ask(session, "x")[0].stream.seed for _ in range(3)} == {7}


# -- models ----------------------------------------------------------------------------------------


def test_another_model_goes_on_with_the_conversation() -> None:
    first, second = Says(name="first"), Says(name="second", window=99)
    with talking(first, second, settings=Settings(chat_template="chatml")) as session:
        ask(session, "one")
        session.switch("1")
        assert (session.info.name, session.info.window) == ("second", 99)
        assert session.settings.chat_template is None, "that was the first one's"
        ask(session, "two")
        assert [turn.model for turn in session.chat.turns] == ["first", "second"]
        assert second.sent[0] == ("user", "one")


def test_what_was_said_of_the_first_model_does_not_hold_for_another() -> None:
    said = Settings(trust_remote_code=True, threads=2, called_for=frozenset({"threads"}))
    with talking(Says(), Says(), settings=said) as session:
        session.switch("1")
        assert not session.settings.trust_remote_code
        assert (session.settings.threads, session.settings.called_for) == (2, frozenset())


def test_a_model_that_cannot_be_loaded_leaves_the_one_before() -> None:
    with talking(Says(name="first")) as session:
        with pytest.raises(ModelNotFound):
            session.switch("9")
        assert session.settings.model == "smollm2"
        ask(session, "one")
        assert session.chat.model == "first"


# -- kept ------------------------------------------------------------------------------------------


def test_each_answer_is_kept_with_the_settings(tmp_path: Path) -> None:
    store = Conversations(tmp_path / "kept.db")
    settings = Settings(model="0", temperature=0.5, api_key="secret", window=512)
    with talking(Says(), settings=settings, store=store) as session:
        ask(session, "one")
        session.change("seed", "7")
        ask(session, "two")
        assert store.load(session.id) == session.chat
        assert store.settings(session.id) == {
            "model": "0",
            "window": 512,
            "temperature": 0.5,
            "seed": 7,
        }
        session.undo(1)
        assert len(store.load(session.id).turns) == 1
        first = session.id
        session.take_up(session.chat.clear())
        ask(session, "other")
        assert {entry.id for entry in store.list()} == {first, session.id}
        session.undo(1)
        assert [entry.id for entry in store.list()] == [first], "what was taken back is not kept"


def test_without_a_store_nothing_is_kept() -> None:
    with talking(Says()) as session:
        ask(session, "one")
        session.undo(1)


def test_a_store_that_fails_is_told_once_and_the_talk_goes_on(tmp_path: Path) -> None:
    (tmp_path / "kept.db").write_text("no database")
    with talking(Says(), store=Conversations(tmp_path / "kept.db")) as session:
        with pytest.raises(StoreFailed):
            ask(session, "one")
        ask(session, "two")
        assert len(session.chat.turns) == 2


def test_a_conversation_that_ends_with_a_question_waits_with_it() -> None:
    with talking(Says(), chat=Chat().ask("one").answered("yes").ask("two")) as session:
        assert len(session.chat.turns) == 1
        ask(session, session.again())
        assert told(session.chat.messages)[2:] == [("user", "two"), ("assistant", "The quick fox")]


def test_an_empty_answer_is_a_turn() -> None:
    with talking(Says(lambda _: Script([Piece("thinking", tokens=1)][:0]))) as session:
        ask(session, "one")
        assert told(session.chat.messages) == [("user", "one"), ("assistant", "")]
