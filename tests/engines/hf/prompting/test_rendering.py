from __future__ import annotations

import pytest

from bourn.engines.hf.prompting.rendering import ChatTemplate, templates_of
from bourn.errors import TemplateError
from tests.support import tiny_tokenizers as tiny

USER = {"role": "user", "content": "Who?"}

PARTS_ONLY = (
    "{% for m in messages %}{% for part in m.content %}"
    "{% if part.type == 'text' %}{{ '[' + part.text + ']' }}{% endif %}"
    "{% endfor %}{% endfor %}"
)


def template(text: str) -> ChatTemplate:
    return ChatTemplate(tiny.chatml(), text)


def test_a_template_made_for_parts_gets_parts() -> None:
    assert template(PARTS_ONLY).render([USER]) == "[Who?]"


def test_a_template_that_insists_on_parts_gets_parts() -> None:
    insists = "{% if messages[0].content is string %}{{ raise_exception('parts!') }}{% endif %}"
    assert template(insists + PARTS_ONLY).render([USER]) == "[Who?]"


def test_a_template_that_takes_both_gets_text() -> None:
    both = "{% if messages[0].content is string %}{{ messages[0].content }}{% endif %}"
    assert template(both).render([USER]) == "Who?"


def test_the_developer_is_the_system_to_templates_that_know_none() -> None:
    told = {"role": "developer", "content": "Be brief."}
    assert template("{{ messages[0].role }}").render([told]) == "system"
    assert template("{% set developer = 1 %}{{ messages[0].role }}").render([told]) == "system"
    knowing = "{{ messages[0].role if messages[0].role != 'developer' else 'dev' }}"
    assert template(knowing).render([told]) == "dev"


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("{{ messages }}{{ tools }}{{ add_generation_prompt }}{{ eos_token }}", set()),
        ("{% if x is defined %}{{ x }}{% endif %}", {"x"}),
        ("{% if not x is defined %}{% set x = 'May' %}{% endif %}{{ x }}", {"x"}),
        ("{% set ns = namespace(a=1) %}{{ ns.a }}{{ strftime_now('%Y') }}", set()),
        ("{{ raise_exception('no') }}{% for a in range(3) %}{% break %}{% endfor %}", set()),
        ("{% generation %}{{ documents }}{% endgeneration %}", {"documents"}),
        ("{% if x %}", set()),
    ],
)
def test_the_variables_that_a_template_reads(text: str, variables: set[str]) -> None:
    assert template(text).variables == variables


def test_what_is_trained_on_is_rendered_as_all_else() -> None:
    marked = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    assert template(marked).render([USER]) == "Who?"


def test_whether_it_takes_messages_is_found_by_trying() -> None:
    assert ChatTemplate(tiny.gemma(), tiny.GEMMA).takes([USER])
    assert not ChatTemplate(tiny.gemma(), tiny.GEMMA).takes([USER, USER])
    with pytest.raises(TemplateError, match="alternate"):
        ChatTemplate(tiny.gemma(), tiny.GEMMA).render([USER, USER])


def test_the_templates_by_name() -> None:
    tokenizer = tiny.chatml()
    assert {name: each.text for name, each in templates_of(tokenizer, None).items()} == {
        "default": tiny.CHATML
    }
    assert templates_of(tokenizer, "{{ 1 }}")["default"].text == "{{ 1 }}"
    assert templates_of(tiny.no_template(), None) == {}
    tokenizer.chat_template = {"rag": "{{ 1 }}", "default": "{{ 2 }}"}
    assert set(templates_of(tokenizer, None)) == {"rag", "default"}
