"""Rows through the model's own `generate`: tiny models of kinds that slots cannot serve."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor

from bourn.engines.hf.generating import Generating
from bourn.engines.hf.sampling.sampler import Sampler
from bourn.engines.hf.sequence import Hooks, Sequence, Wishes
from bourn.errors import EngineError, Interrupted
from bourn.types import DEFAULT_SAMPLING, FinishReason, Usage
from tests.support.paper_model import Heard, Letters

KINDS = ["t5", "bart", "mamba", "bloom"]
SIZE = 120
PROMPT = (5, 6, 7, 8, 9)
GREEDY = replace(DEFAULT_SAMPLING, temperature=0.0, seed=1)
HOT = replace(DEFAULT_SAMPLING, temperature=2.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)


@cache
def model(kind: str) -> Any:
    import transformers as hf

    torch.manual_seed(2)
    made = {
        "t5": lambda: hf.T5ForConditionalGeneration(
            hf.T5Config(
                vocab_size=SIZE,
                d_model=32,
                d_kv=8,
                d_ff=64,
                num_layers=2,
                num_heads=4,
                decoder_start_token_id=0,
            )
        ),
        "bart": lambda: hf.BartForConditionalGeneration(
            hf.BartConfig(
                vocab_size=SIZE,
                max_position_embeddings=64,
                tie_word_embeddings=False,
                d_model=32,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
            )
        ),
        "mamba": lambda: hf.MambaForCausalLM(
            hf.MambaConfig(vocab_size=SIZE, hidden_size=32, num_hidden_layers=2, state_size=4)
        ),
        "bloom": lambda: hf.BloomForCausalLM(
            hf.BloomConfig(vocab_size=SIZE, hidden_size=32, n_layer=2, n_head=4)
        ),
    }[kind]()
    for weights in made.parameters():
        if weights.dim() > 1:
            weights.data.normal_(0, 0.35)  # so that its answers vary
    made.generation_config.eos_token_id = None
    made.generation_config.forced_eos_token_id = None
    return made.eval()


def plainly(kind: str, limit: int, prompt: tuple[int, ...] = PROMPT, **more: Any) -> list[int]:
    """What `generate` answers, ends ignored."""
    ids = torch.tensor([prompt])
    made = model(kind).generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=limit, do_sample=False, **more
    )
    begun = 1 if model(kind).config.is_encoder_decoder else len(prompt)
    return list(made[0, begun:].tolist())


@contextmanager
def generating(kind: str) -> Iterator[Generating]:
    backend = Generating(model(kind), Sampler())
    try:
        yield backend
    finally:
        backend.close()
        assert not any(thread.name == "bourn-generate" for thread in threading.enumerate())


def row(limit: int = 12, prompt: tuple[int, ...] = PROMPT, **more: Any) -> tuple[Sequence, Heard]:
    heard = Heard()
    wishes = Wishes(prompt, more.pop("sampling", GREEDY), limit, **more)
    return Sequence(wishes, Letters(), heard), heard


def drawn(sequence: Sequence) -> list[int]:
    return sequence.ids[len(sequence.wishes.prompt) :]


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def answered(kind: str, *rows: tuple[Sequence, Heard]) -> None:
    with generating(kind) as backend:
        backend.submit(*(sequence for sequence, _ in rows))
        wait(lambda: all(heard.over for _, heard in rows))


@pytest.mark.parametrize("kind", KINDS)
def test_greedily_it_is_what_generate_answers(
    kind: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = plainly(kind, 30)
    assert len(set(expected)) > 3
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        capfd.readouterr()
        sequence, heard = row(30)
        answered(kind, (sequence, heard))
    assert drawn(sequence) == expected
    assert heard.text == Letters().feed(expected)
    assert heard.pieces[-1].finish is FinishReason.LENGTH
    assert heard.pieces[-1].usage == Usage(len(PROMPT), 30)
    assert [record.message for record in caplog.records] == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", KINDS)
def test_an_end_token_ends_it_and_is_not_shown(kind: str) -> None:
    expected = plainly(kind, 12)
    end = expected[6]
    shown = expected[: expected.index(end)]
    sequence, heard = row(12, end_ids=frozenset({end}))
    answered(kind, (sequence, heard))
    assert heard.text == Letters().feed(shown)
    assert drawn(sequence) == [*shown, end]
    assert heard.pieces[-1].finish is FinishReason.STOP


def test_an_end_on_the_last_token_allowed_is_a_stop() -> None:
    expected = plainly("bloom", 12)
    number = expected.index(expected[6]) + 1
    sequence, heard = row(number, end_ids=frozenset({expected[6]}))
    answered("bloom", (sequence, heard))
    assert sequence.generated == number
    assert heard.pieces[-1].finish is FinishReason.STOP


@pytest.mark.parametrize("kind", ["bart", "bloom"])
def test_the_models_own_settings_are_not_asked(kind: str) -> None:
    expected = plainly(kind, 20)
    own = model(kind).generation_config
    before = own.to_dict()
    own.update(
        max_length=7,
        min_length=15,
        num_beams=4,
        do_sample=True,
        temperature=9.0,
        no_repeat_ngram_size=1,
        repetition_penalty=3.0,
        eos_token_id=expected[3],
        forced_eos_token_id=1,
        max_time=0.0,
    )
    changed = own.to_dict()
    try:
        sequence, heard = row(20)
        answered(kind, (sequence, heard))
        assert own.to_dict() == changed
        assert model(kind).generation_config is own
    finally:
        own.update(**before)
    assert drawn(sequence) == expected
    assert heard.error is None


def test_how_a_model_must_begin_and_what_it_may_not_say_is_kept() -> None:
    own = model("bart").generation_config
    own.forced_bos_token_id = 77
    try:
        expected = plainly("bart", 8)
        own.suppress_tokens = [expected[1]]
        expected = plainly("bart", 8)
        sequence, heard = row(8)
        answered("bart", (sequence, heard))
    finally:
        own.forced_bos_token_id = own.suppress_tokens = None
    assert expected[0] == 77
    assert drawn(sequence) == expected


@pytest.mark.parametrize("kind", ["t5", "bloom"])
def test_settings_mean_what_they_mean_to_generate(kind: str) -> None:
    penalised = replace(GREEDY, repetition_penalty=1.7)
    sequence, heard = row(20, sampling=penalised)
    answered(kind, (sequence, heard))
    assert drawn(sequence) == plainly(kind, 20, repetition_penalty=1.7)
    assert drawn(sequence) != plainly(kind, 20)


@pytest.mark.parametrize("kind", ["t5", "mamba"])
def test_seeds(kind: str) -> None:
    """The same one gives the same, another another; torch's own generator is left alone."""
    before = torch.get_rng_state()
    rows = [row(20, sampling=replace(HOT, seed=seed)) for seed in (1, 1, 2)]
    answered(kind, *rows)
    first, again, other = (drawn(sequence) for sequence, _ in rows)
    assert first == again != other
    assert torch.equal(torch.get_rng_state(), before)


