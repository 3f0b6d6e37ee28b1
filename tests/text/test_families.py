from __future__ import annotations

import pytest

from bourn.text.channels import FAMILIES, Channels, family_of, opened_by
from bourn.types import Channel

QWEN3 = """
{%- if tools %}{{- '<|im_start|>system\\n' }}For each call, answer within <tool_call></tool_call>:
{%- endif %}
{%- if '</think>' in content %}{%- set reasoning = content.split('<think>')[-1] %}{%- endif %}
{{- '<|im_start|>assistant\\n' }}{%- if not enable_thinking %}<think>\\n\\n</think>{%- endif %}
"""

TEMPLATES = {
    "think": QWEN3,
    "deepseek": "{{ '<think>\\n' }}{{ '</think>' }}{{ '<｜tool▁calls▁begin｜>' }}",  # noqa: RUF001
    "kimi": "<think></think>{{ '<|tool_calls_section_begin|>' }}",
    "harmony": "{{ '<|start|>assistant<|channel|>analysis<|message|>' }}",
    "mistral": "{{ '[TOOL_CALLS]' + message.tool_calls|tojson }}",
    "llama3": "{{ '<|python_tag|>' + tool_call.name + '.call(' }}",
    "granite": "<|start_of_role|>assistant<|end_of_role|><think></think><response></response>",
    "command": "<|START_OF_TURN_TOKEN|><|START_THINKING|><|START_RESPONSE|>",
    "gemma4": "{{ '<|channel>thought\\n' }}",
    "seed": "<seed:think>",
    "apertus": "<|inner_prefix|>",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_template_tells_the_family(family: str) -> None:
    assert family_of(TEMPLATES[family]) == family


@pytest.mark.parametrize(
    "template",
    [
        "",
        "{% for message in messages %}{{'<|im_start|>' + message['role'] }}{% endfor %}<|im_end|>",
        "{{'<|user|>\\n' + message['content'] + '<|end|>\\n<|assistant|>\\n'}}",
        "<start_of_turn>model\\n",
    ],
)
def test_a_template_without_marks_has_no_family(template: str) -> None:
    assert family_of(template) is None


def test_reasoning_alone_is_the_commonest_family() -> None:
    assert family_of("{{ '<think>' }}") == "think"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_mark_leads_to_a_section_that_is_there(family: str) -> None:
    sections = FAMILIES[family].sections
    assert {"answer", "tool"} <= set(sections)
    for section in sections.values():
        assert set(section.marks.values()) <= set(sections)
        assert not any(mark.startswith("\n") or mark.endswith("\n") for mark in section.marks)
    assert Channels(family).held == ""


@pytest.mark.parametrize(
    ("prompt", "family", "channel"),
    [
        ("<|im_start|>assistant\n<think>\n", "think", Channel.REASONING),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "think", Channel.ANSWER),
        ("What does <think> mean?<|im_end|>\n<|im_start|>assistant\n", "think", Channel.ANSWER),
        ("<|start|>assistant", "harmony", Channel.ANSWER),
        ("<|start|>assistant<|channel|>", "harmony", Channel.ANSWER),
        ("[/INST][TOOL_CALLS]", "mistral", Channel.TOOL),
    ],
)
def test_a_prompt_tells_what_it_leaves_open(prompt: str, family: str, channel: Channel) -> None:
    assert opened_by(prompt, family) is channel
