from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tokenizers import AddedToken

from bourn.catalog import templates
from bourn.engines.hf.prompting.ending import TurnEnd, ends, turn_end
from tests.support import tiny_tokenizers as tiny

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def number(tokenizer: PreTrainedTokenizerBase, name: str) -> int:
    found = tokenizer.get_vocab()[name]
    assert isinstance(found, int)
    return found


def with_tokens(*special: str) -> PreTrainedTokenizerBase:
    tokenizer = tiny.llama3()
    tokenizer.add_tokens([AddedToken(text, special=True) for text in special])
    return tokenizer


def around(before: str, after: str, *, ends: str = "") -> str:
    """A template that writes an answer between these, and questions in brackets."""
    return (
        "{% for m in messages %}"
        "{% if m.role == 'assistant' %}"
        f"{{{{ '{before}' + m.content + '{after}' }}}}"
        "{% else %}{{ '[' + m.content + ']' }}{% endif %}"
        "{% endfor %}" + ends
    )


# -- the template's own ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "marker"),
    [
        (tiny.chatml, "<|im_end|>"),
        (tiny.llama3, "<|eot_id|>"),
        (tiny.gemma, "<end_of_turn>"),
        (tiny.mistral, "</s>"),
        (tiny.llama2, "</s>"),
        (tiny.thinking, "<|im_end|>"),
        (tiny.tools, "<|im_end|>"),
    ],
)
def test_the_marker_that_closes_an_answer(
    make: Callable[[], PreTrainedTokenizerBase], marker: str
) -> None:
    tokenizer = make()
    assert turn_end(tokenizer, None) == TurnEnd(marker, (number(tokenizer, marker),))


def test_a_marker_of_several_tokens_is_a_text() -> None:
    tokenizer = tiny.two_token_marker()
    end = turn_end(tokenizer, None)
    assert end is not None
    assert end.text == "<</turn>>"
    assert len(end.ids) > 1
    assert tokenizer.decode(end.ids) == "<</turn>>"


def test_no_template_has_no_end() -> None:
    assert turn_end(tiny.no_template(), None) is None
    tokenizer = tiny.chatml()
    tokenizer.chat_template = {"rag": tiny.CHATML}
    assert turn_end(tokenizer, None) is None


def test_a_template_of_ours_goes_before_the_tokenizers() -> None:
    end = turn_end(with_tokens("<|im_end|>"), tiny.CHATML)
    assert end is not None
    assert end.text == "<|im_end|>"
    without = turn_end(tiny.llama3(), tiny.CHATML)
    assert without is not None
    assert without.text == "<|im_end|>"
    assert len(without.ids) > 1


def test_every_template_that_has_a_name_shows_its_end() -> None:
    tokenizer = with_tokens("</s>")
    found = {name: turn_end(tokenizer, templates.template(name)) for name in templates.NAMES}
    shown = {name: end.text for name, end in found.items() if end}
    assert shown["vicuna"] == shown["mistral-v7"] == shown["llama2"] == "</s>"
    assert shown["zephyr"] == shown["deepseek2"] == "<|end_of_text|>"
    assert shown["phi3"] == "<|end|>"
    assert shown["exaone3"] == "[|endofturn|]"
    assert set(templates.NAMES) - shown.keys() == {"alpaca", "chatglm4"}


def test_a_text_that_begins_the_next_turn_ends_none() -> None:
    assert turn_end(tiny.llama3(), templates.template("alpaca")) is None


def test_a_token_that_begins_the_next_turn_ends_one() -> None:
    tokenizer = with_tokens("<|user|>", "<|assistant|>")
    end = turn_end(tokenizer, templates.template("chatglm4"))
    assert end == TurnEnd("<|user|>", (number(tokenizer, "<|user|>"),))


def test_a_turn_that_is_closed_only_when_another_follows() -> None:
    late = (
        "{% for m in messages %}"
        "{{ ('<|eot_id|>' if loop.index0 else '') + m.role + ':' + m.content }}"
        "{% endfor %}"
    )
    end = turn_end(tiny.llama3(), late)
    assert end is not None
    assert end.text == "<|eot_id|>"


def test_a_template_that_always_asks_for_an_answer() -> None:
    always = tiny.CHATML.replace("{% if add_generation_prompt %}", "{% if true %}")
    end = turn_end(tiny.chatml(), always)
    assert end is not None
    assert end.text == "<|im_end|>"
    assert turn_end(tiny.llama3(), around("", r"\n\n", ends="{{ '### Response:' }}")) is None


