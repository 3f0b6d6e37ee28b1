"""A chat template judged by what it writes. The names in it are those of no real model."""

from __future__ import annotations

import pytest

from bourn.catalog import templates
from bourn.doctor.chat import CHECKS, Chat, marks_of, proposal
from bourn.doctor.finding import Finding, State, run
from bourn.doctor.jinja import Sandbox
from tests.support import tiny_tokenizers as tiny


def chat(text: str | None, *vocabulary: str, called: tuple[str, str] = ("", "")) -> Chat:
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    return Chat(text, lambda: Sandbox(tokens), called, frozenset(vocabulary))


def examined(text: str | None, *vocabulary: str) -> dict[str, Finding]:
    return {finding.check: finding for finding in run(CHECKS, chat(text, *vocabulary))}


# -- templates that are well -----------------------------------------------------------------------


@pytest.mark.parametrize("name", templates.NAMES)
def test_our_own_templates_are_not_broken(name: str) -> None:
    found = examined(templates.FAMILIES[name].jinja())
    assert {each.state for each in found.values()} <= {State.OK, State.NOTE}, found
    assert found["generation prompt"].state is State.OK


@pytest.mark.parametrize("text", [tiny.CHATML, tiny.LLAMA3, tiny.TOOLS, tiny.THINKING])
def test_usual_templates_are_all_well(text: str) -> None:
    assert {each.state for each in examined(text).values()} == {State.OK}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (tiny.CHATML, r'it is "<|im_start|>assistant\n"'),
        (tiny.THINKING, r'it is "<|im_start|>assistant\n<think>\n"'),
        (tiny.MISTRAL, "none is needed"),
        (tiny.CHATML.replace("{% if add_generation_prompt %}", "{% if true %}"), "none is needed"),
    ],
)
def test_the_generation_prompt_is_shown(text: str, found: str) -> None:
    finding = examined(text)["generation prompt"]
    assert finding.state is State.OK
    assert found in finding.found


def test_one_that_differs_from_how_answers_begin_is_noted() -> None:
    text = tiny.CHATML.replace("'<|im_start|>assistant\n'", "'<|im_start|>bot\n'")
    finding = examined(text)["generation prompt"]
    assert finding.state is State.NOTE
    assert '"<|im_start|>assistant' in finding.found
    assert '"<|im_start|>bot' in finding.found


def test_an_answer_that_is_shown_with_empty_thoughts_is_no_difference() -> None:
    spoken = "message.role + '\n' + message.content"
    thinks = "message.role + '\n' + ('<think></think>' if message.role == 'assistant' else '')"
    text = tiny.CHATML.replace(spoken, f"{thinks} + message.content")
    assert examined(text)["generation prompt"].state is State.OK


# -- templates that are not ------------------------------------------------------------------------


def test_without_one_all_else_is_skipped() -> None:
    found = examined(None)
    assert found.pop("chat template").state is State.WARNING
    assert {each.state for each in found.values()} == {State.SKIPPED}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ messages[0].nothing.at.all }}", "UndefinedError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ raise_exception('never') }}", "never"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
    ],
)
def test_one_that_fails_is_told_once_and_harms_nothing(text: str, said: str) -> None:
    found = examined(text)
    assert found["chat template"].state is State.BROKEN
    assert said in found["chat template"].found
    assert {each.state for name, each in found.items() if name != "chat template"} == {
        State.SKIPPED
    }


def test_a_mend_for_a_missing_generation_prompt_is_jinja_that_mends_it() -> None:
    text = tiny.CHATML.partition("{% if add_generation_prompt %}")[0]
    mend = examined(text)["generation prompt"].mend
    lacking = mend[mend.index("{%") : mend.index("{% endif %}") + len("{% endif %}")]
    assert examined(text + lacking)["generation prompt"].state is State.OK


def test_parts_of_jinja_that_chat_templates_use() -> None:
    text = (
        "{% for message in messages %}{% if loop.index > 2 %}{% break %}{% endif %}"
        "{% generation %}{{ message.content }}{% endgeneration %}{% endfor %}"
        "{{ {'a': 'é'} | tojson }}{{ strftime_now('%Y') | length }}"
    )
    assert chat(text).write(("user", "1"), ("assistant", "2"), ("user", "3")) == '12{"a": "é"}4'


# -- proposing one ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("called", "vocabulary", "proposed"),
    [
        (("Qwen2.5-0.5B", "qwen2"), ["<|im_start|>", "<|im_end|>"], "chatml"),
        (("mystery", "llama"), ["<|im_start|>", "<|im_end|>"], "chatml"),
        (("mystery", "llama"), ["<|im_start|>", "<|im_end|>", "<|im_sep|>"], "phi4"),
        (("mystery", ""), ["<start_of_turn>", "<end_of_turn>", "<bos>"], "gemma"),
        (("mystery", ""), list(marks_of("llama3")), "llama3"),
        (("Llama-3-8B", "llama"), list(marks_of("llama3")), "llama3"),
        (("Llama-3-but-of-another-kind", "llama"), ["<|im_start|>", "<|im_end|>"], "chatml"),
        (("vicuna-7b", "llama"), ["</s>"], "vicuna"),
        (("Llama-2-7b", "llama"), ["<s>", "</s>"], "llama2"),  # `[INST]` is text to it
        (("Qwen-7B", "qwen"), [], "chatml"),  # a vocabulary that could not be read
        (("mystery", "llama"), ["a", "b"], None),
    ],
)
def test_a_template_is_proposed_whose_marks_the_model_knows(
    called: tuple[str, str], vocabulary: list[str], proposed: str | None
) -> None:
    assert proposal(called, frozenset(vocabulary)) == proposed


def test_a_proposal_says_why() -> None:
    finding = examined(None, "<|im_start|>", "<|im_end|>")["chat template"]
    assert "--chat-template chatml, since <|im_" in finding.mend
