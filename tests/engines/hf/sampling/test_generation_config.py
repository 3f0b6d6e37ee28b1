"""What a `GenerationConfig` means here, beside what it means to `generate`."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from transformers import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TypicalLogitsWarper,
    WatermarkingConfig,
)

from bourn.asking import Options
from bourn.engines.hf.sampling.generation_config import defaults_of, options_of, own_processors
from bourn.engines.hf.sampling.sampler import Sampler
from bourn.engines.hf.sequence import Drawn, Hooks
from bourn.errors import InvalidRequest, UnsupportedField
from bourn.types import Sampling
from tests.support.rows import row


def options(**fields: Any) -> dict[str, Any]:
    return options_of(GenerationConfig(**fields))


# -- what it says ----------------------------------------------------------------------------------


def test_a_config_that_says_nothing_means_greedy() -> None:
    assert options() == {"temperature": 0.0}
    assert options(do_sample=False) == {"temperature": 0.0}


def test_what_is_left_open_is_left_to_the_layers_below() -> None:
    assert options(do_sample=True) == {}
    assert options(do_sample=True, temperature=0.3) == {"temperature": 0.3}


def test_what_is_said_is_said_even_where_generate_would_take_it_anyway() -> None:
    said = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    assert options(do_sample=True, **said) == said


def test_each_option_by_its_name_here() -> None:
    assert options(
        do_sample=True,
        top_k=20,
        max_new_tokens=30,
        min_new_tokens=3,
        stop_strings=["END", "\n\n"],
        num_return_sequences=2,
        eos_token_id=[2, 7],
    ) == {
        "top_k": 20,
        "max_new_tokens": 30,
        "min_new_tokens": 3,
        "stop": ("END", "\n\n"),
        "n": 2,
        "stop_token_ids": (2, 7),
    }
    assert options(stop_strings="END", eos_token_id=2) == {
        "temperature": 0.0,
        "stop": ("END",),
        "stop_token_ids": (2,),
    }


def test_every_option_is_one_of_ours() -> None:
    given = options(
        do_sample=True,
        temperature=0.5,
        top_k=5,
        top_p=0.5,
        min_p=0.1,
        repetition_penalty=1.2,
        max_new_tokens=9,
        min_new_tokens=1,
        stop_strings="x",
        num_return_sequences=2,
        eos_token_id=1,
        suppress_tokens=[4],
    )
    assert given.keys() - {"logits_processor"} <= Options.__annotations__.keys()


def test_do_sample_is_the_models_own_where_the_user_says_nothing_of_it() -> None:
    own = GenerationConfig(do_sample=True, temperature=0.6)
    assert options_of(GenerationConfig(max_new_tokens=5), own) == {"max_new_tokens": 5}
    assert options_of(GenerationConfig(do_sample=False), own) == {"temperature": 0.0}
    assert options_of(GenerationConfig(), GenerationConfig()) == {"temperature": 0.0}


def test_filters_without_do_sample_do_nothing_and_that_is_said() -> None:
    with pytest.warns(UserWarning, match=r"^top_p, min_p, typical_p .* do_sample is not True"):
        given = options(top_p=0.9, min_p=0.1, typical_p=0.5, top_k=50, temperature=1.0)
    assert given == {"temperature": 0.0}


def test_max_length_is_no_limit_and_that_is_said() -> None:
    with pytest.warns(UserWarning, match=r"max_length=30 .* set max_new_tokens"):
        assert options(max_length=30) == {"temperature": 0.0}
    with pytest.warns(UserWarning, match=r"max_length=30 .* max_new_tokens=200 is the limit"):
        assert options(max_length=30, max_new_tokens=200)["max_new_tokens"] == 200


# -- what it cannot say ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("num_beams", 3, "streamed"),
        ("num_beam_groups", 2, "streamed"),
        ("constraints", ["x"], "streamed"),
        ("force_words_ids", [[1]], "streamed"),
        ("penalty_alpha", 0.6, "contrastive"),
        ("dola_layers", "low", "layer"),
        ("guidance_scale", 1.5, "second pass"),
        ("watermarking_config", WatermarkingConfig(), "construct_processor"),
        ("prompt_lookup_num_tokens", 3, "the same"),
        ("assistant_early_exit", 4, "the same"),
        ("use_mtp", True, "the same"),
        ("max_time", 2.0, "MaxTimeCriteria"),
        ("min_length", 20, "min_new_tokens"),
        ("top_h", 0.4, "top_p"),
        ("token_healing", True, "prompt"),
        ("encoder_repetition_penalty", 1.2, "repetition_penalty"),
        ("encoder_no_repeat_ngram_size", 2, "no_repeat_ngram_size"),
        ("output_scores", True, "logprobs"),
        ("output_logits", True, "logprobs"),
        ("output_attentions", True, "model"),
        ("output_hidden_states", True, "model"),
        ("cache_implementation", "quantized", "quantized"),
        ("decoder_start_token_id", 3, "leave"),
        ("eos_token_id", -1, "ignore_eos"),
        ("eos_token_id", [2, -1], "ignore_eos"),
        ("repetition_penality", 1.2, "`repetition_penalty`"),
        ("something_new", 1, "leave"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(field: str, value: Any, hint: str) -> None:
    with pytest.raises(UnsupportedField, match=f"`{field}`") as caught:
        options(**{field: value})
    assert caught.value.field == field
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "fields",
    [
        {"pad_token_id": 0, "bos_token_id": 1},
        {"use_cache": False},
        {"use_cache": True, "cache_implementation": "static", "max_cache_len": 99},
        {"return_dict_in_generate": True},
        {"renormalize_logits": True},
        {"num_beams": 1, "early_stopping": True, "length_penalty": 2.0},
        {"num_assistant_tokens": 5, "assistant_confidence_threshold": 0.1},
        {"disable_compile": True},
        {"guidance_scale": 1, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0},
        {"no_repeat_ngram_size": 0, "min_length": 0, "suppress_tokens": [], "output_scores": False},
    ],
)
def test_what_changes_nothing_for_a_stream_is_accepted(fields: dict[str, Any]) -> None:
    assert options(**fields) == {"temperature": 0.0}


def test_a_copy_of_the_models_own_config_can_be_changed_and_given() -> None:
    own = GenerationConfig(
        do_sample=True, temperature=0.7, chat_format="chatml", decoder_start_token_id=3
    )
    mine = copy.deepcopy(own)
    mine.temperature = 0.2
    assert options_of(mine, own) == {"temperature": 0.2}
    mine.chat_format = "other"
    with pytest.raises(UnsupportedField, match="chat_format"):
        options_of(mine, own)


def test_what_a_copy_wishes_is_a_wish_all_the_same() -> None:
    own = GenerationConfig(num_beams=4)
    with pytest.raises(UnsupportedField, match="num_beams"):
        options_of(copy.deepcopy(own), own)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("no_repeat_ngram_size", -2),
        ("bad_words_ids", "word"),
        ("sequence_bias", {(1,): "much"}),
        ("exponential_decay_length_penalty", 3),
        ("suppress_tokens", 5),
        ("begin_suppress_tokens", 5),
    ],
)
def test_a_wrong_value_is_named_before_anything_starts(field: str, value: Any) -> None:
    config = GenerationConfig()
    setattr(config, field, value)  # by its constructor some are found, with other words
    with pytest.raises(InvalidRequest, match=f"`{field}`"):
        options_of(config)


# -- processors, beside `generate` -----------------------------------------------------------------

END = 2
PROMPT = [5, 9, 11, 9]


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.4,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


def theirs(model: LlamaForCausalLM, **fields: Any) -> list[int]:
    config = GenerationConfig(max_new_tokens=12, pad_token_id=0, **fields)
    given: list[list[int]] = model.generate(
        torch.tensor([PROMPT]),
        attention_mask=torch.ones(1, len(PROMPT), dtype=torch.long),
        generation_config=config,
    ).tolist()
    return given[0][len(PROMPT) :]


@torch.no_grad()
def ours(model: LlamaForCausalLM, **fields: Any) -> list[int]:
    given = options(max_new_tokens=12, **fields)
    asked = row(
        PROMPT,
        temperature=given["temperature"],
        repetition_penalty=given.get("repetition_penalty"),
        max_new_tokens=given["max_new_tokens"],
        min_new_tokens=given.get("min_new_tokens", 0),
        end_ids=frozenset(given.get("stop_token_ids", ())),
        hooks=Hooks(given.get("logits_processor", ())),
    )
    sampler = Sampler()
    while not asked.ended:
        (outcome,) = sampler.draw([asked], model(torch.tensor([asked.ids])).logits[:, -1])
        assert isinstance(outcome, Drawn), outcome
        asked.record(outcome)
    return asked.ids[len(PROMPT) :]


@pytest.mark.parametrize(
    "fields",
    [
        lambda plain: {"repetition_penalty": 1.5},
        lambda plain: {"suppress_tokens": plain[:2]},
        lambda plain: {"begin_suppress_tokens": plain[:1]},
        lambda plain: {"bad_words_ids": [plain[:1], plain[1:3]]},
        lambda plain: {"bad_words_ids": [plain[:1]], "eos_token_id": plain[5]},
        lambda plain: {"sequence_bias": {(plain[0],): -9.0, (PROMPT[-1], 7): 30.0}},
        lambda plain: {"sequence_bias": {(plain[0],): -2.0}, "repetition_penalty": 1.8},
        lambda plain: {"no_repeat_ngram_size": 1},
        lambda plain: {"forced_eos_token_id": END, "eos_token_id": END},
        lambda plain: {
            "exponential_decay_length_penalty": (3, 2.5),
            "eos_token_id": [END, 3],
        },
        lambda plain: {"eos_token_id": plain[3]},
        lambda plain: {"eos_token_id": plain[3], "min_new_tokens": 8},
    ],
)
def test_each_field_does_what_it_does_in_generate(
    model: LlamaForCausalLM, fields: Callable[[Sequence[int]], dict[str, Any]]
) -> None:
    plain = theirs(model)
    said = fields(plain)
    expected = theirs(model, **said)
    assert expected != plain
    assert ours(model, **said) == expected


@pytest.mark.parametrize(
    "fields",
    [{}, {"forced_bos_token_id": 3}, {"remove_invalid_values": True}, {"renormalize_logits": True}],
)
def test_and_where_it_does_nothing_here_it_did_nothing_there(
    model: LlamaForCausalLM, fields: dict[str, Any]
) -> None:
    assert ours(model, **fields) == theirs(model, **fields) == theirs(model)


def test_invalid_scores_are_mended_where_that_is_asked() -> None:
    (mend,) = options(remove_invalid_values=True)["logits_processor"]
    asked = row(temperature=0.0, hooks=Hooks((mend,)))
    (outcome,) = Sampler().draw([asked], torch.tensor([[-3.0, math.nan, -1.0]]))
    assert outcome == Drawn(1)


@pytest.mark.parametrize(
    ("fields", "warper"),
    [
        ({"typical_p": 0.4}, TypicalLogitsWarper(0.4)),
        ({"epsilon_cutoff": 0.09}, EpsilonLogitsWarper(0.09)),
        ({"eta_cutoff": 0.2}, EtaLogitsWarper(0.2)),
    ],
)
def test_warpers_come_after_temperature_and_filters(
    fields: dict[str, Any], warper: LogitsProcessor
) -> None:
    given = options(do_sample=True, temperature=0.5, top_k=5, **fields)
    logits = torch.tensor([[2.0, 1.9, 1.7, 1.3, 1.1, 1.0, -1.0]])
    expected = logits
    for step in (TemperatureLogitsWarper(0.5), TopKLogitsWarper(5), warper):
        expected = step(torch.tensor([[0]]), expected)
    probabilities = expected[0].softmax(0)
    assert 1 < (probabilities > 0).sum() < 5
    asked = [
        row(temperature=0.5, top_k=5, seed=seed, hooks=Hooks(given["logits_processor"]))
        for seed in range(500)
    ]
    outcomes = Sampler().draw(asked, logits.expand(500, -1))
    drawn = [outcome.token for outcome in outcomes if isinstance(outcome, Drawn)]
    shares = torch.bincount(torch.tensor(drawn), minlength=7) / 500
    torch.testing.assert_close(shares, probabilities, rtol=0, atol=0.06)
    assert ((shares > 0) == (probabilities > 0)).all()


# -- the model's own -------------------------------------------------------------------------------


def test_a_models_own_config_says_how_to_draw() -> None:
    config = GenerationConfig(
        do_sample=True, temperature=0.6, top_k=20, top_p=0.95, min_p=0.1, repetition_penalty=1.05
    )
    assert defaults_of(config) == Sampling(
        temperature=0.6, top_k=20, top_p=0.95, min_p=0.1, repetition_penalty=1.05
    )


@pytest.mark.parametrize("config", [None, GenerationConfig(), GenerationConfig(do_sample=False)])
def test_one_that_says_nothing_leaves_all_open(config: GenerationConfig | None) -> None:
    assert defaults_of(config) == Sampling()


def test_a_temperature_counts_though_do_sample_was_forgotten() -> None:
    assert defaults_of(GenerationConfig(temperature=0.7, num_beams=4)) == Sampling(temperature=0.7)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("temperature", "0.7"),
        ("top_p", 1.5),
        ("min_p", [0.1]),
        ("repetition_penalty", 0.0),
    ],
)
def test_a_value_that_cannot_be_keeps_no_model_from_loading(field: str, value: Any) -> None:
    config = GenerationConfig(top_k=10)
    setattr(config, field, value)
    with pytest.warns(UserWarning, match=field):
        assert defaults_of(config) == Sampling(top_k=10)


def test_values_that_mean_off_or_greedy_are_taken_as_that() -> None:
    config = GenerationConfig(temperature=0.0, top_k=-1)
    assert defaults_of(config) == Sampling(temperature=0.0, top_k=0)


def test_what_a_models_own_config_forbids_is_forbidden() -> None:
    config = GenerationConfig(suppress_tokens=[1], num_beams=4, typical_p=0.2, chat_format="chatml")
    asked = row(temperature=0.0, hooks=Hooks(own_processors(config)))
    (outcome,) = Sampler().draw([asked], torch.tensor([[1.0, 3.0, 2.0]]))
    assert outcome == Drawn(2)
    assert own_processors(None) == ()


def test_and_what_cannot_be_built_is_left_out() -> None:
    config = GenerationConfig(no_repeat_ngram_size=2)
    config.suppress_tokens = 5
    with pytest.warns(UserWarning, match="`suppress_tokens`"):
        assert len(own_processors(config)) == 1