@pytest.mark.parametrize(
    ("after", "marker"),
    [
        (r"\n<|eot_id|>\n", "<|eot_id|>"),
        (" <|eot_id|><|begin_of_text|>", "<|eot_id|>"),
        ("[/ANSWER]<|eot_id|>", "<|eot_id|>"),
        ("<|eot_id|>X", "<|eot_id|>"),
        ("<|eot_id|><|end_of_text|>", "<|eot_id|>"),
        ("<|begin_of_text|>", "<|begin_of_text|>"),
        (r"\n\n", None),
    ],
)
def test_what_may_stand_around_a_marker(after: str, marker: str | None) -> None:
    end = turn_end(tiny.llama3(), around("A: ", after))
    assert (end.text if end else None) == marker


def test_of_two_tokens_at_one_place_the_longer_is_written() -> None:
    end = turn_end(with_tokens("<|end", "<|end|>"), around("", "<|end|>"))
    assert end is not None
    assert end.text == "<|end|>"


def test_a_familys_own_mark_is_no_end_where_another_follows() -> None:
    tokenizer = with_tokens("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|END_OF_TURN_TOKEN|>")
    marks = around("<|START_RESPONSE|>", "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>")
    end = turn_end(tokenizer, marks)
    assert end is not None
    assert end.text == "<|END_OF_TURN_TOKEN|>"


def test_of_messages_and_answers_that_end_differently_the_answers_end_counts() -> None:
    """As gpt-oss: a message amid the talk ends in another token than the last one."""
    tokenizer = with_tokens("<|channel|>", "<|message|>", "<|end|>", "<|return|>")
    template = (
        "{% for m in messages %}{{ '<|channel|>' + m.role + '<|message|>' + m.content }}"
        "{{ '<|return|>' if loop.last else '<|end|>' }}{% endfor %}"
    )
    end = turn_end(tokenizer, template)
    assert end is not None
    assert end.text == "<|return|>"


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('never') }}",
        "{% if %}",
        "{% for m in messages if m.role == 'user' %}{{ m.content }}<|eot_id|>{% endfor %}",
    ],
)
def test_a_template_that_shows_no_answer_shows_no_end(template: str) -> None:
    assert turn_end(tiny.llama3(), template) is None


def test_a_template_that_refuses_a_second_question_still_shows_the_end() -> None:
    short = "{% if messages | length > 2 %}{{ raise_exception('enough') }}{% endif %}"
    end = turn_end(tiny.two_token_marker(), short + tiny.TWO_TOKENS)
    assert end is not None
    assert end.text == "<</turn>>"


# -- all together ----------------------------------------------------------------------------------


def test_an_answer_ends_at_what_anyone_names() -> None:
    """As the first Llama 3 was published: the turn's end stands in one place only."""
    tokenizer = tiny.llama3()
    text, turn = number(tokenizer, "<|end_of_text|>"), number(tokenizer, "<|eot_id|>")
    config, generation = SimpleNamespace(eos_token_id=7), SimpleNamespace(eos_token_id=[8, 9])
    found = ends(tokenizer, config, generation, None)
    assert found.ids == {text, turn, 7, 8, 9}
    assert found.texts == ()
    assert found.stated == {
        "tokenizer": (text,),
        "config": (7,),
        "generation_config": (8, 9),
        "chat template": (turn,),
    }


def test_the_end_of_a_text_model_inside_another() -> None:
    config = SimpleNamespace(eos_token_id=None, text_config=SimpleNamespace(eos_token_id=[5, 6, 5]))
    assert ends(tiny.no_template(), config, None).stated["config"] == (5, 6)


def test_real_configurations() -> None:
    from transformers import GenerationConfig, LlamaConfig

    config = LlamaConfig(vocab_size=8, eos_token_id=[3, 4])
    found = ends(tiny.no_template(), config, GenerationConfig(eos_token_id=5))
    assert found.ids >= {3, 4, 5}


def test_nobody_need_name_one() -> None:
    tokenizer = tiny.no_template()
    tokenizer.eos_token = None
    found = ends(tokenizer, SimpleNamespace(eos_token_id=-1), SimpleNamespace(eos_token_id=None))
    assert found.ids == frozenset()
    assert found.texts == ()


def test_a_marker_of_several_tokens_is_stopped_at_as_a_text() -> None:
    tokenizer = tiny.two_token_marker()
    found = ends(tokenizer, None, None)
    assert found.ids == {tokenizer.eos_token_id}
    assert found.texts == ("<</turn>>",)
    assert found.stated["chat template"] == ()


def test_an_ordinary_token_is_stopped_at_as_a_text_too() -> None:
    """It might begin with a space, or stand within another."""
    found = ends(tiny.no_template(), None, None, around("A: ", " #"))
    assert found.texts == ("#",)
    assert len(found.ids) == 1


def test_no_token_ends_an_answer_by_its_name_alone() -> None:
    tokenizer = tiny.chatml()  # it has <|endoftext|> too, which pads
    assert ends(tokenizer, None, None).ids == {number(tokenizer, "<|im_end|>")}
