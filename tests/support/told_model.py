"""A tiny model that says what it is told to, and `generate` begun in other threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tests.support import tiny_tokenizers

if TYPE_CHECKING:
    from bourn.engines.hf.streamer import TextIteratorStreamer

TEXT = "A  b. Next\n\nสวัสดีครับ 안녕 🔥👩‍👩‍👧‍👦 “don't” a\ttab."


@cache
def tokenizer() -> Any:
    return tiny_tokenizers.chatml()


@cache
def model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


class Says:
    """Makes the model say these ids, over and over. before: called with each step's number."""

    def __init__(self, ids: Iterable[int], before: Callable[[int], object] = bool) -> None:
        self.ids = list(ids)
        self.before = before
        self.steps = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.before(self.steps)
        scores[:] = -torch.inf
        scores[:, self.ids[self.steps % len(self.ids)]] = 0
        self.steps += 1
        return scores


def asked(
    streamer: TextIteratorStreamer,
    says: Says | None = None,
    prompt: Iterable[int] = (5, 6, 7),
    **more: Any,
) -> dict[str, Any]:
    """What `generate` is called with."""
    ids = torch.tensor([list(prompt)])
    says = says or Says(tokenizer().encode(TEXT))
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "logits_processor": [says],
        "max_new_tokens": len(says.ids),
        "do_sample": False,
        "streamer": streamer,
        **more,
    }


def started(target: Callable[..., object], **kwargs: Any) -> threading.Thread:
    thread = threading.Thread(target=target, kwargs=kwargs)
    thread.start()
    return thread


def raising(at: int, error: BaseException) -> Callable[[int], None]:
    def before(step: int) -> None:
        if step == at:
            raise error

    return before


Begin = Callable[..., object]
"""Starts `generate`, elsewhere."""


def in_a_thread(**kwargs: Any) -> threading.Thread:
    return started(model().generate, **kwargs)


def in_an_executor(**kwargs: Any) -> Future[Any]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(model().generate, **kwargs)
    pool.shutdown(wait=False)
    return future


def endless(streamer: TextIteratorStreamer) -> tuple[Says, dict[str, Any]]:
    says = Says(tokenizer().encode("abc"))
    return says, asked(streamer, says, max_new_tokens=10**6)


def break_out(streamer: TextIteratorStreamer) -> None:
    for _ in streamer:
        break
