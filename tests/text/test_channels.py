from __future__ import annotations

import pytest

from bourn.errors import SettingsError
from bourn.text.channels import Channels
from bourn.text.span import Span
from tests.text.cutting import ANSWER, HARD, REASONING, TOOL, answer, run, sized

SIZES = [1, 2, 3, 5, 1000]

MARKED = [
    ("think", "<think>reasoning</think>answer", [(REASONING, "reasoning"), (ANSWER, "answer")]),
    (
        "think",
        "<think>\nOkay.\n\nSo.\n</think>\n\nHi!\n",
        [(REASONING, "Okay.\n\nSo."), (ANSWER, "Hi!\n")],
    ),
    (
        "think",
        'Sure.\n<tool_call>\n{"name": "f"}\n</tool_call>\n<tool_call>\n{"name": "g"}\n</tool_call>',
        [(ANSWER, "Sure.\n"), (TOOL, '{"name": "f"}\n{"name": "g"}')],
    ),
    (
        "think",
        "<think>one</think><think>two</think>done",
        [(REASONING, "one\ntwo"), (ANSWER, "done")],
    ),
    ("think", "\n<think>\n</think>\nHi", [(ANSWER, "Hi")]),
    ("think", "\n\nHi", [(ANSWER, "\n\nHi")]),
    ("think", "a\n<think>b</think>\nc", [(ANSWER, "a\n"), (REASONING, "b"), (ANSWER, "c")]),
    ("think", "<think>x</think>    code", [(REASONING, "x"), (ANSWER, "    code")]),
    (
        "mistral",
        '[THINK]hm[/THINK]Wait.[TOOL_CALLS]f[ARGS]{"a": [1]}[TOOL_CALLS]g[ARGS]{}',
        [(REASONING, "hm"), (ANSWER, "Wait."), (TOOL, 'f[ARGS]{"a": [1]}\ng[ARGS]{}')],
    ),
    ("mistral", "<think>\nhm\n</think>\nHi", [(REASONING, "hm"), (ANSWER, "Hi")]),
    (
        "harmony",
        "<|channel|>analysis<|message|>Sum.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>2 + 2 = 4.<|return|>",
        [(REASONING, "Sum."), (ANSWER, "2 + 2 = 4.")],
    ),
    (
        "harmony",
        "<|channel|>analysis<|message|>One.<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Two.<|end|>",
        [(REASONING, "One.\nTwo.")],
    ),
    (
        "harmony",
        "<|channel|>commentary<|message|>I will look it up.<|end|><|start|>assistant"
        '<|channel|>commentary to=functions.find <|constrain|>json<|message|>{"q": 1}<|call|>',
        [
            (ANSWER, "I will look it up."),
            (TOOL, 'functions.find <|constrain|>json<|message|>{"q": 1}'),
        ],
    ),
    (
        "harmony",
        "<|channel|>analysis to=python<|message|>1 + 1<|call|>",
        [(TOOL, "python<|message|>1 + 1")],
    ),
    (
        "harmony",
        "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        [(TOOL, "functions.f<|channel|>commentary json<|message|>{}")],
    ),
    (
        "harmony",
        "<|channel|>final <|constrain|>json<|message|>{}<|return|>",
        [(ANSWER, "{}")],
    ),
    (
        "harmony",
        "<|channel|>analysis<|message|>Sum.<|start|>assistant<|channel|>final<|message|>4",
        [(REASONING, "Sum."), (ANSWER, "4")],
    ),
    ("llama3", "<|python_tag|>print(1)", [(TOOL, "print(1)")]),
    (
        "granite",
        "<think>hm</think>\n<response>Hi</response>",
        [(REASONING, "hm"), (ANSWER, "Hi")],
    ),
    ("granite", "<think>hm</think>Hi", [(REASONING, "hm"), (ANSWER, "Hi")]),
    ("granite", "<response>Hi", [(ANSWER, "<response>Hi")]),
    ("granite", '<|tool_call|>[{"name": "f"}]', [(TOOL, '[{"name": "f"}]')]),
    (
        "command",
        "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Hi<|END_RESPONSE|>",
        [(REASONING, "hm"), (ANSWER, "Hi")],
    ),
    (
        "command",
        "<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[]<|END_ACTION|>",
        [(REASONING, "hm"), (TOOL, "[]")],
    ),
    (
        "gemma4",
        "<|channel>thought\nhm\n<channel|>Hi<|tool_call>call:f{}<tool_call|>",
        [(REASONING, "hm"), (ANSWER, "Hi"), (TOOL, "call:f{}")],
    ),
    (
        "seed",
        "<seed:think>hm</seed:think>Hi<seed:tool_call><function=f></function></seed:tool_call>",
        [(REASONING, "hm"), (ANSWER, "Hi"), (TOOL, "<function=f></function>")],
    ),
    (
        "deepseek",
        "<think>hm</think>Hi<｜tool▁calls▁begin｜>f<｜tool▁calls▁end｜>",  # noqa: RUF001
        [(REASONING, "hm"), (ANSWER, "Hi"), (TOOL, "f")],
    ),
    (
        "kimi",
        "<|tool_calls_section_begin|>f<|tool_calls_section_end|>",
        [(TOOL, "f")],
    ),
    (
        "apertus",
        "<|inner_prefix|>hm<|inner_suffix|>Hi<|tools_prefix|>[]<|tools_suffix|>",
        [(REASONING, "hm"), (ANSWER, "Hi"), (TOOL, "[]")],
    ),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("family", "text", "told"), MARKED)
