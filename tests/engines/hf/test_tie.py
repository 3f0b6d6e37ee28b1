"""How a `generate` and a reader learn of each other's end: real `generate`, in real threads."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch

from bourn.engines.hf.streamer import TextIteratorStreamer
from bourn.engines.hf.tie import _on_death
from bourn.errors import Interrupted, StreamClosed
from tests.support.told_model import (
    TEXT,
    Begin,
    Says,
    asked,
    break_out,
    in_a_thread,
    in_an_executor,
    model,
    raising,
    started,
    tokenizer,
)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


# -- failures --------------------------------------------------------------------------------------

everywhere = pytest.mark.parametrize("begin", [in_a_thread, in_an_executor])


@everywhere
@pytest.mark.parametrize("at", [0, 3])
def test_the_reader_gets_the_very_error_after_the_text_before_it(begin: Begin, at: int) -> None:
    error = ZeroDivisionError("at the fourth token")
    streamer = TextIteratorStreamer(tokenizer(), True)
    begin(**asked(streamer, Says(tokenizer().encode("abcdef"), raising(at, error))))
    with pytest.raises(ZeroDivisionError) as raised:
        list(streamer)
    assert raised.value is error
    assert streamer.text == "abc"[:at]


@everywhere
def test_the_reader_gets_an_error_from_before_the_first_token(begin: Begin) -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    begin(**asked(streamer, repetition_penalty=0.0))
    with pytest.raises(ValueError, match="penalty"):
        list(streamer)
    assert streamer.text == ""


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"input_ids": {"input_ids": [1]}}, "shape"),
        ({"inputs": torch.tensor([[1]])}, "inputs"),
        ({"no_such_setting": 1}, "no_such_setting"),
        ({"num_beams": 3}, "beam"),
        ({"num_return_sequences": 2, "do_sample": True}, "2 answers"),
        ({"input_ids": torch.tensor([[1], [2]]), "attention_mask": None}, "2 answers"),
    ],
)
def test_wrong_arguments_are_told_before_any_text(wrong: dict[str, Any], says: str) -> None:
    streamer = TextIteratorStreamer(tokenizer())
    in_a_thread(**{**asked(streamer), **wrong})
    with pytest.raises((ValueError, AttributeError), match=says):
        list(streamer)
    assert streamer.text == ""


def test_the_caller_gets_the_error_too() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    error = RuntimeError("oh")
    future = in_an_executor(**asked(streamer, Says([1], raising(0, error))))
    assert future.exception(10) is error
    with pytest.raises(RuntimeError, match="oh"):
        next(streamer)
    with pytest.raises(StopIteration):
        next(streamer)


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt()])
def test_what_ends_the_other_thread_does_not_end_the_readers(end: BaseException) -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    in_an_executor(**asked(streamer, Says([1], raising(0, end))))
    with pytest.raises(Interrupted, match=type(end).__name__):
        list(streamer)


def test_an_error_on_the_way_to_generate() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)

    def work() -> None:
        model().generate(**asked(streamer), other=tokenizer()("a")["no such key"])

    started(work)
    with pytest.raises(KeyError, match="no such key"):
        list(streamer)


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is done about threads that end by an error and have no reader to tell."""
    heard: list[object] = []
    hook = partial(_on_death, lambda args: heard.append(args.exc_value))
    monkeypatch.setattr(threading, "excepthook", hook)
    return heard


def test_an_error_that_was_read_is_not_reported_too(reported: list[object]) -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    in_a_thread(**asked(streamer, no_such_setting=1)).join()
    with pytest.raises(ValueError, match="no_such_setting"):
        list(streamer)
    del streamer
    gc.collect()
    assert reported == []


def test_an_error_that_nobody_read_is_reported_in_the_end(reported: list[object]) -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    in_a_thread(**asked(streamer, no_such_setting=1)).join()
    assert reported == []
    del streamer
    gc.collect()
    assert "no_such_setting" in str(reported)


def test_a_reader_that_ends_its_thread_by_the_error_is_reported(reported: list[object]) -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    error = ValueError("read")
    in_a_thread(**asked(streamer, Says([1], raising(0, error)))).join()

    def read(streamer: TextIteratorStreamer) -> None:
        list(streamer)

    started(read, streamer=streamer).join()
    assert reported == [error]


def test_other_errors_of_threads_are_reported_at_once(reported: list[object]) -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    error = ValueError("of another kind")

    def work(streamer: TextIteratorStreamer) -> None:
        model().generate(**asked(streamer))
        raise error

    started(work, streamer=streamer).join()
    assert reported == [error]
    assert "".join(streamer) == TEXT


# -- a `generate` that is not transformers' --------------------------------------------------------


def foreign(streamer: TextIteratorStreamer, ids: Iterable[int]) -> None:
    streamer.put(torch.tensor([[5]]))
    for token in ids:
        if token < 0:
            raise ZeroDivisionError
        streamer.put(torch.tensor([token]))
    streamer.end()


def test_a_foreign_generate_streams_and_fails() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)
    started(foreign, streamer=streamer, ids=[65, 66])
    assert "".join(streamer) == tokenizer().decode([65, 66])
    streamer = TextIteratorStreamer(tokenizer(), True)
    started(foreign, streamer=streamer, ids=[65, 66, -1])
    with pytest.raises(ZeroDivisionError):
        list(streamer)
    assert streamer.text == tokenizer().decode([65, 66])


def test_a_foreign_generate_is_ended_by_put() -> None:
    streamer = TextIteratorStreamer(tokenizer(), True)

    def ids() -> Iterator[int]:
        while True:
            yield 65

    pool = ThreadPoolExecutor(1)
    future = pool.submit(foreign, streamer, ids())
    break_out(streamer)
    assert isinstance(future.exception(10), StreamClosed)
    pool.shutdown()