def test_limits_biases_and_probabilities() -> None:
    ends = frozenset(plainly("t5", 8))
    rows = [
        row(1),
        row(8, end_ids=ends, min_new_tokens=5),
        row(4, logit_bias={50: 1e4}),
        row(4, logprobs=2),
    ]
    answered("t5", *rows)
    one, least, biased, probable = (drawn(sequence) for sequence, _ in rows)
    assert len(one) == 1
    assert len(least) >= 6
    assert biased == [50] * 4
    for token, piece in zip(probable, rows[3][1].pieces, strict=True):
        (entry,) = piece.logprobs
        assert len(entry.top) == 2
        assert entry.logprob == entry.top[0].logprob <= 0, token


def test_probabilities_are_the_models_own() -> None:
    sequence, heard = row(5, logprobs=0)
    answered("bloom", (sequence, heard))
    with torch.no_grad():
        logits = model("bloom")(torch.tensor([sequence.ids])).logits[0].float()
    own = logits.log_softmax(-1)
    for at, piece in enumerate(heard.pieces):
        expected = float(own[len(PROMPT) + at - 1, drawn(sequence)[at]])
        assert piece.logprobs[0].logprob == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("kind", "begun"), [("t5", (0,)), ("bloom", PROMPT)])
def test_the_users_own_hooks_see_what_generate_shows(kind: str, begun: tuple[int, ...]) -> None:
    seen: list[list[int]] = []

    def processor(input_ids: Tensor, scores: Tensor) -> Tensor:
        seen.append(input_ids[0].tolist())
        scores[:, 60 + len(seen)] = 1e4
        return scores

    def criterion(input_ids: Tensor, scores: Tensor) -> Tensor:
        return torch.tensor([int(input_ids[0, -1]) == 63])

    sequence, heard = row(20, hooks=Hooks((processor,), (criterion,)))
    answered(kind, (sequence, heard))
    assert drawn(sequence) == [61, 62, 63]
    assert seen == [[*begun], [*begun, 61], [*begun, 61, 62]]
    assert heard.pieces[-1].finish is FinishReason.STOP


def test_one_after_the_other_in_their_order() -> None:
    order: list[int] = []

    def noting(number: int) -> Hooks:
        def processor(input_ids: Tensor, scores: Tensor) -> Tensor:
            order.append(number)
            return scores

        return Hooks((processor,))

    answered("bloom", *(row(3, hooks=noting(number)) for number in range(4)))
    assert order == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


