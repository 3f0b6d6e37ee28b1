from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from bourn.engines.hf.prompting.prompts import Prompts
from bourn.engines.hf.prompting.vocabulary import Vocabulary, marks_of
from bourn.errors import InvalidRequest, TemplateError, UnsupportedField
from bourn.types import Channel, ImagePart, Message, Request, TextPart, ToolCall
from tests.support import tiny_tokenizers as tiny

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SYSTEM = Message("system", "Be brief.")
USER = Message("user", "What says the fox?")
FOX = Message("assistant", "The fox says")

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}


def prompts(tokenizer: PreTrainedTokenizerBase, template: str | None = None, **how: Any) -> Prompts:
    return Prompts(tokenizer, Vocabulary(tokenizer, **how), template)


def chat(*messages: Message, **asked: Any) -> Request:
    return Request(messages=messages or (USER,), **asked)


# -- rendering -------------------------------------------------------------------------------------


def test_a_chat_ends_where_the_assistant_begins() -> None:
    assert prompts(tiny.chatml()).text(chat(SYSTEM, USER)) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWhat says the fox?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_template_of_ours_goes_before_the_tokenizers() -> None:
    text = prompts(tiny.chatml(), "{% for m in messages %}[{{ m.content }}]{% endfor %}").text(
        chat()
    )
    assert text == "[What says the fox?]"


def test_parts_of_text_become_one_text() -> None:
    parted = Message("user", (TextPart("What says "), TextPart("the fox?")))
    ours = prompts(tiny.chatml())
    assert ours.text(chat(parted)) == ours.text(chat(USER))


ALL_FIELDS = (
    "{% for m in messages %}"
    "{{ m.role }}|{{ m.name }}|{{ m.content }}|{{ m.reasoning_content }}|{{ m.tool_call_id }}"
    "{% for call in m.tool_calls %}"
    "|{{ call.id }}|{{ call.type }}|{{ call.function.name }}|{{ call.function.arguments.city }}"
    "{% endfor %}{{ '\n' }}"
    "{% endfor %}"
)


def test_a_template_finds_every_field_of_a_message() -> None:
    call = ToolCall("call_1", "weather", '{"city": "Ghent"}')
    said = prompts(tiny.chatml(), ALL_FIELDS).text(
        chat(
            Message("user", "Rain?", name="ann"),
            Message("assistant", reasoning="I must look.", tool_calls=(call,)),
            Message("tool", "wet", tool_call_id="call_1"),
        )
    )
    assert said.splitlines() == [
        "user|ann|Rain?||",
        "assistant|||I must look.||call_1|function|weather|Ghent",
        "tool||wet||call_1",
    ]


def test_calls_are_written_as_the_model_writes_them() -> None:
    call = ToolCall("call_1", "weather", '{"city": "Ghent"}')
    said = prompts(tiny.tools()).text(chat(USER, Message("assistant", tool_calls=(call,)), USER))
    written = said.split("<tool_call>\n")[1].split("\n</tool_call>")[0]
    assert json.loads(written) == {"name": "weather", "arguments": {"city": "Ghent"}}


@pytest.mark.parametrize("arguments", ['{"city": ', "Ghent", ""])
def test_broken_arguments_are_passed_on(arguments: str) -> None:
    called = Message("assistant", tool_calls=(ToolCall("1", "weather", arguments),))
    said = prompts(tiny.tools()).text(chat(USER, called, USER))
    assert f'"arguments": {json.dumps(arguments) if arguments else "{}"}}}' in said


def test_a_template_that_wants_arguments_as_text_gets_text() -> None:
    template = (
        "{% for m in messages %}{{ m.content }}"
        "{% for call in m.tool_calls %}{{ 'call:' + call.function.arguments }}{% endfor %}"
        "{% endfor %}"
    )
    called = Message("assistant", tool_calls=(ToolCall("1", "weather", '{"city": "Ghent"}'),))
    said = prompts(tiny.chatml(), template).text(chat(USER, called, USER))
    assert 'call:{"city": "Ghent"}' in said


