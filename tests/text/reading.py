"""What every test of tool calls needs: to read them, and to put their parts together again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bourn.text.calls import Calls, Part
from bourn.types import ToolDelta


class Read(NamedTuple):
    """`calls`: the name and the arguments of each."""

    text: str
    calls: list[tuple[str, str]]


def read(stage: Calls, texts: Iterable[str]) -> Read:
    """All that comes out of a reader of calls."""
    parts = [part for text in texts for part in stage.feed(text)]
    return added_up([*parts, *stage.end()])


def added_up(parts: Iterable[Part]) -> Read:
    """The texts joined, and the calls whole; each with its id and its name in its first part."""
    texts, tools = [], []
    for part in parts:
        assert bool(part.text) == (part.tool is None), "a part is text or a tool's"
        texts.append(part.text)
        tools += [part.tool] if part.tool else []
    return Read("".join(texts), calls_of(tools))


def calls_of(tools: Iterable[ToolDelta]) -> list[tuple[str, str]]:
    calls: list[tuple[str, str]] = []
    for tool in tools:
        new = tool.index == len(calls)
        assert (tool.id is not None) == (tool.name is not None) == new
        if tool.name is not None:
            calls.append((tool.name, ""))
        assert tool.index == len(calls) - 1
        name, arguments = calls[-1]
        calls[-1] = (name, arguments + tool.arguments)
    return calls
