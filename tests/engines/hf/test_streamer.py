"""The streamer for those who call `generate` themselves: real `generate`, real tokenizers."""

from __future__ import annotations

import asyncio
import copy
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from queue import Empty
from typing import Any

import pytest
import torch
from torch import Tensor

from bourn.engines.hf.streamer import TextIteratorStreamer
from bourn.errors import InvalidRequest, StreamConsumed
from tests.support import tiny_tokenizers
from tests.support.told_model import (
    TEXT,
    Says,
    asked,
    break_out,
    endless,
    in_an_executor,
    model,
    raising,
    started,
    tokenizer,
)

MARKED = "<|im_start|>assistant\nyes<|im_end|>"


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


# -- the text --------------------------------------------------------------------------------------

KINDS = ["chatml", "llama3", "spm", "gemma", "mistral"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"skip_special_tokens": True}], ids=["all", "skipping"])
@pytest.mark.parametrize("skip_prompt", [True, False])
def test_joined_it_is_what_the_tokenizer_decodes(
    kind: str, options: dict[str, Any], skip_prompt: bool
) -> None:
    reads = getattr(tiny_tokenizers, kind)()
    answer = reads.encode(f"{TEXT}\ufffd after")
    prompt = reads.encode("a b")
    streamer = TextIteratorStreamer(reads, skip_prompt, **options)
    thread = started(model().generate, **asked(streamer, Says(answer), prompt))
    assert "".join(streamer) == streamer.text
    thread.join()
    shown = answer if skip_prompt else [*prompt, *answer]
    assert streamer.text == reads.decode(shown, **options)
    assert not streamer.cancelled


def test_each_character_comes_at_once_and_whole() -> None:
    """No spaces to wait for, no empty texts, no halves of characters."""
    text = "abcสวัสดี안녕🔥👩‍👩"
    streamer = TextIteratorStreamer(tokenizer(), skip_prompt=True)
    streamer.put(torch.tensor([[5]]))
    said = b""
    for token in tokenizer().encode(text):
        streamer.put(torch.tensor([token]))
        said += bytes(
            tiny_bytes()[character] for character in tokenizer().convert_ids_to_tokens(token)
        )
        certain = said.decode(errors="ignore")
        if certain != streamer.text:
            next(streamer)
        assert streamer.text == certain
    streamer.end()
    assert list(streamer) == []


@cache
def tiny_bytes() -> dict[str, int]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {character: byte for byte, character in bytes_to_unicode().items()}


def test_control_tokens_are_shown_unless_they_are_to_be_skipped() -> None:
    ids = tokenizer().encode(MARKED)
    shown, hidden = (
        TextIteratorStreamer(tokenizer(), True, skip_special_tokens=s) for s in (False, True)
    )
    for streamer in (shown, hidden):
        model().generate(**asked(streamer, Says(ids)))
    assert "".join(shown) == MARKED
    assert "".join(hidden) == "assistant\nyes"


def test_a_prompt_that_ends_inside_a_character_is_skipped_all_the_same() -> None:
    ids = tokenizer().encode("hello 🌶 there")
    cut = len(tokenizer().encode("hello ")) + 2
    streamer = TextIteratorStreamer(tokenizer(), skip_prompt=True)
    model().generate(**asked(streamer, Says(ids[cut:]), ids[:cut]))
    assert "".join(streamer) == "🌶 there"


def test_a_character_cut_off_by_the_limit_is_one_replacement() -> None:
    ids = tokenizer().encode("ok🌶")[:-1]
    streamer = TextIteratorStreamer(tokenizer(), skip_prompt=True)
    model().generate(**asked(streamer, Says(ids)))
    assert "".join(streamer) == "ok\ufffd" == tokenizer().decode(ids)


def test_a_processor_may_stand_for_its_tokenizer() -> None:
    class Processor:
        tokenizer = tiny_tokenizers.chatml()

        def decode(self, *args: Any, **kwargs: Any) -> str:
            return str(self.tokenizer.decode(*args, **kwargs))

    streamer = TextIteratorStreamer(Processor(), True)
    model().generate(**asked(streamer))
    assert "".join(streamer) == TEXT


def test_clean_up_is_never_done() -> None:
    cleans = tiny_tokenizers.chatml()
    cleans.clean_up_tokenization_spaces = True
    cleans.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    ids = cleans.encode("so , so .")
    streamer = TextIteratorStreamer(cleans, True)
    model().generate(**asked(streamer, Says(ids)))
    assert "".join(streamer) == "so , so ."
    with pytest.raises(InvalidRequest, match="clean_up"):
        TextIteratorStreamer(cleans, clean_up_tokenization_spaces=True)


