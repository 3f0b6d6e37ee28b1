"""The commands of a talk: a table, and a small function for each.

A command does to the session what the session can do, and returns what is left for the terminal.
Nothing is shown here, and nothing that was typed is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from bourn.chat import Chat
from bourn.cli.effects import Ask, ClearScreen, Copy, Edit, Effect, Leave, Say, Type
from bourn.cli.session import Session
from bourn.cli.show import stats_line
from bourn.cli.tuning import CHANGEABLE, said, unsaid
from bourn.cli.typed import BLOCK, Call
from bourn.errors import InvalidRequest

# -- the table -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Command:
    """takes: what is to be typed after the name; in brackets where it may be left out."""

    name: str
    run: Callable[[Session, str], Effect]
    short: tuple[str, ...]
    takes: str
    does: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.short)


def run(session: Session, call: Call) -> Effect:
    """Do what was called for.

    Raises:
        InvalidRequest: there is no such command, or it takes something else.
        BournError: what the command raises.
    """
    command = _BY_NAME.get(call.name)
    if command is None:
        raise InvalidRequest(
            f"there is no command {call.mark}{call.name}", hint=_meant(call) + _AS_TEXT
        )
    if call.argument and not command.takes:
        raise InvalidRequest(f"{call.mark}{call.name} takes nothing after it", hint=_AS_TEXT)
    if not call.argument and command.takes and not command.takes.startswith("["):
        raise InvalidRequest(
            f"{call.mark}{call.name} needs {command.takes}", hint=f":{command.name} {command.takes}"
        )
    return command.run(session, call.argument)


_AS_TEXT = "to ask it as a question, put a space before it"


def _meant(call: Call) -> str:
    near = get_close_matches(call.name, _BY_NAME, 1)
    return f"did you mean {call.mark}{near[0]}? " if near else ":help tells those there are; "


# -- the functions ---------------------------------------------------------------------------------


def _help(_session: Session, _: str) -> Say:
    rows = [(_usage(each), each.does) for each in COMMANDS]
    wide = max(len(usage) for usage, _ in rows)
    return Say("\n".join([*(f"  {usage:{wide}}  {does}" for usage, does in rows), "", *_KEYS]))


def _usage(command: Command) -> str:
    short = [f":{name}" for name in command.short[-1:]]
    return " ".join(filter(None, (f":{command.name}", *short, command.takes)))


_KEYS = (
    "A command may begin with / as well. A question that does has a space before it.",
    'Several lines: Alt-Enter or Ctrl-J for the next one, or all between two """.',
    "Ctrl-C stops an answer, or clears the line; twice in an empty one, it leaves.",
)


def _leave(_session: Session, _: str) -> Leave:
    return Leave()


def _clear(_session: Session, _: str) -> ClearScreen:
    return ClearScreen()


def _clear_history(session: Session, _: str) -> Say:
    session.take_up(session.chat.clear())
    return Say("a new conversation begins")


def _history(session: Session, _: str) -> Say:
    waits = session.pending
    if not session.chat.turns and not waits:
        return Say("nothing was said yet")
    return Say((waits or session.chat).to_markdown().rstrip())


def _seed(session: Session, number: str) -> Say:
    if number:
        session.change("seed", number)
        return Say(f"seed {session.settings.seed} for each answer; :conf seed= has it drawn")
    last = session.last.seed if session.last else None
    told = f"the last answer had seed {last}; " if last is not None else ""
    fixed = session.settings.seed
    return Say(told + ("a seed is drawn for each answer" if fixed is None else f"{fixed} is set"))


def _conf(session: Session, setting: str) -> Say:
    name, equals, text = setting.partition("=")
    name = name.strip()
    if equals:
        session.change(name, text.strip())
    known = said(session.settings), unsaid(session.settings, session.info)
    lines = [f"{key} = {_shown(value)}" for key, value in known[0].items()]
    lines += [f"{key} is not set: {_shown(value)}" for key, value in known[1].items()]
    if not name:
        return Say("\n".join(lines))
    if name not in CHANGEABLE:
        raise InvalidRequest(f"`{setting}` sets nothing", hint="as in :conf temperature=0.5")
    mine = (line for line in lines if line.split(" ", 1)[0] == name)
    return Say(next(mine, f"{name} is not set"))


def _shown(value: object) -> str:
    return ", ".join(map(repr, value)) if isinstance(value, tuple) else f"{value}"


def _reset_conf(session: Session, _: str) -> Say:
    session.reset()
    told = ", ".join(f"{name} = {_shown(value)}" for name, value in said(session.settings).items())
    return Say(f"the settings are as they were: {told or 'none is set'}")


def _system(session: Session, text: str) -> Say:
    if text:
        session.instruct(None if text == "-" else text)
    now = session.chat.system
    return Say("there is no system message" if now is None else f"system: {now}")


