"""Tool calls: the tool channel's text, in the model's own notation, becomes parts of calls.

One notation is known so far, `NOTATIONS` is where others will stand. What a model writes in another
one passes as it is, as text of the tool channel. It knows nothing of marks and of what surrounds a
call: `channels` has taken that away, and says where a block begins.

A block that holds no call is given back as text: nothing that was written is lost. A call whose
first part went out stays, whatever follows.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple, Protocol

import jiter

from bourn.errors import SettingsError
from bourn.types import ToolDelta


class Part(NamedTuple):
    """A part of a call; without one, text that belongs to none."""

    text: str = ""
    tool: ToolDelta | None = None


class Calls(Protocol):
    """Reads the calls of one answer. Linear, and the same however the text is cut."""

    @property
    def whole(self) -> int:
        """How many calls are whole: their name and their arguments, which are JSON."""
        ...

    def feed(self, text: str) -> list[Part]:
        """What is certain now."""
        ...

    def end(self) -> list[Part]:
        """The block has ended, or the answer: what belongs to no call."""
        ...


def calls_in(notation: str | None) -> Calls:
    """A reader of that notation; None reads none.

    Raises:
        SettingsError: there is no notation of that name.
    """
    if notation is None:
        return Text()
    if notation not in NOTATIONS:
        raise SettingsError(
            f"no notation of tool calls is called {notation!r}",
            hint=f"known: {', '.join(NOTATIONS)}",
        )
    return NOTATIONS[notation]()


def notation_of(chat_template: str) -> str | None:
    """The notation that a chat template shows, None where it shows none that is known."""
    hermes = "<tool_call>" in chat_template and "arguments" in chat_template
    other = any(sign in chat_template for sign in ("<function=", "<arg_key>", "<parameter="))
    return "hermes" if hermes and not other else None


class Text:
    """No calls: all of it stays text."""

    whole = 0

    def feed(self, text: str) -> list[Part]:
        return [Part(text)]

    def end(self) -> list[Part]:
        return []


class Hermes:
    """`{"name": "f", "arguments": {…}}`, one after another: Hermes, Qwen 2.5 and 3, and others.

    The arguments are given as the model wrote them, an object or a list as it comes, anything else
    once it is there: a string stays a JSON string, as vLLM has it. The keys may come in any order:
    arguments without a name are held. `parameters` is another word for them; without any they are
    `{}`. Other keys are passed over.

    A closing mark inside a JSON string ends the block all the same: it is taken for the model's.

    new_id: makes the id of a call, since the model gives none.
    """

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        self._new_id = new_id or _new_id
        self._out: list[Part] = []
        self._told = 0
        self._whole = 0
        self._begin()

    @property
    def whole(self) -> int:
        return self._whole

    def feed(self, text: str) -> list[Part]:
        for piece, mark in self._json.pieces(text):
            if self._broken:
                self._out.append(Part(piece))
            elif self._streams:
                self._argue(piece, mark)
            else:
                self._raw.append(piece)
                self._step(piece, mark)
        return self._taken()

    def end(self) -> list[Part]:
        if "".join(self._raw).strip():
            self._break()
        self._begin()
        return self._taken()

    def _begin(self) -> None:
        """A new block."""
        self._json = _Json()
        self._broken = False
        self._raw: list[str] = []  # what was read and is in no part yet
        self._begin_call()

    def _begin_call(self) -> None:
        self._open = False  # inside the call's object
        self._member: list[str] = []  # the key or the value that is being read
        self._key: str | None = None
        self._name = ""
        self._arguments: list[str] = []
        self._streams = False  # the arguments are being read
        self._valid = False  # they are there, and are JSON
        self._known = False  # the call has its first part

    def _step(self, piece: str, mark: str) -> None:
        """A piece between or inside members; the depth is that after its mark."""
        text, depth = piece.removesuffix(mark), self._json.depth
        if not self._open:
            self._open = mark == "{"
            if text.strip() or (mark and not self._open):
                self._break()
        elif depth == 1 and mark == ":" and self._key is None:
            self._named(self._read(text))
        elif (depth == 1 and mark == ",") or depth == 0:
            self._close_member(self._read(text).strip(), mark)
        elif depth == 2 and mark in _OPENING and self._key in _ARGUMENTS:
            self._open_arguments(self._read(text), mark)
        else:
            self._member.append(piece)

    def _read(self, text: str) -> str:
        """The whole of a key or value whose last piece is `text`."""
        whole = "".join([*self._member, text])
        self._member.clear()
        return whole

    def _named(self, key: str) -> None:
        self._key = _string(key)
        if self._key is None:
            self._break()

    def _open_arguments(self, before: str, mark: str) -> None:
        if before.strip() or self._arguments:
            self._break()
            return
        self._arguments.append(mark)
        self._streams = True
        if self._name:
            self._tell()

    def _argue(self, piece: str, mark: str) -> None:
        self._arguments.append(piece)
        if self._known:
            self._out.append(Part(tool=ToolDelta(self._told - 1, arguments=piece)))
        else:
            self._raw.append(piece)
        if self._json.depth == 1 and mark in _CLOSING:
            self._streams = False
            self._valid = _is_json("".join(self._arguments))
            self._whole += self._known and self._valid

    def _close_member(self, value: str, mark: str) -> None:
        key, self._key = self._key, None
        if mark == "]" or not self._accepts(key, value, last=mark == "}"):
            self._break()
        elif mark == "}":
            self._close_call()
        elif self._known:
            self._raw.clear()
        elif self._name and self._arguments:
            self._tell()

    def _close_call(self) -> None:
        if not self._name:
            self._break()
            return
        if not self._arguments:
            self._arguments, self._valid = ["{}"], True
        if not self._known:
            self._tell()
        self._raw.clear()
        self._begin_call()

    def _accepts(self, key: str | None, value: str, *, last: bool) -> bool:
        """Take a member in. Without a key there is none, which may be at the end only."""
        if key is None:
            return last and not value
        if key == "name" and not self._name:
            self._name = _string(value) or ""
            return bool(self._name)
        if key in _ARGUMENTS and self._arguments:  # they were streamed
            return not value
        if key in _ARGUMENTS:
            self._arguments, self._valid = [value], True
        return key != "name" and _is_json(value)

    def _tell(self) -> None:
        """The first part of the call."""
        arguments = "".join(self._arguments)
        self._out.append(Part(tool=ToolDelta(self._told, self._new_id(), self._name, arguments)))
        self._told += 1
        self._known = True
        self._whole += self._valid
        self._raw.clear()

    def _break(self) -> None:
        """It is no call, or no more of one: what is in no part is text."""
        self._broken = True
        self._out.append(Part("".join(self._raw)))
        self._raw.clear()

    def _taken(self) -> list[Part]:
        out, self._out = self._out, []
        return list(_merged(out))


NOTATIONS: Mapping[str, Callable[[], Calls]] = {"hermes": Hermes}

_ARGUMENTS = frozenset({"arguments", "parameters"})
_OPENING, _CLOSING = frozenset("{["), frozenset("}]")
_DEPTH = dict.fromkeys(_OPENING, 1) | dict.fromkeys(_CLOSING, -1)
_OUTSIDE_STRINGS = re.compile(r'["{}\[\],:]')
_INSIDE_STRINGS = re.compile(r'["\\]')


class _Json:
    """Cuts JSON text at the marks of its structure; `depth` is how many brackets are open."""

    def __init__(self) -> None:
        self.depth = 0
        self._quoted = False
        self._escaped = False

    def pieces(self, text: str) -> Iterator[tuple[str, str]]:
        """The text in pieces, each with the mark that it ends in, or without one."""
        at = 0
        while at < len(text):
            end, mark = self._next(text, at)
            yield text[at:end], mark
            at = end

    def _next(self, text: str, at: int) -> tuple[int, str]:
        if self._escaped:
            self._escaped = False
            return at + 1, ""
        marks = _INSIDE_STRINGS if self._quoted else _OUTSIDE_STRINGS
        found = marks.search(text, at)
        if found is None:
            return len(text), ""
        mark = found[0]
        if mark == "\\":
            self._escaped = True
        elif mark == '"':
            self._quoted = not self._quoted
        else:
            self.depth += _DEPTH.get(mark, 0)
            return found.end(), mark
        return found.end(), ""


def _merged(parts: Iterable[Part]) -> Iterator[Part]:
    """Neighbours that belong together made one; nothing empty."""
    for _, group in groupby(parts, key=lambda part: part.tool and part.tool.index):
        first, *others = group
        if first.tool is None:
            if text := "".join(part.text for part in (first, *others)):
                yield Part(text)
            continue
        more = "".join(part.tool.arguments for part in others if part.tool is not None)
        yield Part(tool=replace(first.tool, arguments=first.tool.arguments + more))


def _string(text: str) -> str | None:
    value = _value(text)
    return value if isinstance(value, str) else None


def _is_json(text: str) -> bool:
    return _value(text) is not _NOTHING


_NOTHING = object()


def _value(text: str) -> object:
    try:
        value: object = jiter.from_json(text.encode(), allow_inf_nan=False)
    except ValueError:
        return _NOTHING
    return value


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"
