"""What a `GenerationConfig` of transformers means here: a user's, and the model's own.

Only what one says is read, never what it leaves open: that is for the layers below to say. It is
known by its `to_diff_dict` alone, and transformers is imported only where it builds processors.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Protocol

from bourn.engines.hf.sampling.asked_processors import MAKERS, WARPERS, asked_for
from bourn.engines.hf.sequence import Hook
from bourn.errors import InvalidRequest, UnsupportedField
from bourn.types import Sampling


class Config(Protocol):
    """`transformers.GenerationConfig`, or what is like it."""

    def to_diff_dict(self) -> dict[str, Any]:
        """What differs from a config that says nothing."""
        ...


_SAME = ("repetition_penalty", "max_new_tokens", "min_new_tokens")
"""Options of ours by the same name."""

_FILTERS: Mapping[str, tuple[float, ...]] = {
    "temperature": (0.0, 1.0),
    "top_k": (0, 50),
    "top_p": (1.0,),
    "min_p": (0.0,),
}
"""So are these, and do something only where tokens are drawn at random; values that are no wish."""

_OTHERS = ("do_sample", "num_return_sequences", "stop_strings", "eos_token_id", "max_length")
"""What is read in a way of its own."""

_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""What a model's own config may say of how to draw."""

_OFF: Mapping[str, Any] = {
    "num_beams": 1,
    "num_beam_groups": 1,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "guidance_scale": 1.0,
}
"""Values that ask for nothing; None, False and what is empty never do."""

_HARMLESS = frozenset(
    {
        *("pad_token_id", "bos_token_id", "transformers_version"),
        # how `generate` computes, not what: here slots do
        *("use_cache", "cache_implementation", "cache_config", "max_cache_len"),
        *("compile_config", "disable_compile", "prefill_chunk_size", "continuous_batching_config"),
        "return_dict_in_generate",
        "renormalize_logits",  # changes no choice
        # only for beams, and these are refused
        *("early_stopping", "length_penalty", "diversity_penalty", "low_memory"),
        # only with an assistant, and there is none
        *("is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule"),
        *("assistant_confidence_threshold", "assistant_lookbehind", "target_lookbehind"),
        *("assistant_ensemble_weight", "max_matching_ngram_size"),
    }
)
"""Fields that change nothing for a stream."""

_TAKEN = frozenset({*_SAME, *_FILTERS, *_OTHERS, *MAKERS, *_HARMLESS})

_BEAMS = "beams are known only when all is over, so they cannot be streamed: leave it out, or 1"
_GUESSES = "tokens are not guessed ahead here; without it the answer is the same"
_OUTPUTS = "a stream gives text: call the model itself for these"

_HINTS: Mapping[str, str] = {
    **dict.fromkeys(("num_beams", "num_beam_groups", "constraints", "force_words_ids"), _BEAMS),
    **dict.fromkeys(("use_mtp", "prompt_lookup_num_tokens", "assistant_early_exit"), _GUESSES),
    "speculation_type": _GUESSES,
    **dict.fromkeys(("output_scores", "output_logits"), "ask for `logprobs` instead"),
    **dict.fromkeys(("output_attentions", "output_hidden_states"), _OUTPUTS),
    "penalty_alpha": "contrastive search is not done here: set do_sample=True, or leave both out",
    "dola_layers": "the last layer alone decides here: leave it out",
    "guidance_scale": "it needs a second pass of the model for each token: leave it out",
    "watermarking_config": (
        "give its processor: logits_processor=[config.construct_processor(vocab_size, device)]"
    ),
    "max_time": "leave the stream then, or give stopping_criteria=[MaxTimeCriteria(seconds)]",
    "min_length": "it counts the prompt too: set min_new_tokens",
    "top_h": "set top_p or min_p instead",
    "token_healing": "a prompt is read as it is: leave it out",
    "encoder_repetition_penalty": "set repetition_penalty, which counts the prompt",
    "encoder_no_repeat_ngram_size": "set no_repeat_ngram_size, which counts the prompt",
    "cache_implementation": "keys and values are kept as the model makes them, not quantized",
}


def options_of(config: Config, own: Config | None = None) -> dict[str, Any]:
    """The options of a stream that a user's config means, as `generate` would take it.

    own: the model's own, which `generate` asks where the user's says nothing of `do_sample`. Where
    neither says that it is True, tokens are not drawn at random: the temperature is 0.

    What is left open (top_k, say) is not among the options, so that the model's own settings and
    then bourn's hold. `max_length` is never a limit, since it counts the prompt; a warning says so.

    Raises:
        UnsupportedField: it asks for what a stream cannot do.
        InvalidRequest: a value is wrong.
    """
    said = _said(config)
    known = {} if own is None else _said(own)
    sampled = said.get("do_sample", known.get("do_sample")) is True
    _refuse(said, known)
    _warn_of_length(said)
    options = {name: said[name] for name in _SAME if name in said}
    options |= _filters(said, sampled=sampled) | _ends(said)
    if "num_return_sequences" in said:
        options["n"] = said["num_return_sequences"]
    if hooks := asked_for(said, sampled=sampled):
        options["logits_processor"] = hooks
    return options