def _model(session: Session, name: str) -> Say:
    if name:
        session.switch(name)
    info = session.info
    window = f", a window of {info.window} tokens" if info.window else ""
    return Say(f"{info.name} on {info.engine}{window}")


def _retry(session: Session, _: str) -> Ask:
    fixed = session.settings.seed is not None and session.pending is None
    same = "the seed is set, so this is the same answer again; :conf seed= unsets it"
    return Ask(session.again(), same if fixed else "")


def _continue(session: Session, _: str) -> Ask:
    return Ask(session.more())


def _undo(session: Session, number: str) -> Say:
    count = _whole(number or "1")
    session.undo(count)
    return Say(f"taken back; {turns(session.chat)} left")


def turns(chat: Chat) -> str:
    """How many turns it has, in words."""
    return f"{len(chat.turns)} turn{'' if len(chat.turns) == 1 else 's'}"


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 10**9:
        raise InvalidRequest(f"`{text}` is no number of turns", hint="give 1 or more")
    return int(text)


def _edit(session: Session, text: str) -> Ask | Edit:
    if text:
        return Ask(session.reworded(text))
    question = session.again().turns[-1].question
    return Edit(question.text if question else "")


def _multi_line(_session: Session, _: str) -> Type:
    return Type(f"{BLOCK}\n")


def _save(session: Session, name: str) -> Say:
    path = path_named(name)
    match path.suffix.lower():
        case ".md" | ".markdown":
            text = session.chat.to_markdown()
        case ".json":
            text = session.chat.to_json(indent=2)
        case _:
            raise InvalidRequest(
                f"{name} is neither Markdown nor JSON", hint="let the name end in .md or .json"
            )
    if path.exists() and path not in session.written:
        raise InvalidRequest(f"{path} is there already", hint="name another file")
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"cannot write {path}: {_why(error)}") from None
    session.written.add(path)
    return Say(f"saved to {path}")


def path_named(name: str) -> Path:
    """The path that is meant by what was typed.

    Raises:
        InvalidRequest: it is in the home of nobody.
    """
    try:
        return Path(name).expanduser().absolute()
    except RuntimeError:
        raise InvalidRequest(f"{name}: there is no such user") from None


def _why(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def _load(session: Session, name: str) -> Say:
    try:
        text = path_named(name).read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"cannot read {name}: {_why(error)}") from None
    session.take_up(Chat.from_json(text))
    session.save()
    waits = "; its last question has no answer, :retry asks it" if session.pending else ""
    return Say(f"“{(session.pending or session.chat).title}”, {turns(session.chat)}{waits}")


def _stats(session: Session, _: str) -> Say:
    if session.last is None:
        return Say("nothing was answered yet")
    told, window = session.last.usage, session.info.window
    of_window = f" of {window}" if window else ""
    return Say(
        f"{stats_line(session.last)}\n"
        f"the conversation takes {told.total_tokens}{of_window} tokens,"
        f" in {turns(session.chat)}"
    )


def _copy(session: Session, _: str) -> Copy:
    answer = session.chat.turns[-1].answer if session.chat.turns else None
    if answer is None:
        raise InvalidRequest("there is no answer to copy", hint="ask something first")
    return Copy(answer.text)


COMMANDS = (
    Command("help", _help, ("?", "h"), "", "show these lines"),
    Command("exit", _leave, ("quit", "q"), "", "leave, as Ctrl-D does"),
    Command("clear", _clear, ("cl",), "", "clear the screen"),
    Command("clear-history", _clear_history, ("clear-his", "clh"), "", "begin a new conversation"),
    Command("history", _history, ("his",), "", "show what was said"),
    Command("seed", _seed, (), "[N]", "show the seed, or set it for all answers"),
    Command("conf", _conf, (), "[KEY=VALUE]", "show the settings, or set one; KEY= unsets it"),
    Command("reset-conf", _reset_conf, (), "", "have the settings as they were at first"),
    Command("system", _system, ("sys",), "[TEXT]", "show the system message, or set it; - is none"),
    Command("model", _model, (), "[NAME]", "show the model, or load another one"),
    Command("retry", _retry, ("r",), "", "ask the last question again"),
    Command("continue", _continue, ("c",), "", "go on with the last answer"),
    Command("undo", _undo, ("u",), "[N]", "take back the last turn, or the last N"),
    Command("edit", _edit, ("e",), "[TEXT]", "ask the last question in other words"),
    Command("multi-line", _multi_line, ("ml",), "", f"type several lines, up to one of {BLOCK}"),
    Command("save", _save, (), "FILE", "write what was said to a .md or .json file"),
    Command("load", _load, (), "FILE", "go on with what a .json file holds"),
    Command("stats", _stats, (), "", "show how fast the last answer was, and what it took"),
    Command("copy", _copy, ("y",), "", "copy the last answer to the clipboard"),
)
"""Of several short names the last is the one to show."""

_BY_NAME = {name: command for command in COMMANDS for name in command.names}