def test_tools_are_shown_where_the_template_shows_them() -> None:
    ours = prompts(tiny.tools())
    assert ours.takes_tools
    assert json.dumps(WEATHER) in ours.text(chat(tools=(WEATHER,)))
    assert json.dumps(WEATHER) in ours.text(chat(tools=(WEATHER,), tool_choice="auto"))


def test_no_tools_where_none_may_be_called() -> None:
    for tokenizer in (tiny.tools(), tiny.chatml()):
        ours = prompts(tokenizer)
        assert ours.text(chat(tools=(WEATHER,), tool_choice="none")) == ours.text(chat())


def test_a_variable_reaches_the_template() -> None:
    ours = prompts(tiny.tools())
    assert ours.variables == {"enable_thinking"}
    said = ours.text(chat(template_kwargs={"enable_thinking": False}))
    assert said.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_of_several_templates_the_one_for_tools_is_taken_with_tools() -> None:
    tokenizer = tiny.chatml()
    tokenizer.chat_template = {"default": tiny.CHATML, "tool_use": tiny.TOOLS}
    ours = prompts(tokenizer)
    assert ours.takes_tools
    assert ours.calls == "hermes"
    assert "<tools>" in ours.text(chat(tools=(WEATHER,)))
    assert ours.text(chat()) == prompts(tiny.chatml()).text(chat())


def test_an_answer_that_was_begun_is_gone_on_with() -> None:
    for make in (tiny.chatml, tiny.llama3, tiny.gemma, tiny.mistral, tiny.tools, tiny.thinking):
        ours = prompts(make())
        assert ours.prefills
        assert ours.text(chat(USER, FOX)).endswith("The fox says")


def test_an_empty_answer_is_gone_on_with_too() -> None:
    ours = prompts(tiny.chatml())
    assert ours.text(chat(USER, Message("assistant"))) == ours.text(chat(USER))


def test_a_call_is_not_gone_on_with() -> None:
    called = Message("assistant", tool_calls=(ToolCall("1", "weather", "{}"),))
    said = prompts(tiny.tools()).text(chat(USER, called))
    assert said.endswith("<|im_end|>\n<|im_start|>assistant\n")


# -- what is refused -------------------------------------------------------------------------------


def test_no_template_names_the_flag_and_the_names() -> None:
    with pytest.raises(TemplateError, match="no chat template") as caught:
        prompts(tiny.no_template()).text(chat())
    assert "--chat-template" in caught.value.hint
    assert "chatml" in caught.value.hint


def test_several_templates_without_a_default() -> None:
    tokenizer = tiny.chatml()
    tokenizer.chat_template = {"rag": tiny.CHATML}
    with pytest.raises(TemplateError, match="default: rag"):
        prompts(tokenizer).text(chat())


def test_a_template_without_a_place_for_a_system_message_says_so() -> None:
    with pytest.raises(TemplateError, match="System role not supported") as caught:
        prompts(tiny.gemma()).text(chat(SYSTEM, USER))
    assert "--fold-system" in caught.value.hint


def test_a_system_message_refused_in_other_words() -> None:
    with pytest.raises(TemplateError, match="must alternate") as caught:
        prompts(tiny.mistral()).text(chat(SYSTEM, USER))
    assert "--fold-system" in caught.value.hint


@pytest.mark.parametrize("messages", [(USER, USER), (FOX, USER), (USER, FOX, FOX, USER)])
def test_roles_that_must_take_turns(messages: tuple[Message, ...]) -> None:
    with pytest.raises(TemplateError, match="must alternate") as caught:
        prompts(tiny.mistral()).text(chat(*messages))
    assert "take turns" in caught.value.hint


def test_what_a_template_refuses_for_reasons_of_its_own() -> None:
    template = "{{ raise_exception('Not on a Sunday') }}"
    with pytest.raises(TemplateError, match="Not on a Sunday") as caught:
        prompts(tiny.chatml(), template).text(chat())
    assert "--chat-template" in caught.value.hint


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{% for m in messages %}", "TemplateSyntaxError"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ messages[3].content }}", "UndefinedError"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
    ],
)
def test_a_template_that_fails_is_not_a_crash(template: str, why: str) -> None:
    with pytest.raises(TemplateError, match=why):
        prompts(tiny.chatml(), template).text(chat())