class Gate:
    """A processor that holds a row at its third token until it is opened."""

    def __init__(self) -> None:
        self.calls = 0
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 3:
            self.reached.set()
            assert self.opened.wait(20)
        return scores


def test_a_row_that_is_cancelled_is_gone_within_a_token() -> None:
    gate = Gate()
    running, heard = row(10**6, hooks=Hooks((gate,)))
    later, later_heard = row(3)
    with generating("mamba") as backend:
        backend.submit(running, later)
        assert gate.reached.wait(20)
        running.cancel()
        backend.wake()
        gate.opened.set()
        wait(lambda: later_heard.over)
    assert gate.calls == 3
    assert not heard.over
    assert len(heard.pieces) == 2
    assert drawn(later) == plainly("mamba", 3)


def test_a_row_that_is_cancelled_while_it_waits_never_begins() -> None:
    gate = Gate()
    running, heard = row(3, hooks=Hooks((gate,)))
    (waiting, nothing), (last, last_heard) = row(3), row(3)
    with generating("bloom") as backend:
        backend.submit(running, waiting, last)
        assert gate.reached.wait(20)
        waiting.cancel()
        backend.wake()
        assert waiting not in backend._waiting
        gate.opened.set()
        wait(lambda: heard.over and last_heard.over)
    assert nothing.pieces == []
    assert waiting.generated == 0


@pytest.mark.parametrize("at", [0, 2])
def test_an_error_reaches_its_reader_and_the_next_is_served(at: int) -> None:
    error = MemoryError("at the third token")
    calls = 0

    def processor(input_ids: Tensor, scores: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > at:
            raise error
        return scores

    (bad, bad_heard), (good, good_heard) = row(9, hooks=Hooks((processor,))), row(3)
    answered("bart", (bad, bad_heard), (good, good_heard))
    assert bad_heard.error is error
    assert len(bad_heard.pieces) == at
    assert drawn(good) == plainly("bart", 3)


def test_an_error_of_the_model_itself() -> None:
    """A token that it has no embedding for."""
    (bad, bad_heard), (good, good_heard) = row(9, prompt=(SIZE + 1,)), row(3)
    answered("bloom", (bad, bad_heard), (good, good_heard))
    assert isinstance(bad_heard.error, IndexError)
    assert good_heard.error is None


def test_a_generate_that_ends_too_early_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(model("bloom")), "generate", lambda self, **_: None)
    sequence, heard = row(3)
    answered("bloom", (sequence, heard))
    assert isinstance(heard.error, Interrupted)


def test_closing_ends_the_row_that_runs_and_those_that_wait() -> None:
    gate = Gate()
    (running, heard), (waiting, waiting_heard) = row(10**6, hooks=Hooks((gate,))), row(3)
    backend = Generating(model("t5"), Sampler())
    backend.submit(running, waiting)
    assert gate.reached.wait(20)
    closing = threading.Thread(target=backend.close)
    closing.start()
    wait(lambda: backend._closing)
    gate.opened.set()
    closing.join(20)
    backend.close()
    assert running.generated == 3
    assert isinstance(heard.error, EngineError)
    assert isinstance(waiting_heard.error, EngineError)
    with pytest.raises(EngineError, match="closed"):
        backend.submit(row()[0])


def test_its_thread_ends_after_a_rest_and_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bourn.engines.hf.generating._REST", 0.01)
    with generating("bloom") as backend:
        for _ in range(2):
            sequence, heard = row(3)
            backend.submit(sequence)
            wait(partial(getattr, heard, "over"))
            wait(lambda: not any(t.name == "bourn-generate" for t in threading.enumerate()))
            assert drawn(sequence) == plainly("bloom", 3)


def test_memory_is_given_back_however_a_row_ends() -> None:
    """To the last tensor, though its error is kept."""
    errors: list[Exception | None] = []
    with generating("t5") as backend:
        run_out(backend, errors)
        before = tensors()
        for _ in range(3):
            run_out(backend, errors)
        wait(lambda: tensors() <= before)  # what ran last may not have returned yet
    assert [isinstance(error, ValueError) for error in errors] == [True, False] * 4


def run_out(backend: Generating, errors: list[Exception | None]) -> None:
    """One row that fails, one that is cancelled, and one that ends."""
    for fails in (True, False):
        ends = _Ends(fails)
        ends.sequence, heard = row(30, hooks=Hooks((ends,)))
        last, last_heard = row(1)
        backend.submit(ends.sequence, last)
        wait(partial(getattr, last_heard, "over"))
        errors.append(heard.error)


class _Ends:
    """A processor that fails, or cancels its row, at the fifth token."""

    sequence: Sequence

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.calls = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 5:
            if self.fails:
                raise ValueError
            self.sequence.cancel()
        return scores


def tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())
