"""How each family of models marks what it writes: a table, and how to find one's row in it.

A family is a handful of sections. Each says which channel its text is for, and which marks lead
out of it and where to. Nothing here reads text; `channels` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bourn.types import Channel


@dataclass(frozen=True, slots=True)
class Section:
    """`channel` None: a header, whose text nobody sees. `marks`: mark → the section it opens."""

    channel: Channel | None
    marks: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """`sections`: by name; a model begins in "answer". `signs`: what its chat templates show."""

    sections: Mapping[str, Section]
    signs: tuple[str, ...]


def _blocks(reasoning: Mapping[str, str], tool: Mapping[str, str]) -> Family:
    """A family whose blocks stand in the answer, each between an opening and a closing mark."""
    opening = dict.fromkeys(reasoning, "reasoning") | dict.fromkeys(tool, "tool")
    sections = {
        "answer": Section(Channel.ANSWER, opening),
        "reasoning": Section(Channel.REASONING, dict.fromkeys(reasoning.values(), "answer")),
        "tool": Section(Channel.TOOL, dict.fromkeys(tool.values(), "answer")),
    }
    return Family(sections, (*opening, *reasoning.values(), *tool.values()))


def _harmony() -> Family:
    """gpt-oss: messages, each with a header that says who it is for.

    `analysis` is reasoning. A recipient (`to=`) makes a tool call of it, whose text is kept from
    the recipient's name on, since its name stands nowhere else. All else is for the reader, the
    `commentary` without a recipient too.
    """
    over = dict.fromkeys(("<|end|>", "<|return|>", "<|call|>"), "answer")
    outside = over | dict.fromkeys(("<|start|>", "<|channel|>"), "header")
    sections = {
        "answer": Section(Channel.ANSWER, outside),
        "header": Section(None, {"analysis": "thinking", " to=": "tool", "<|message|>": "answer"}),
        "thinking": Section(None, {" to=": "tool", "<|message|>": "reasoning"}),
        "reasoning": Section(Channel.REASONING, outside),
        "tool": Section(Channel.TOOL, over),
    }
    return Family(sections, ("<|channel|>",))


def _mistral() -> Family:
    """Tool calls go on to the end, each with a mark before it; older reasoners wrote `<think>`."""
    opening = {"[THINK]": "reasoning", "<think>": "reasoning", "[TOOL_CALLS]": "tool"}
    sections = {
        "answer": Section(Channel.ANSWER, opening),
        "reasoning": Section(Channel.REASONING, {"[/THINK]": "answer", "</think>": "answer"}),
        "tool": Section(Channel.TOOL, {"[TOOL_CALLS]": "tool"}),
    }
    return Family(sections, (*opening, "[/THINK]", "</think>"))


def _llama3() -> Family:
    """A tool call goes on to the end."""
    sections = {
        "answer": Section(Channel.ANSWER, {"<|python_tag|>": "tool"}),
        "tool": Section(Channel.TOOL, {}),
    }
    return Family(sections, ("<|python_tag|>",))


def _granite() -> Family:
    """IBM Granite 3 and 4: the answer after reasoning may stand in marks of its own."""
    opening = {"<think>": "reasoning", "<tool_call>": "tool", "<|tool_call|>": "calls"}
    sections = {
        "answer": Section(Channel.ANSWER, opening),
        "reasoning": Section(Channel.REASONING, {"</think>": "reasoned"}),
        "reasoned": Section(Channel.ANSWER, opening | {"<response>": "response"}),
        "response": Section(Channel.ANSWER, opening | {"</response>": "answer"}),
        "tool": Section(Channel.TOOL, {"</tool_call>": "answer"}),
        "calls": Section(Channel.TOOL, {}),
    }
    return Family(sections, ("<|start_of_role|>", *THINK.signs))


def _command() -> Family:
    """Cohere Command: the answer stands in marks of its own."""
    opening = {
        "<|START_THINKING|>": "reasoning",
        "<|START_ACTION|>": "tool",
        "<|START_RESPONSE|>": "answer",
        "<|END_RESPONSE|>": "answer",
    }
    sections = {
        "answer": Section(Channel.ANSWER, opening),
        "reasoning": Section(Channel.REASONING, {"<|END_THINKING|>": "answer"}),
        "tool": Section(Channel.TOOL, {"<|END_ACTION|>": "answer"}),
    }
    return Family(sections, tuple(opening))


THINK = _blocks({"<think>": "</think>"}, {"<tool_call>": "</tool_call>"})

FAMILIES: Mapping[str, Family] = {
    "think": THINK,  # Qwen, DeepSeek-R1's distillates, SmolLM 3, GLM, Hermes, and most others
    "deepseek": _blocks(
        {"<think>": "</think>"},
        {"<｜tool▁calls▁begin｜>": "<｜tool▁calls▁end｜>"},  # noqa: RUF001 (their bars are wide)
    ),
    "kimi": _blocks(
        {"<think>": "</think>"}, {"<|tool_calls_section_begin|>": "<|tool_calls_section_end|>"}
    ),
    "gemma4": _blocks({"<|channel>thought": "<channel|>"}, {"<|tool_call>": "<tool_call|>"}),
    "seed": _blocks({"<seed:think>": "</seed:think>"}, {"<seed:tool_call>": "</seed:tool_call>"}),
    "apertus": _blocks(
        {"<|inner_prefix|>": "<|inner_suffix|>"}, {"<|tools_prefix|>": "<|tools_suffix|>"}
    ),
    "harmony": _harmony(),
    "mistral": _mistral(),
    "llama3": _llama3(),
    "granite": _granite(),
    "command": _command(),
}


def family_of(chat_template: str) -> str | None:
    """The family whose marks a chat template shows most of, or None where it shows none."""
    shown = {
        name: sum(sign in chat_template for sign in family.signs)
        for name, family in FAMILIES.items()
    }
    best = max(shown, key=shown.__getitem__)
    return best if shown[best] else None


def opened_by(prompt: str, family: str) -> Channel:
    """The channel that a rendered prompt leaves open: some templates end in an opening mark."""
    sections = FAMILIES[family].sections
    for mark, name in sections["answer"].marks.items():
        if prompt.rstrip().endswith(mark):
            return sections[name].channel or Channel.ANSWER
    return Channel.ANSWER
