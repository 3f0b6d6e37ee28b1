"""The whole engine on a tiny model, through the public names: it says what `generate` says."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

import bourn
from bourn.errors import InvalidRequest, PromptTooLong, UnsupportedField
from bourn.types import FinishReason, Message, Progress
from tests.support import tiny_tokenizers

GREEDY: Any = {"temperature": 0, "max_new_tokens": 40}


@cache
def tokenizer() -> Any:
    return tiny_tokenizers.chatml()


def made() -> Any:
    """A model whose answers are long and full of odd characters; it never ends by itself."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer()),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(6 if weights.ndim > 1 else 1)
    return model


@cache
def its_model() -> Any:
    return made()


@cache
def right(question: str, tokens: int = 40) -> str:
    """What `generate` answers, control tokens left out."""
    ids = tokenizer().apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    limits = {"max_new_tokens": tokens, "eos_token_id": tokenizer().eos_token_id}
    out = its_model().generate(**ids, **limits, do_sample=False, pad_token_id=0)
    return str(tokenizer().decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True))


TEXT = "Say it"


@pytest.fixture(scope="module")
def engine() -> Iterator[bourn.Model]:
    right(TEXT)  # before its attention is lent
    with bourn.hf(its_model(), tokenizer(), slots=4, window=900) as engine:
        yield engine


def test_a_stream_says_what_generate_says(engine: bourn.Model) -> None:
    stream = engine.stream(TEXT, **GREEDY)
    texts = list(stream)
    assert "".join(texts) == right(TEXT)
    assert len(texts) > 10
    assert stream.finish_reason is FinishReason.LENGTH
    assert stream.usage.completion_tokens == stream.metrics.tokens == 40


def test_many_threads_stream_from_one_model_each_with_its_own_settings(
    engine: bourn.Model,
) -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        stream = engine.stream(f"{number}: tell", temperature=0, max_new_tokens=3 * number + 1)
        answers[number] = stream.read()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {n: right(f"{n}: tell", 3 * n + 1) for n in range(12)}