def test_a_template_cannot_reach_out_of_its_sandbox() -> None:
    with pytest.raises(TemplateError, match="SecurityError"):
        prompts(tiny.chatml(), "{{ ''.__class__.__mro__ }}").text(chat())


def test_a_variable_that_the_template_does_not_read() -> None:
    with pytest.raises(InvalidRequest, match="`enable_thoughts`") as caught:
        prompts(tiny.tools()).text(chat(template_kwargs={"enable_thoughts": True}))
    assert caught.value.hint == "it reads enable_thinking"
    with pytest.raises(InvalidRequest) as caught:
        prompts(tiny.chatml()).text(chat(template_kwargs={"bos_token": "x"}))
    assert caught.value.hint == "it reads none"


def test_tools_that_would_not_be_shown() -> None:
    ours = prompts(tiny.chatml())
    assert not ours.takes_tools
    with pytest.raises(UnsupportedField, match="tools") as caught:
        ours.text(chat(tools=(WEATHER,)))
    assert "does not show" in caught.value.hint


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "weather"}}]
)
def test_a_call_that_cannot_be_forced(choice: str | Mapping[str, Any]) -> None:
    with pytest.raises(UnsupportedField, match="tool_choice") as caught:
        prompts(tiny.tools()).text(chat(tools=(WEATHER,), tool_choice=choice))
    assert "forced" in caught.value.hint


def test_images_are_refused() -> None:
    shown = Message("user", (TextPart("See:"), ImagePart("data:image/png;base64,AA==")))
    with pytest.raises(UnsupportedField, match="images"):
        prompts(tiny.chatml()).text(chat(shown))


def test_an_answer_that_the_template_cannot_go_on_with() -> None:
    template = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    ours = prompts(tiny.chatml(), template)
    assert not ours.prefills
    with pytest.raises(TemplateError, match="cannot go on") as caught:
        ours.text(chat(USER, FOX))
    assert "user" in caught.value.hint


# -- ids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "begin"),
    [
        (tiny.llama3, "<|begin_of_text|>"),  # written by the template, and by the tokenizer
        (tiny.gemma, "<bos>"),
        (tiny.mistral, "<s>"),
        (tiny.llama2, "<s>"),  # by the tokenizer alone
    ],
)
def test_a_chat_begins_once(make: Callable[[], PreTrainedTokenizerBase], begin: str) -> None:
    tokenizer = make()
    one = tokenizer.get_vocab()[begin]
    for messages in ((USER,), (USER, FOX), (USER, FOX, Message("user", f"What is {begin}?"))):
        ids = prompts(tokenizer).ids(chat(*messages))
        assert ids[0] == one
        assert ids.count(one) == 1 + sum(begin in message.text for message in messages)


def test_a_beginning_that_is_not_the_first_of_a_template_is_not_added_again() -> None:
    tokenizer = tiny.llama3()
    ids = prompts(tokenizer, "\n" + tiny.LLAMA3).ids(chat())
    assert ids.count(tokenizer.bos_token_id) == 1


def test_where_the_tokenizer_begins_with_nothing_nothing_is_added() -> None:
    tokenizer = tiny.chatml()
    ours = prompts(tokenizer)
    wanted = tokenizer.apply_chat_template(
        [{"role": "user", "content": USER.text}], add_generation_prompt=True, return_dict=False
    )
    assert ours.ids(chat()) == wanted


def test_a_chat_as_transformers_encodes_it_where_the_template_writes_the_beginning() -> None:
    for make in (tiny.llama3, tiny.gemma, tiny.mistral):
        tokenizer = make()
        wanted = tokenizer.apply_chat_template(
            [{"role": "user", "content": USER.text}], add_generation_prompt=True, return_dict=False
        )
        assert prompts(tokenizer).ids(chat()) == wanted


