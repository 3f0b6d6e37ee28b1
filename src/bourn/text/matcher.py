"""Finds the first of several patterns in text that comes in pieces (Aho and Corasick, 1975).

It knows strings only: not what a pattern means, nor what happens once it is found. Its work is
linear in the text, whatever the patterns and wherever the text is cut.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple


class Reading(NamedTuple):
    """What reading some text made certain.

    clear: text that belongs to no pattern; it may begin with what was held before.
    found: the pattern that was met after it, None where there was none.
    end: the place, in the text given, up to which was read.
    """

    clear: str
    found: str | None
    end: int


class Matcher:
    """Reads text until a pattern ends in it, and holds what may yet become a pattern.

    The pattern that ends first wins; of several that end at one place, the longest. After a find
    it starts anew.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._root, self._openings = _compile(tuple(patterns))
        self._node = self._root

    @property
    def held(self) -> str:
        """The longest end of the text that a pattern begins with."""
        return self._node.path()

    def read(self, text: str, start: int = 0) -> Reading:
        """Reads `text` from `start` up to the end of the first pattern, or all of it."""
        before, at, found = self._node, start, None
        node = before
        while at < len(text) and found is None:
            if node is self._root:
                opening = self._openings.search(text, at)
                if opening is None:
                    at = len(text)
                    break
                at = opening.start()
            node = node.after(text[at])
            found = node.found
            at += 1
        held = node.depth if found is None else len(found)
        self._node = node if found is None else self._root
        # What is held is always the beginning of a pattern, so it need not be kept anywhere else.
        clear = before.depth + at - start - held
        fresh = max(0, clear - before.depth)
        return Reading(before.path(clear) + text[start : start + fresh], found, at)

    def flush(self) -> str:
        """What was held, which is text after all."""
        held, self._node = self.held, self._root
        return held


class _Node:
    """A place in the patterns: the text since it was last at the root spells its path."""

    __slots__ = ("children", "depth", "fallback", "found", "pattern")

    def __init__(self, pattern: str = "", depth: int = 0) -> None:
        self.children: dict[str, _Node] = {}
        self.pattern = pattern  # one that begins with the path
        self.depth = depth
        self.fallback = self  # where the longest proper end of the path leads
        self.found: str | None = None  # the longest pattern that the path ends with

    def path(self, limit: int | None = None) -> str:
        """The text that leads here, at most `limit` characters of it."""
        return self.pattern[: self.depth if limit is None else min(limit, self.depth)]

    def after(self, character: str) -> _Node:
        node = self
        while (child := node.children.get(character)) is None:
            if node.depth == 0:
                return node
            node = node.fallback
        return child


@lru_cache(maxsize=256)
def _compile(patterns: tuple[str, ...]) -> tuple[_Node, re.Pattern[str]]:
    """The automaton's root, and an expression for the characters that lead away from it."""
    if "" in patterns:
        raise ValueError("an empty pattern is everywhere")
    root = _Node()
    for pattern in patterns:
        _grow(root, pattern)
    _link(root)
    openings = "".join(map(re.escape, root.children))
    return root, re.compile(f"[{openings}]" if openings else "(?!)")


def _grow(root: _Node, pattern: str) -> None:
    node = root
    for depth, character in enumerate(pattern, start=1):
        node = node.children.setdefault(character, _Node(pattern, depth))
    node.found = pattern


def _link(root: _Node) -> None:
    """Sets each node's fallback, the shallow ones first."""
    for child in root.children.values():
        child.fallback = root
    queue = deque(root.children.values())
    while queue:
        node = queue.popleft()
        for character, child in node.children.items():
            child.fallback = node.fallback.after(character)
            child.found = child.found or child.fallback.found
            queue.append(child)
