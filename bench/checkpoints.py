"""A checkpoint in bourn against what people use today, in turn.

`python -m bench.checkpoints [PART]...`: the bundled model as a Hugging Face folder in bfloat16,
greedy, ends ignored, so that all make the same number of tokens.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TextIteratorStreamer

import bourn
from bench.pairs import ratio, row
from bench.transformers_serve import serving, streamed
from bourn.types import Delta
from tests.support.real_checkpoint import real_checkpoint

STREAMS = 8
TOKENS = 64
PAIRS = 10
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}


def questions(number: int, count: int = STREAMS) -> list[str]:
    return [f"{number}.{n}: tell me a story of {n + 3} foxes and a hound." for n in range(count)]


class Today:
    """transformers as its own documentation shows it."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._config = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False}

    def _ids(self, questions: list[str]) -> Any:
        texts = [
            self._tokenizer.apply_chat_template(
                [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
            )
            for question in questions
        ]
        return self._tokenizer(
            texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False
        )

    def batch(self, questions: list[str]) -> float:
        """Tokens a second of one static batch."""
        began = perf_counter()
        self._model.generate(**self._ids(questions), **self._config)
        return len(questions) * TOKENS / (perf_counter() - began)

    def _one(self, question: str) -> None:
        streamer = TextIteratorStreamer(self._tokenizer, skip_prompt=True)
        options = {**self._ids([question]), **self._config, "streamer": streamer}
        thread = threading.Thread(target=self._model.generate, kwargs=options)
        thread.start()
        for _ in streamer:
            pass
        thread.join()

    def threads(self, questions: list[str]) -> float:
        """Tokens a second of a thread, a streamer and a `generate` for each question."""
        began = perf_counter()
        readers = [threading.Thread(target=self._one, args=(each,)) for each in questions]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        return len(questions) * TOKENS / (perf_counter() - began)


async def together(model: bourn.aio.Model, questions: list[str], lengths: list[int]) -> float:
    """Tokens a second of many streams; what does not fit the slots joins as others leave."""
    began = perf_counter()
    streams = [
        model.stream(question, max_new_tokens=length, **GREEDY)
        for question, length in zip(questions, lengths, strict=True)
    ]
    await asyncio.gather(*(stream.read() for stream in streams))
    return sum(lengths) / (perf_counter() - began)


def joining(number: int) -> tuple[list[str], list[int]]:
    """Twice as many questions as slots, of all lengths, TOKENS on average."""
    lengths = [TOKENS + (n * 5 % 16 - 8) * TOKENS // 16 + TOKENS // 32 for n in range(2 * STREAMS)]
    return questions(number, 2 * STREAMS), lengths


Measured = tuple[list[float], list[float]]


async def in_turn(
    ours: Callable[[int], Any], theirs: Callable[[int], Any], pairs: int = PAIRS
) -> Measured:
    """Ours in the event loop, theirs in a thread; once before, to warm up."""
    measured: Measured = ([], [])
    for number in range(pairs + 1):
        one, other = await ours(number), await asyncio.to_thread(theirs, number)
        if number:
            measured[0].append(one)
            measured[1].append(other)
    return measured


def tell(name: str, other: str, measured: Measured, unit: str = "tokens/s") -> None:
    print(row(f"bourn, {name}", measured[0], unit))
    print(row(other, measured[1], unit))
    print(f"ratio: {ratio(*measured)}\n", flush=True)


async def batches(model: bourn.aio.Model, today: Today) -> None:
    tell(
        f"{2 * STREAMS} streams joining and leaving {STREAMS} slots",
        f"`generate`, one static batch of {STREAMS}",
        await in_turn(lambda n: together(model, *joining(n)), lambda n: today.batch(questions(n))),
    )


async def threads(model: bourn.aio.Model, today: Today) -> None:
    tell(
        f"{STREAMS} streams",
        f"{STREAMS} threads of `generate` and `TextIteratorStreamer`",
        await in_turn(
            lambda n: together(model, questions(n), [TOKENS] * STREAMS),
            lambda n: today.threads(questions(n)),
        ),
    )


async def one(model: bourn.aio.Model, today: Today) -> None:
    tell(
        "one stream",
        "`generate` and `TextIteratorStreamer`",
        await in_turn(
            lambda n: together(model, questions(n, 1), [TOKENS]),
            lambda n: today.threads(questions(n, 1)),
            2 * PAIRS,
        ),
    )


async def own(_: bourn.aio.Model, today: Today) -> None:
    """One stream of a model that the user has loaded: nothing of it is packed."""
    async with bourn.aio.hf(*loaded(), slots=STREAMS) as model:
        await one(model, today)


async def compiled(_: bourn.aio.Model, today: Today) -> None:
    began = perf_counter()
    async with bourn.aio.load(str(real_checkpoint()), slots=1, compile=True) as model:
        print(f"compiled after {perf_counter() - began:.0f} s")
        await one(model, today)


async def serve(model: bourn.aio.Model, _: Today) -> None:
    with serving(real_checkpoint()) as url:
        tell(
            f"{STREAMS} streams",
            "`transformers serve --continuous-batching`",
            await in_turn(
                lambda n: together(model, questions(n), [TOKENS] * STREAMS),
                lambda n: streamed(url, str(real_checkpoint()), questions(n), TOKENS),
            ),
        )


async def turns(model: bourn.aio.Model, _: Today) -> None:
    """The first token of turn 12 of a chat, and of turn 2, with the same new text."""
    late: list[float] = []
    early: list[float] = []
    for number in range(PAIRS):
        chat = bourn.Chat(system=f"{number}: be brief.")
        for turn in range(1, 13):
            chat = chat.ask("What is the capital of France, and why?")
            stream = model.stream(chat.messages, max_new_tokens=24, **GREEDY)
            chat = chat.answered(await stream.read())
            if turn in (2, 12):
                assert stream.metrics.ttft is not None
                (early if turn == 2 else late).append(stream.metrics.ttft)
    tell("first token of turn 12", "bourn, first token of turn 2", (late, early), "s")


async def gaps(model: bourn.aio.Model, asked: list[Any]) -> list[float]:
    """Seconds between the tokens of these streams, each the mean of its stream."""

    async def one(question: Any) -> float:
        events = model.stream(question, max_new_tokens=TOKENS, **GREEDY).events()
        times = [perf_counter() async for event in events if isinstance(event, Delta)]
        return statistics.fmean(after - before for before, after in pairwise(times))

    return list(await asyncio.gather(*(one(question) for question in asked)))


async def beside(model: bourn.aio.Model, _: Today) -> None:
    """Short streams beside one of 6,000 tokens, that has been read already, and alone."""
    long = "the fox and the hound " * 1200
    length = await model.count(long)
    with_long, alone = [], []
    for number in range(PAIRS + 1):
        short = questions(number, STREAMS - 1)
        stream = model.stream(long, max_new_tokens=1000, **GREEDY)
        async for _text in stream:  # until its first text
            with_long.append(statistics.median(await gaps(model, short)))
            break
        alone.append(statistics.median((await gaps(model, [*short, "And you?"]))[: len(short)]))
    name = f"gaps of {STREAMS - 1} streams beside one of {length} tokens"
    tell(name, f"{STREAMS} short ones", (with_long[1:], alone[1:]), "s")


PARTS = {
    "batches": batches,
    "threads": threads,
    "one": one,
    "own": own,
    "compiled": compiled,
    "serve": serve,
    "turns": turns,
    "beside": beside,
}


def loaded() -> tuple[Any, Any]:
    folder = real_checkpoint()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


async def measure(names: list[str]) -> None:
    today = Today(*loaded())
    folder = str(real_checkpoint())
    async with bourn.aio.load(folder, slots=STREAMS, window=8192, dtype="bfloat16") as model:
        for name in names:
            print(f"-- {name}")
            await PARTS[name](model, today)


def main() -> None:
    asyncio.run(measure(sys.argv[1:] or list(PARTS)))


if __name__ == "__main__":
    main()