def defaults_of(config: Config | None) -> Sampling:
    """How a model's own config says that tokens are to be drawn.

    As in vLLM `do_sample` is not asked: many models state a temperature and forget to say that it
    is to be used. A value that cannot be is left out, with a warning, so that the model loads.
    """
    said = {} if config is None else config.to_diff_dict()
    usable = {name: _usable(name, said[name]) for name in _DEFAULTS if name in said}
    return Sampling(**{name: value for name, value in usable.items() if value is not None})


def own_processors(config: Config | None) -> tuple[Hook, ...]:
    """What a model's own config forbids or forces in each answer, such as `suppress_tokens`.

    What cannot be built is left out, with a warning.
    """
    said = {} if config is None else _said(config)
    hooks: tuple[Hook, ...] = ()
    for name, value in said.items():
        try:
            hooks += asked_for({name: value}, sampled=False)
        except InvalidRequest as error:
            warnings.warn(f"{error}; it is left out", stacklevel=2)
    return hooks


def _said(config: Config) -> dict[str, Any]:
    """What a config asks for, by the names of its fields."""
    return {
        name: value
        for name, value in config.to_diff_dict().items()
        if not name.startswith("_") and not _is_off(name, value)
    }


def _is_off(name: str, value: Any) -> bool:
    if name == "do_sample":
        return value is None
    empty = value is None or value is False or (hasattr(value, "__len__") and len(value) == 0)
    return empty or (name in _OFF and value == _OFF[name])


def _refuse(said: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise for the first field that cannot be honoured.

    What is neither known nor a wish, but in the model's own config as well, is about the model.
    """
    for name, value in said.items():
        quantized = name == "cache_implementation" and value == "quantized"
        copied = name not in _HINTS and name in known and known[name] == value
        if quantized or not (name in _TAKEN or copied):
            raise UnsupportedField(name, "a stream", hint=_HINTS.get(name) or _meant(name))


def _meant(name: str) -> str:
    near = get_close_matches(name, _TAKEN, 1, 0.8)
    return f"did you mean `{near[0]}`?" if near else ""


def _warn_of_length(said: Mapping[str, Any]) -> None:
    if "max_length" not in said:
        return
    limit = said.get("max_new_tokens")
    warnings.warn(
        f"max_length={said['max_length']} of the generation_config is no limit here, since it "
        "counts the prompt too and so cuts answers short; "
        + ("set max_new_tokens" if limit is None else f"max_new_tokens={limit} is the limit"),
        stacklevel=3,
    )


def _filters(said: Mapping[str, Any], *, sampled: bool) -> dict[str, Any]:
    """Temperature and what goes with it."""
    if sampled:
        return {name: said[name] for name in _FILTERS if name in said}
    idle = [name for name in (*_FILTERS, *WARPERS) if name in said]
    idle = [name for name in idle if said[name] not in _FILTERS.get(name, ())]
    if idle:
        warnings.warn(
            f"{', '.join(idle)} of the generation_config does nothing, since do_sample is not True",
            stacklevel=3,
        )
    return {"temperature": 0.0}


def _ends(said: Mapping[str, Any]) -> dict[str, Any]:
    """Texts and tokens that end an answer, beside the model's own."""
    ends: dict[str, Any] = {}
    if "stop_strings" in said:
        stop = said["stop_strings"]
        ends["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
    if "eos_token_id" in said:
        eos = said["eos_token_id"]
        ids = [eos] if isinstance(eos, int) else [int(token) for token in eos]
        if min(ids) < 0:
            hint = "for an answer that goes on past the model's own end, give ignore_eos=True"
            raise UnsupportedField("eos_token_id", "a stream", hint=hint)
        ends["stop_token_ids"] = tuple(ids)
    return ends


def _usable(name: str, value: Any) -> Any:
    if name == "top_k" and value == -1:  # what vLLM and llama.cpp call "off"
        return 0
    try:
        Sampling(**{name: value})
    except (InvalidRequest, TypeError):
        warnings.warn(
            f"{name}={value!r} of the model's own generation_config cannot be; it is left out",
            stacklevel=3,
        )
        return None
    return value