def test_a_beginning_for_templates_that_cannot_be_tried() -> None:
    tokenizer = tiny.llama3()
    template = (
        "{% if messages[0].role != 'system' %}{{ raise_exception('Say who you are') }}{% endif %}"
        "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    ids = prompts(tokenizer, template).ids(chat(SYSTEM, USER))
    assert ids.count(tokenizer.bos_token_id) == 1


def test_a_raw_prompt_as_the_tokenizer_has_it() -> None:
    for make in (tiny.llama3, tiny.spm, tiny.chatml, tiny.no_template):
        tokenizer = make()
        assert prompts(tokenizer).ids(Request(prompt="the fox")) == tokenizer.encode("the fox")


def test_an_encoder_reads_its_end_too() -> None:
    tokenizer = tiny.t5()
    ids = prompts(tokenizer, closes=True).ids(Request(prompt="the fox"))
    assert ids == tokenizer.encode("the fox")


def test_ids_are_taken_as_they_are() -> None:
    ours = prompts(tiny.llama3())
    assert ours.ids(Request(prompt=(5, 6, 0))) == [5, 6, 0]


@pytest.mark.parametrize("token", [-1, 327])
def test_an_id_that_is_no_token(token: int) -> None:
    with pytest.raises(InvalidRequest, match=f"token {token}") as caught:
        prompts(tiny.llama3()).ids(Request(prompt=(5, token)))
    assert caught.value.hint.endswith("0 to 326")


@pytest.mark.parametrize("empty", ["", ()])
def test_nothing_to_go_on_from(empty: str | tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        prompts(tiny.chatml()).ids(Request(prompt=empty))


def test_a_beginning_is_enough_to_go_on_from() -> None:
    tokenizer = tiny.llama3()
    assert prompts(tokenizer).ids(Request(prompt="")) == [tokenizer.bos_token_id]


# -- what the model will write ---------------------------------------------------------------------


def test_the_family_and_the_notation_are_the_templates() -> None:
    assert (prompts(tiny.tools()).family, prompts(tiny.tools()).calls) == ("think", "hermes")
    assert (prompts(tiny.chatml()).family, prompts(tiny.chatml()).calls) == (None, None)
    assert prompts(tiny.no_template()).family is None
    other = prompts(tiny.chatml(), "{{ '<tool_call><function=f><parameter=x>arguments' }}")
    assert (other.family, other.calls) == ("think", None)


def test_a_prompt_that_opens_the_reasoning() -> None:
    ours = prompts(tiny.thinking())
    assert ours.opened(ours.text(chat())) is Channel.REASONING
    closed = prompts(tiny.tools())
    request = chat(template_kwargs={"enable_thinking": False})
    assert closed.opened(closed.text(request), request) is Channel.ANSWER
    assert closed.opened(closed.text(chat())) is Channel.ANSWER


def test_without_a_family_all_is_answer() -> None:
    ours = prompts(tiny.chatml())
    assert ours.opened("<think>\n") is Channel.ANSWER


@pytest.mark.parametrize(
    ("begun", "channel"),
    [
        ("<think>\nLet me see", Channel.REASONING),
        ("<think>\nLet me see\n</think>\n\nThe fox", Channel.ANSWER),
        ("<tool_call>\n{", Channel.TOOL),
        ("The fox <thi", Channel.ANSWER),
        ("The fox", Channel.ANSWER),
        ("The fox  ", Channel.ANSWER),
    ],
)
def test_a_begun_answer_may_be_open_too(begun: str, channel: Channel) -> None:
    ours = prompts(tiny.tools())
    request = chat(Message("user", "What is <think>?"), Message("assistant", begun))
    assert ours.opened(ours.text(request), request) is channel


# -- threads ---------------------------------------------------------------------------------------


def test_many_threads_at_once() -> None:
    tokenizer = tiny.tools()
    ours = Prompts(tokenizer, Vocabulary(tokenizer, marks=marks_of(tiny.TOOLS)), None)
    requests = [chat(Message("user", f"Fox {n}?"), tools=(WEATHER,) * n) for n in range(8)]
    wanted = [prompts(tokenizer).ids(request) for request in requests]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ours.ids, requests * 4)) == wanted * 4