def test_each_family(family: str, text: str, told: list[tuple[object, str]], size: int) -> None:
    assert run(Channels(family), answer(*sized(text, size))) == told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["<think>reasoning</th", "ink>answer"], [(REASONING, "reasoning"), (ANSWER, "answer")]),
        (["preface <th", "ink>secret"], [(ANSWER, "preface "), (REASONING, "secret")]),
        (["hi <think>secret"], [(ANSWER, "hi "), (REASONING, "secret")]),
    ],
)
def test_marks_may_lie_across_pieces(given: list[str], told: list[tuple[object, str]]) -> None:
    assert run(Channels("think"), answer(*given)) == told


def test_one_piece_may_hold_several_channels() -> None:
    out = Channels("think").feed(Span(ANSWER, "a<think>b</think>c<tool_call>d"))
    assert out == [(ANSWER, "a"), (REASONING, "b"), (ANSWER, "c"), (TOOL, "d")]


@pytest.mark.parametrize(
    "text", ["a < b", "<thin", "<thinking>", "</think>", "<b>think</b>", "a <"]
)
def test_look_alikes_are_text(text: str) -> None:
    assert run(Channels("think"), answer(*text)) == answer(text)


def test_a_look_alike_is_released_at_once() -> None:
    stage = Channels("think")
    assert stage.feed(Span(ANSWER, "a <")) == answer("a ")
    assert stage.held == "<"
    assert stage.feed(Span(ANSWER, " b")) == answer("< b")
    assert stage.held == ""


def test_only_marks_that_are_valid_here_are_looked_for() -> None:
    stage = Channels("think", opened=REASONING)
    assert stage.feed(Span(ANSWER, "is <think> a tag? <too")) == [
        (REASONING, "is <think> a tag? <too")
    ]


def test_what_is_not_closed_stays_in_its_channel() -> None:
    assert run(Channels("think"), answer("<think>and so on")) == [(REASONING, "and so on")]
    assert run(Channels("think"), answer("<tool_call>{")) == [(TOOL, "{")]


def test_half_a_mark_at_the_end_is_text_of_its_channel() -> None:
    assert run(Channels("think"), answer("if a <th")) == answer("if a <th")
    out = run(Channels("think"), answer("<think>if a\n</thi"))
    assert out == [(REASONING, "if a\n</thi")]


def test_newlines_are_held_only_where_a_mark_could_follow() -> None:
    stage = Channels("think")
    assert stage.feed(Span(ANSWER, "\n")) == []
    assert stage.feed(Span(ANSWER, "Hi\n")) == answer("\nHi\n")
    assert stage.feed(Span(ANSWER, "<think>so\n\n")) == [(REASONING, "so")]
    assert stage.held == "\n\n"
    assert stage.feed(Span(ANSWER, "and")) == [(REASONING, "\n\nand")]
    assert stage.flush() == []


def test_the_prompt_may_have_opened_a_channel() -> None:
    stage = Channels("think", opened=REASONING)
    out = run(stage, answer("\nOkay.\n</think>\n\nHi"))
    assert out == [(REASONING, "Okay."), (ANSWER, "Hi")]


def test_spans_with_a_label_pass_after_what_was_held() -> None:
    stage = Channels("think")
    assert stage.feed(Span(ANSWER, "a <th")) == answer("a ")
    labelled = Span(REASONING, "ink>\n")
    assert stage.feed(labelled) == [Span(ANSWER, "<th"), labelled]
    assert stage.feed(Span(ANSWER, "ink>")) == answer("ink>")


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("hard", HARD)
def test_hard_text_keeps_its_place(hard: str, size: int) -> None:
    text = f"<think>a{hard}b</think>c{hard}d"
    told = [(REASONING, f"a{hard}b"), (ANSWER, f"c{hard}d")]
    assert run(Channels("think"), answer(*sized(text, size))) == told


def test_the_places_of_text_are_told() -> None:
    stage = Channels("think")
    text = "a\n<think>\nb\n</think>\n\nc"
    cuts = [cut for piece in sized(text, 4) for cut in stage.cut(Span(ANSWER, piece))]
    for cut in [*cuts, *stage.rest()]:
        assert text[cut.end - len(cut.text) : cut.end] == cut.text
        assert cut.channel in (ANSWER, REASONING)


@pytest.mark.parametrize("size", SIZES)
def test_the_first_of_each_block_is_told(size: int) -> None:
    stage = Channels("think")
    text = "Sure.<tool_call>\nabc\n</tool_call><tool_call></tool_call>\n<tool_call>de</tool_call>."
    cuts = [cut for piece in sized(text, size) for cut in stage.cut(Span(ANSWER, piece))]
    begun = [cut.text.lstrip()[0] for cut in [*cuts, *stage.rest()] if cut.first]
    assert begun == ["a", "d", "."]


def test_the_prompt_may_open_a_channel_before_any_text() -> None:
    stage = Channels("think")
    stage.open(REASONING)
    out = run(stage, answer("\nOkay.\n</think>\n\nHi"))
    assert out == [(REASONING, "Okay."), (ANSWER, "Hi")]


@pytest.mark.parametrize("size", [1, 200_000])
def test_work_is_linear_in_the_text(size: int) -> None:
    """Fifty times the text, fifty times the work: the guard on every test's time would see more."""
    text = "<think>" + "<" * 40_000 + "\n" * 80_000 + "x</think>" + "<think>y</think>" * 5_000
    out = run(Channels("think"), answer(*sized(text, size)))
    assert out == [(REASONING, "<" * 40_000 + "\n" * 80_000 + "x" + "\ny" * 5_000)]


def test_an_unknown_family_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(SettingsError, match="'thonk'") as caught:
        Channels("thonk")
    assert "harmony" in caught.value.hint