def test_a_stop_string_ends_it_and_is_not_shown(engine: bourn.Model) -> None:
    whole = right(TEXT)
    stop = whole[len(whole) // 2 :][:3]
    stream = engine.stream(TEXT, stop=stop, **GREEDY)
    assert stream.read() == whole.partition(stop)[0]
    assert (stream.finish_reason, stream.choices[0].stop) == (FinishReason.STOP, stop)
    unbroken = engine.stream(TEXT, **GREEDY)
    unbroken.read()
    told = stream.usage
    assert told.prompt_tokens == unbroken.usage.prompt_tokens
    assert 0 < told.completion_tokens < unbroken.usage.completion_tokens
    assert not told.estimated


def test_an_end_token_ends_it_also_on_the_last_token_allowed(engine: bourn.Model) -> None:
    whole = engine.stream(TEXT, logprobs=0, temperature=0, max_new_tokens=3)
    whole.read()
    ids = tokenizer().encode(whole.logprobs[2].token, add_special_tokens=False)
    stream = engine.stream(TEXT, temperature=0, max_new_tokens=3, stop_token_ids=ids)
    assert stream.read() == right(TEXT, 2)
    assert stream.finish_reason is FinishReason.STOP


def test_the_same_question_is_not_read_again(engine: bourn.Model) -> None:
    first = engine.stream("The very same", **GREEDY)
    first.read()
    second = engine.stream("The very same", **GREEDY)
    assert second.read() == first.text == right("The very same")
    assert second.usage.cached_tokens == second.usage.prompt_tokens - 1
    fresh = engine.stream("The very same", seed=1, **GREEDY)
    fresh.read()
    assert fresh.usage.cached_tokens == 0


def test_a_seed_is_kept_alone_and_beside_others(engine: bourn.Model) -> None:
    def ask() -> bourn.Stream:
        return engine.stream(TEXT, seed=7, temperature=1.5, max_new_tokens=20)

    alone = ask().read()
    together = [ask(), engine.stream("Another", max_new_tokens=30), ask()]
    texts = [stream.read() for stream in together]
    assert texts[0] == texts[2] == alone
    assert engine.stream(TEXT, seed=8, temperature=1.5, max_new_tokens=20).read() != alone


def test_several_choices_count_together(engine: bourn.Model) -> None:
    stream = engine.stream(TEXT, n=3, temperature=1.5, max_new_tokens=4)
    stream.read()
    assert len({choice.text for choice in stream.choices}) == 3
    assert stream.usage.completion_tokens == 12
    with pytest.raises(InvalidRequest, match="4 slots"):
        engine.stream(TEXT, n=5)


def test_hooks_see_their_own_row(engine: bourn.Model) -> None:
    lengths: dict[str, list[int]] = {"processor": [], "criterion": []}

    def processor(ids: Any, scores: Any) -> Any:
        assert ids.shape[0] == scores.shape[0] == 1
        lengths["processor"].append(ids.shape[1])
        return scores

    def criterion(ids: Any, _: Any) -> bool:
        lengths["criterion"].append(ids.shape[1])
        return len(lengths["criterion"]) == 5

    stream = engine.stream(
        TEXT, logits_processor=[processor], stopping_criteria=[criterion], **GREEDY
    )
    assert stream.read() == right(TEXT, 5)
    assert stream.finish_reason is FinishReason.STOP
    prompt = stream.usage.prompt_tokens
    assert lengths["processor"] == list(range(prompt, prompt + 5))
    assert lengths["criterion"] == list(range(prompt + 1, prompt + 6))


def test_what_a_hook_raises_reaches_its_reader_only(engine: bourn.Model) -> None:
    class OwnError(Exception):
        pass

    def raises(ids: Any, scores: Any) -> Any:
        raise OwnError("on purpose")

    other = engine.stream(TEXT, **GREEDY)
    with pytest.raises(OwnError, match="on purpose"):
        engine.stream(TEXT, logits_processor=[raises]).read()
    assert other.read() == right(TEXT)
    assert engine.stream(TEXT, **GREEDY).read() == right(TEXT)


def test_a_generation_config_is_taken(engine: bourn.Model) -> None:
    from transformers import GenerationConfig

    config = GenerationConfig(max_new_tokens=3)
    stream = engine.stream(TEXT, generation_config=config)
    assert stream.read() == right(TEXT, 3)
    longer = engine.stream(TEXT, generation_config=config, max_new_tokens=5)
    assert longer.read() == right(TEXT, 5)
    drawn = engine.stream(TEXT, generation_config=GenerationConfig(do_sample=True, temperature=9.0))
    drawn.read()
    assert drawn.sampling is not None
    assert drawn.sampling.temperature == 9.0
    with pytest.raises(UnsupportedField, match="num_beams"):
        engine.stream(TEXT, generation_config=GenerationConfig(num_beams=3))


def test_log_probabilities_join_to_the_text(engine: bourn.Model) -> None:
    stream = engine.stream(TEXT, logprobs=2, **GREEDY)
    stream.read()
    joined = b"".join(entry.bytes for entry in stream.logprobs).decode(errors="replace")
    assert joined == right(TEXT)
    assert all(len(entry.top) == 2 for entry in stream.logprobs)
    assert all(entry.logprob == entry.top[0].logprob <= 0 for entry in stream.logprobs)


def test_a_raw_prompt_is_gone_on_with(engine: bourn.Model) -> None:
    stream = engine.stream("Go on", raw=True, max_new_tokens=2)
    stream.read()
    assert stream.usage.prompt_tokens == len(tokenizer().encode("Go on", add_special_tokens=False))


def test_a_prompt_that_leaves_no_room_names_both_numbers(engine: bourn.Model) -> None:
    with pytest.raises(PromptTooLong, match="900") as caught:
        engine.stream("word " * 1000).read()
    assert caught.value.window == 900
    assert caught.value.prompt_tokens is not None
    assert caught.value.prompt_tokens >= 900


def test_a_limit_beyond_the_window_is_clamped_and_the_prompt_kept(engine: bourn.Model) -> None:
    stream = engine.stream("a " * 420, temperature=0, max_new_tokens=900)
    stream.read()
    assert stream.usage.total_tokens == 900
    assert stream.finish_reason is FinishReason.LENGTH


def test_progress_of_a_long_prompt_is_told(engine: bourn.Model) -> None:
    stream = engine.stream("a b " * 300, max_new_tokens=1)
    told = [event for event in stream.events() if isinstance(event, Progress)]
    assert told
    assert all(0 < event.done < event.total for event in told)


def test_what_the_template_cannot_do_is_refused(engine: bourn.Model) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    with pytest.raises(UnsupportedField, match="tools") as caught:
        engine.stream(TEXT, tools=[tool])
    assert "template" in caught.value.hint


def test_leaving_frees_the_slot(engine: bourn.Model) -> None:
    for _ in range(20):
        for _ in engine.stream(TEXT, temperature=0, max_new_tokens=800):
            break
    assert engine.stream(TEXT, **GREEDY).read() == right(TEXT)
    hub = engine._model.hub
    deadline = time.monotonic() + 5
    while hub.live and time.monotonic() < deadline:
        time.sleep(0.01)
    assert hub.live == 0


def test_chat_stream_gives_the_answer_so_far() -> None:
    history = [("Hello", "Hi")]
    asked: Any = {"system": "Be.", **GREEDY}
    answers = list(bourn.chat_stream(its_model(), tokenizer(), TEXT, history, **asked))
    assert all(after.startswith(before) for before, after in pairwise(answers))
    messages = [Message("user", "Hello"), Message("assistant", "Hi"), Message("user", TEXT)]
    with bourn.hf(made(), tokenizer()) as engine:
        assert answers[-1] == engine.stream(messages, **asked).read()
    assert history == [("Hello", "Hi")]


def test_chat_stream_is_left_in_the_middle_and_asked_again() -> None:
    for _ in bourn.chat_stream(its_model(), tokenizer(), TEXT, max_new_tokens=800):
        break
    answers = list(bourn.chat_stream(its_model(), tokenizer(), TEXT, None, **GREEDY))
    assert answers[-1] == right(TEXT)


async def test_tasks_stream_from_one_model() -> None:
    async with bourn.aio.hf(made(), tokenizer(), slots=2) as model:
        streams = [model.stream([Message("user", f"{n}: tell")], **GREEDY) for n in range(5)]
        texts = await asyncio.gather(*(stream.read() for stream in streams))
    assert texts == [right(f"{n}: tell") for n in range(5)]


def test_an_engine_that_was_closed_leaves_nothing_behind() -> None:
    model = made()
    before = model.config._attn_implementation
    engine = bourn.hf(model, tokenizer(), slots=2)
    engine.stream(TEXT, **GREEDY).read()
    assert model.config._attn_implementation != before
    engine.close()
    assert model.config._attn_implementation == before
    alive = weakref.ref(model)
    del model, engine
    deadline = time.monotonic() + 10
    while alive() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert alive() is None
