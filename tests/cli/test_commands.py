"""The commands that need no terminal: what each does to the session, and what it leaves to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bourn.chat import Chat
from bourn.cli.commands import COMMANDS, run
from bourn.cli.effects import Ask, ClearScreen, Copy, Edit, Effect, Leave, Say, Type
from bourn.cli.session import Session
from bourn.cli.typed import Call, parse
from bourn.engines.scripted import Script
from bourn.errors import InvalidRequest, ModelNotFound, SettingsError
from bourn.settings import Settings
from tests.support.talks import Says, ask, talking, told


@pytest.fixture
def session() -> Iterator[Session]:
    with talking(Says(name="first"), Says(name="second"), settings=Settings(top_k=5)) as session:
        yield session


def do(session: Session, typed: str) -> Effect:
    call = parse(typed)
    assert isinstance(call, Call)
    return run(session, call)


def said(session: Session, typed: str) -> str:
    effect = do(session, typed)
    assert isinstance(effect, Say)
    return effect.text


# -- the table -------------------------------------------------------------------------------------


def test_no_two_commands_share_a_name() -> None:
    names = [name for command in COMMANDS for name in command.names]
    assert len(names) == len(set(names))


def test_help_tells_every_command_within_80_columns(session: Session) -> None:
    text = said(session, "/help")
    for command in COMMANDS:
        assert f":{command.name}" in text
        assert command.does in text
    assert max(map(len, text.splitlines())) < 80
    assert said(session, ":h") == said(session, ":?") == text


@pytest.mark.parametrize(
    ("typed", "effect"),
    [
        (":exit", Leave()),
        (":quit", Leave()),
        (":q", Leave()),
        (":clear", ClearScreen()),
        (":cl", ClearScreen()),
        ("/multi-line", Type('"""\n')),
        (":ml", Type('"""\n')),
    ],
)
def test_short_names_and_what_is_left_to_the_terminal(
    session: Session, typed: str, effect: Effect
) -> None:
    assert do(session, typed) == effect


