"""What llama.cpp makes of a `pattern`: part of a grammar, nothing at all, or no end of work.

It takes patterns that stand for a whole text, in a small language of its own; one that it does not
know it leaves out, without a word. It knows no schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_REPEATS = 2000
"""Of the parts of a pattern, all repetitions in one another multiplied: it computes with each."""
MOST_EMPTY = 20
"""Parts that may be empty: it goes through them all, in each combination."""
DEEPEST = 20

_PIECE = re.compile(
    r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)"
    r"|\[\^?(?:\\.|[^\]\\])*\]"
    r"|\(\?:|\(\?.?"
    r"|\{[^}]*\}"
    r"|.",
    re.DOTALL,
)
_TIMES = re.compile(r"\{ *([0-9]*) *(?:(,) *([0-9]*) *)?\}")
_CHARACTER = re.compile(r"\\(?:x..|u....|[\^$.\[\]()|{}*+?-])", re.DOTALL)
_IN_CLASS = re.compile(r"\\(?:x..|u....|[\]-])", re.DOTALL)
_IN_NEGATED = re.compile(r"\\(?:x..|u....|[\]\\nrt\"-])", re.DOTALL)
_RANGE = re.compile(r"(\\u....|\\x..|\\.|[^\\])-(\\u....|\\x..|\\.|[^\\])", re.DOTALL)
_QUANTIFIERS = ("*", "+", "?")


@dataclass(slots=True)
class Reading:
    """unknown: what it leaves the pattern out for. heavy: what it would be too long busy with."""

    unknown: str = ""
    heavy: str = ""
    empty: int = 0

    def strange(self, words: str) -> None:
        self.unknown = self.unknown or words

    def costs(self, words: str) -> None:
        self.heavy = self.heavy or words


@dataclass(slots=True)
class _Part:
    """empty: whether it may be none of the text. weight: how often it repeats what is in it."""

    empty: bool
    weight: int
    repeated: bool = False
    plain: bool = True


@dataclass(slots=True)
class _Group:
    """What stands between two brackets: alternatives, the last of which is being read."""

    parts: list[_Part] = field(default_factory=list)
    weight: int = 0
    empty: bool = False

    def close(self) -> _Part:
        self.end_alternative()
        return _Part(self.empty, max(self.weight, 1))

    def end_alternative(self) -> None:
        self.weight += sum(part.weight for part in self.parts)
        self.empty = self.empty or all(part.empty for part in self.parts)
        self.parts = []


def read(pattern: str) -> Reading:
    """What is wrong with a pattern, if something is."""
    told = Reading()
    if not (pattern.startswith("^") and pattern.endswith("$") and len(pattern) > 1):
        told.strange("begin it with ^ and end it with $")
    groups = [_Group()]
    for piece in _PIECE.findall(pattern.removeprefix("^").removesuffix("$")):
        _take(piece, groups, told)
    if len(groups) > 1:
        told.strange("close its brackets")
    if groups[0].close().weight > MOST_REPEATS:
        told.costs(f"it repeats more than {MOST_REPEATS} parts")
    return told


def _take(piece: str, groups: list[_Group], told: Reading) -> None:
    if piece.startswith("("):
        if piece not in ("(", "(?:"):
            told.strange("write it without (?")
        if len(groups) > DEEPEST:
            told.costs(f"its brackets are more than {DEEPEST} deep")
        groups.append(_Group())
    elif piece == ")":
        if len(groups) == 1:
            told.strange("open its brackets")
            return
        part = groups.pop().close()
        groups[-1].parts.append(part)
    elif piece == "|":
        groups[-1].end_alternative()
    elif piece in _QUANTIFIERS or piece.startswith("{"):
        _repeat(piece, groups[-1].parts, told)
    else:
        _check_character(piece, told)
        groups[-1].parts.append(_Part(empty=False, weight=1, plain=piece.isascii()))


def _repeat(piece: str, parts: list[_Part], told: Reading) -> None:
    if not parts:
        told.strange(f"put something before {piece}")
        return
    last = parts[-1]
    if last.repeated:
        told.strange(f"put the part before {piece} into brackets")
    if not last.plain:
        told.strange(f"put the character before {piece} into brackets [ ]")
    least, most = _times(piece, told)
    if last.empty and (most is None or most > 1):
        told.costs(f"what {piece} repeats may be empty")
    if most is not None and most < least:
        told.costs(f"{piece} has its least above its most")
    last.weight *= max(most or 0, least, 1)
    last.empty = last.empty or least == 0
    told.empty += last.empty
    if told.empty > MOST_EMPTY:
        told.costs(f"more than {MOST_EMPTY} of its parts may be empty")
    last.repeated = True


def _times(piece: str, told: Reading) -> tuple[int, int | None]:
    if piece in _QUANTIFIERS:
        return int(piece == "+"), 1 if piece == "?" else None
    match = _TIMES.fullmatch(piece)
    if match is None or not (match[1] or match[3]):
        told.strange(f"write {{2}}, {{2,}} or {{2,5}} for {piece[:20]}")
        return 0, None
    if max(len(match[1]), len(match[3] or "")) > len(str(MOST_REPEATS)):
        told.costs(f"it repeats more than {MOST_REPEATS} parts")
        return 0, None
    least = int(match[1] or 0)
    most = least if match[2] is None else int(match[3]) if match[3] else None
    return least, most


def _check_character(piece: str, told: Reading) -> None:
    if piece.startswith("[") and len(piece) > 1:
        _check_class(piece, told)
    elif piece.startswith("\\"):
        if not _CHARACTER.fullmatch(piece):
            told.strange(f"write {_INSTEAD.get(piece, 'the characters themselves')} for {piece}")
    elif piece in "^$[]{}":
        told.strange(f"write \\{piece} for {piece} inside of it")
    elif piece == '"' or ord(piece) < 32:
        told.strange("leave out what a JSON text writes with a backslash")


_INSTEAD = {r"\d": "[0-9]", r"\w": "[A-Za-z0-9_]", r"\s": "a space"}


def _check_class(piece: str, told: Reading) -> None:
    inside = piece[1:-1]
    negated = inside.startswith("^")
    inside = inside.removeprefix("^")
    known = _IN_NEGATED if negated else _IN_CLASS
    for escape in re.findall(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", inside, re.DOTALL):
        if not known.fullmatch(escape):
            told.strange(f"write the characters themselves for {escape} in {piece[:40]}")
    if not inside or "[" in inside or (not negated and '"' in inside):
        told.strange(f"write the characters one by one in {piece[:40]}")
    if any(_code(first) > _code(last) for first, last in _RANGE.findall(inside)):
        told.strange(f"put the ends of a range in order in {piece[:40]}")


def _code(character: str) -> int:
    digits = character[2:]
    return int(digits, 16) if digits else ord(character[-1])
