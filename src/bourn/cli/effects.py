"""What a command leaves to do for the terminal: a small closed set of values."""

from __future__ import annotations

from dataclasses import dataclass

from bourn.chat import Chat


@dataclass(frozen=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Have the model answer; `notice` is said before."""

    chat: Chat
    notice: str = ""


@dataclass(frozen=True, slots=True)
class Type:
    """Begin the input line with this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Let the user edit the last question, which is `text`."""

    text: str


@dataclass(frozen=True, slots=True)
class Copy:
    text: str


@dataclass(frozen=True, slots=True)
class ClearScreen:
    pass


@dataclass(frozen=True, slots=True)
class Leave:
    pass


Effect = Say | Ask | Type | Edit | Copy | ClearScreen | Leave