@pytest.mark.parametrize(
    ("typed", "told_"),
    [
        (":nonsense", "there is no command :nonsense"),
        ("/etc/hosts is what", "there is no command /etc/hosts"),
        (":", "there is no command :"),
        (":)", "there is no command :)"),
        (":quit now", ":quit takes nothing after it"),
        ("/history of Rome", "/history takes nothing after it"),
        (":save", ":save needs FILE"),
    ],
)
def test_what_is_no_command_is_an_error(session: Session, typed: str, told_: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        do(session, typed)
    assert str(raised.value) == told_
    assert raised.value.hint


def test_a_mistyped_command_is_told_the_one_meant(session: Session) -> None:
    with pytest.raises(InvalidRequest) as raised:
        do(session, "/hlep")
    assert "did you mean /help?" in raised.value.hint
    assert "a space before it" in raised.value.hint


# -- the settings ----------------------------------------------------------------------------------


def test_seed(session: Session) -> None:
    assert said(session, ":seed") == "a seed is drawn for each answer"
    drawn = ask(session, "one")[0].stream.seed
    assert said(session, ":seed").startswith(f"the last answer had seed {drawn}")
    assert said(session, ":seed 7").startswith("seed 7 for each answer")
    assert ask(session, "two")[0].stream.seed == 7
    assert said(session, ":seed").endswith("7 is set")
    with pytest.raises(SettingsError):
        do(session, ":seed seven")


def test_conf(session: Session) -> None:
    assert said(session, ":conf temperature=0.5") == "temperature = 0.5"
    assert said(session, ":conf temperature") == "temperature = 0.5"
    assert said(session, ":conf stop=END") == "stop = 'END'"
    assert said(session, ":conf").splitlines()[:3] == [
        "temperature = 0.5",
        "top_k = 5",
        "stop = 'END'",
    ]
    assert "top_p is not set: 0.95" in said(session, ":conf")
    assert said(session, ":conf temperature=") == "temperature is not set: 0.8"
    assert said(session, ":conf seed=") == "seed is not set"
    with pytest.raises(InvalidRequest, match="sets nothing"):
        do(session, ":conf temperature 0.5")
    assert said(session, ":reset-conf") == "the settings are as they were: top_k = 5"


def test_conf_evaluates_nothing(session: Session, tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        do(session, f":conf temperature=open({str(tmp_path / 'made')!r},'w').close() or 1")
    assert not (tmp_path / "made").exists()


def test_system(session: Session) -> None:
    assert said(session, ":system") == "there is no system message"
    assert said(session, ":system Be brief.") == "system: Be brief."
    ask(session, "one")
    assert session.chat.messages[0].text == "Be brief."
    assert said(session, ":sys -") == "there is no system message"
    assert session.chat.messages[0].role == "user"


def test_model(session: Session) -> None:
    assert said(session, ":model") == "first on scripted"
    assert said(session, ":model 1") == "second on scripted"
    with pytest.raises(ModelNotFound):
        do(session, ":model 7")
    assert said(session, ":model") == "second on scripted"


# -- the conversation ------------------------------------------------------------------------------


def test_history_undo_and_clear_history(session: Session) -> None:
    assert said(session, ":history") == "nothing was said yet"
    ask(session, "one")
    ask(session, "two", stop_after=1)
    text = said(session, ":his")
    for part in ("## You\n\none", "## Assistant (first)\n\nThe quick fox", "## You\n\ntwo"):
        assert part in text
    assert said(session, ":undo") == "taken back; 1 turn left"
    assert "two" not in said(session, ":history")
    with pytest.raises(InvalidRequest, match="cannot be undone"):
        do(session, ":undo 5")
    with pytest.raises(InvalidRequest, match="no number"):
        do(session, ":undo -1")
    before = session.id
    assert said(session, ":clh") == "a new conversation begins"
    assert session.chat.turns == ()
    assert session.id != before


def test_history_shows_where_an_answer_was_stopped() -> None:
    slow = Says(lambda _: Script(["well "] * 50, delay=0.005))
    with talking(slow) as session:
        ask(session, "one", stop_after=2)
        assert said(session, ":history").endswith("*(stopped here)*")


def test_retry_continue_and_edit_ask(session: Session) -> None:
    for typed in (":retry", ":continue", ":edit", ":edit other"):
        with pytest.raises(InvalidRequest):
            do(session, typed)
    ask(session, "one")
    retried = do(session, ":retry")
    assert retried == Ask(Chat().ask("one"))
    assert do(session, ":edit uno") == Ask(Chat().ask("uno"))
    assert do(session, ":e") == Edit("one")
    continued = do(session, ":c")
    assert isinstance(continued, Ask)
    assert continued.chat.open
    session.change("seed", "7")
    again = do(session, ":r")
    assert isinstance(again, Ask)
    assert "the same answer" in again.notice


def test_stats_and_copy(session: Session) -> None:
    assert said(session, ":stats") == "nothing was answered yet"
    with pytest.raises(InvalidRequest, match="no answer to copy"):
        do(session, ":copy")
    ask(session, "one")
    assert "3 tokens" in said(session, ":stats")
    assert "the conversation takes 11 tokens, in 1 turn" in said(session, ":stats")
    assert do(session, ":copy") == Copy("The quick fox")


# -- files -----------------------------------------------------------------------------------------


def test_save_and_load(session: Session, tmp_path: Path) -> None:
    ask(session, "one")
    saved = session.chat
    assert said(session, f":save {tmp_path / 'a b.json'}") == f"saved to {tmp_path / 'a b.json'}"
    assert [
        each["role"] for each in json.loads((tmp_path / "a b.json").read_text())["messages"]
    ] == [
        "user",
        "assistant",
    ]
    do(session, f":save {tmp_path / 'a.MD'}")
    assert (tmp_path / "a.MD").read_text().startswith("## You\n\none")
    do(session, ":clear-history")
    assert said(session, f":load {tmp_path / 'a b.json'}") == "“one”, 1 turn"
    assert session.chat == saved


def test_only_files_that_were_saved_in_this_talk_are_written_over(
    session: Session, tmp_path: Path
) -> None:
    mine, other = tmp_path / "mine.md", tmp_path / "other.md"
    other.write_text("precious")
    ask(session, "one")
    do(session, f":save {mine}")
    ask(session, "two")
    do(session, f":save {mine}")
    assert "two" in mine.read_text()
    with pytest.raises(InvalidRequest, match="there already"):
        do(session, f":save {other}")
    assert other.read_text() == "precious"


def test_a_loaded_question_without_an_answer_waits(session: Session, tmp_path: Path) -> None:
    file = tmp_path / "open.json"
    file.write_text('[{"role": "user", "content": "one"}]')
    assert ":retry asks it" in said(session, f":load {file}")
    ask(session, session.again())
    assert told(session.chat.messages)[0] == ("user", "one")


@pytest.mark.parametrize(
    "name", ["no-such.json", "folder.json", "~nobody-here/a.json", "broken.json"]
)
def test_what_cannot_be_loaded_changes_nothing(
    session: Session, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "broken.json").write_text("{")
    ask(session, "one")
    before = session.chat
    with pytest.raises(InvalidRequest):
        do(session, f":load {name}")
    assert session.chat is before


@pytest.mark.parametrize(
    "name", ["chat.txt", "chat", "no/such/folder/chat.md", "~nobody-here/a.md"]
)
def test_what_cannot_be_saved_is_told(
    session: Session, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest):
        do(session, f":save {name}")
    assert list(tmp_path.iterdir()) == []