def test_what_it_generates_is_what_is_generated_without_it() -> None:
    ids = torch.tensor([[5, 6, 7]])
    alone = model().generate(ids, max_new_tokens=20, do_sample=False, pad_token_id=0)
    streamer = TextIteratorStreamer(tokenizer(), True)
    streamed = model().generate(
        ids, max_new_tokens=20, do_sample=False, pad_token_id=0, streamer=streamer
    )
    assert streamed.tolist() == alone.tolist()
    assert "".join(streamer) == tokenizer().decode(alone[0, 3:])


# -- leaving ---------------------------------------------------------------------------------------


def close_it(streamer: TextIteratorStreamer) -> None:
    with streamer:
        next(streamer)


def cancel_it(streamer: TextIteratorStreamer) -> None:
    next(streamer)
    streamer.cancel()
    streamer.cancel()


def drop_it_unread(streamer: TextIteratorStreamer) -> None:
    iter(streamer)


leaving = pytest.mark.parametrize("leave", [break_out, close_it, cancel_it, drop_it_unread])


@leaving
def test_generate_ends_when_its_reader_leaves(
    leave: Callable[[TextIteratorStreamer], None],
) -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    says, kwargs = endless(streamer)
    future = in_an_executor(**kwargs)
    leave(streamer)
    left = says.steps
    ids = future.result(10)
    assert ids.shape[1] == 3 + says.steps
    assert says.steps - left < 50  # some may be made until this thread is looked at again
    assert streamer.cancelled
    assert len(streamer.text) <= 1


@leaving
def test_nothing_is_printed_and_no_error_comes(
    leave: Callable[[TextIteratorStreamer], None], capfd: pytest.CaptureFixture[str]
) -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    thread = started(model().generate, **endless(streamer)[1])
    leave(streamer)
    thread.join(10)
    assert not thread.is_alive()
    assert capfd.readouterr().err == ""


def test_it_ends_at_the_very_next_token() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)

    def before(step: int) -> None:
        if step == 4:
            streamer.cancel()

    says = Says([65], before)
    assert model().generate(**asked(streamer, says, max_new_tokens=99)).shape == (1, 3 + 5)
    assert len(list(streamer)) == 4


def test_cancelling_ends_a_reader_that_waits() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    heard: list[list[str]] = []
    reader = started(lambda: heard.append(list(streamer)))
    streamer.cancel()
    reader.join(10)
    assert heard == [[]]
    assert streamer.cancelled


def test_the_users_own_criteria_are_still_asked() -> None:
    def third(input_ids: Tensor, scores: Tensor) -> Tensor:
        return torch.tensor([input_ids.shape[1] == 3 + 3])

    streamer = TextIteratorStreamer(tokenizer(), True)
    model().generate(**asked(streamer, stopping_criteria=[third]))
    assert "".join(streamer) == tokenizer().decode(tokenizer().encode(TEXT)[:3])


def test_the_end_is_no_cancelling() -> None:
    with TextIteratorStreamer(tokenizer(), True) as streamer:
        model().generate(**asked(streamer))
        assert "".join(streamer) == TEXT
    streamer.cancel()
    assert not streamer.cancelled


def test_a_token_that_comes_too_late() -> None:
    go_on = threading.Event()
    streamer = TextIteratorStreamer(tokenizer(), True, timeout=0.05)
    slow = Says([65], lambda step: step < 2 or go_on.wait(10))
    future = in_an_executor(**asked(streamer, slow, max_new_tokens=99))
    with pytest.raises(Empty, match=r"0\.05 seconds"):
        list(streamer)
    go_on.set()
    assert future.result(10).shape[1] < 3 + 99
    assert streamer.cancelled


def leave_early() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    thread = started(model().generate, **endless(streamer)[1])
    break_out(streamer)
    thread.join()


def fail() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    in_an_executor(**asked(streamer, Says([65] * 9, raising(3, ValueError("no")))))
    with pytest.raises(ValueError, match="no"):
        list(streamer)


@pytest.mark.parametrize("run", [leave_early, fail])
def test_memory_is_given_back(run: Callable[[], None]) -> None:
    run()
    gc.collect()
    before = tensors()
    for _ in range(3):
        run()
    gc.collect()
    assert tensors() <= before


def tensors() -> int:
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


# -- one answer, one reader ------------------------------------------------------------------------


def test_it_is_read_once() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    model().generate(**asked(streamer))
    assert next(streamer) == TEXT[0]
    assert "".join(streamer) == TEXT[1:]
    with pytest.raises(StreamConsumed, match="read already"):
        iter(streamer)
    with pytest.raises(StreamConsumed):
        next(streamer)
    assert streamer.text == TEXT


def test_it_serves_once() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    model().generate(**asked(streamer))
    with pytest.raises(StreamConsumed, match="served already"):
        model().generate(**asked(streamer))
    assert "".join(streamer) == TEXT


def test_copies_are_the_streamer_itself() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    settings = copy.deepcopy({"streamer": streamer, "max_new_tokens": 3})
    assert settings["streamer"] is streamer is copy.copy(streamer)
    model().generate(**{**asked(streamer), **settings})
    assert "".join(streamer) == tokenizer().decode(tokenizer().encode(TEXT)[:3])


def test_it_goes_through_a_pipeline() -> None:
    from transformers import pipeline

    streamer = TextIteratorStreamer(tokenizer(), True)
    says = Says(tokenizer().encode(TEXT))
    asks = pipeline("text-generation", model=model(), tokenizer=tokenizer(), device="cpu")
    started(
        asks,
        text_inputs="hello",
        streamer=streamer,
        logits_processor=[says],
        max_new_tokens=len(says.ids),
    )
    assert "".join(streamer) == TEXT


def test_other_streamers_and_none_are_served_as_ever() -> None:
    from transformers import TextIteratorStreamer as Theirs

    theirs = Theirs(tokenizer(), skip_prompt=True)
    TextIteratorStreamer(tokenizer())
    kwargs = asked(TextIteratorStreamer(tokenizer()))
    model().generate(**{**kwargs, "streamer": theirs})
    assert "".join(theirs) == TEXT
    says = Says(tokenizer().encode(TEXT))
    ids = model().generate(**{**kwargs, "streamer": None, "logits_processor": [says]})
    assert tokenizer().decode(ids[0, 3:]) == TEXT


def test_arguments_by_position() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    ids = torch.tensor([[5, 6, 7]])
    model().generate(
        ids, None, [Says([65, 66])], None, None, None, None, streamer, max_new_tokens=2
    )
    assert "".join(streamer) == tokenizer().decode([65, 66])


# -- asynchronously --------------------------------------------------------------------------------


async def test_it_can_be_read_in_an_event_loop() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    task = asyncio.create_task(asyncio.to_thread(model().generate, **asked(streamer)))
    assert "".join([text async for text in streamer]) == TEXT == streamer.text
    await task
    with pytest.raises(StreamConsumed):
        aiter(streamer)


@pytest.mark.parametrize("at", [0, 3])
async def test_the_loop_gets_the_very_error(at: int) -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    error = ZeroDivisionError()
    says = Says(tokenizer().encode("abcdef"), raising(at, error))
    task = asyncio.create_task(asyncio.to_thread(model().generate, **asked(streamer, says)))
    with pytest.raises(ZeroDivisionError) as raised:
        [text async for text in streamer]
    assert raised.value is error
    assert streamer.text == "abc"[:at]
    with pytest.raises(ZeroDivisionError):
        await task


async def test_leaving_and_cancelling_in_an_event_loop() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    task = asyncio.create_task(asyncio.to_thread(model().generate, **endless(streamer)[1]))
    async for _ in streamer:
        break
    await asyncio.wait_for(task, 10)
    assert streamer.cancelled

    streamer = TextIteratorStreamer(tokenizer(), True)
    texts = aiter(streamer)
    reader = asyncio.create_task(anext(texts))
    await asyncio.sleep(0.01)
    reader.cancel()
    await asyncio.wait([reader])
    assert streamer.cancelled


async def test_a_token_that_comes_too_late_in_an_event_loop() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True, timeout=0.05)
    with pytest.raises(TimeoutError):
        [text async for text in streamer]
    assert streamer.cancelled


def test_a_loop_that_is_gone_does_no_harm() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)

    async def read_one() -> AsyncIterator[str]:
        texts = aiter(streamer)
        streamer.put(torch.tensor([[5]]))
        streamer.put(torch.tensor([65]))
        await anext(texts)
        return texts

    loop = asyncio.new_event_loop()
    texts = loop.run_until_complete(read_one())
    loop.close()
    streamer.put(torch.tensor([66]))
    streamer.end()
    assert texts is not None
    assert streamer.text == tokenizer().decode([65])
