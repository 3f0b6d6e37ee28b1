"""The processors of transformers that fields of a `GenerationConfig` ask for, by those fields.

transformers itself is imported only when one is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bourn.engines.hf.sampling.processors import ForRow, Place, Placed
from bourn.engines.hf.sequence import Hook, Wishes
from bourn.errors import InvalidRequest
from bourn.types import Sampling


def asked_for(said: Mapping[str, Any], *, sampled: bool) -> tuple[Hook, ...]:
    """What these fields ask for, in the order in which `generate` has it.

    sampled: whether tokens are drawn at random; else there is nothing for the warpers to do.

    Raises:
        InvalidRequest: a value is wrong.
    """
    wanted = [name for name in MAKERS if name in said and (sampled or name not in WARPERS)]
    return tuple(_built(name, said[name]) for name in wanted)


def _built(name: str, value: Any) -> Hook:
    try:
        hook = MAKERS[name](value)
        if isinstance(hook, ForRow):
            hook(_SOME_ROW)  # so that a wrong value is found now
    except (TypeError, ValueError, IndexError) as error:
        raise InvalidRequest(
            f"`{name}` of the generation_config is wrong: {error}",
            hint="see the documentation of transformers.GenerationConfig",
        ) from error
    return hook


_SOME_ROW = Wishes(prompt=(0,), sampling=Sampling(), max_new_tokens=1, end_ids=frozenset({0}))


def _class(name: str) -> Callable[..., Hook]:
    import transformers

    made: Callable[..., Hook] = getattr(transformers, name)
    return made


def _plain(name: str) -> Callable[[Any], Hook]:
    def make(value: Any) -> Hook:
        return _class(name)(value)  # only now: until then transformers is not needed

    return make


def _placed(name: str, place: Place) -> Callable[[Any], Hook]:
    return lambda value: Placed(_class(name)(value), place)


def _bad_words(value: Any) -> Hook:
    """An end is no bad word, even where it is given as one."""
    made = _class("NoBadWordsLogitsProcessor")
    return ForRow(lambda row: made(value, sorted(row.end_ids) or None))


def _forced_end(value: Any) -> Hook:
    made = _class("ForcedEOSTokenLogitsProcessor")
    return ForRow(lambda row: made(len(row.prompt) + row.max_new_tokens, value))


def _decay(value: Any) -> Hook:
    made = _class("ExponentialDecayLengthPenalty")

    def make(row: Wishes) -> Hook:
        ends = sorted(row.end_ids)
        return made(tuple(value), ends, len(row.prompt)) if ends else _unchanged

    return ForRow(make)


def _suppressed_at_first(value: Any) -> Hook:
    made = _class("SuppressTokensAtBeginLogitsProcessor")
    return ForRow(lambda row: made(value, len(row.prompt)))


def _unchanged(ids: Any, scores: Any) -> Any:  # noqa: ARG001 (the signature of a processor)
    return scores


WARPERS: Mapping[str, Callable[[Any], Hook]] = {
    "typical_p": _placed("TypicalLogitsWarper", Place.LAST),
    "epsilon_cutoff": _placed("EpsilonLogitsWarper", Place.LAST),
    "eta_cutoff": _placed("EtaLogitsWarper", Place.LAST),
}
"""They come after the filters, where tokens are drawn at random."""

MAKERS: Mapping[str, Callable[[Any], Hook]] = {
    "sequence_bias": _placed("SequenceBiasLogitsProcessor", Place.FIRST),
    "no_repeat_ngram_size": _plain("NoRepeatNGramLogitsProcessor"),
    "bad_words_ids": _bad_words,
    "forced_bos_token_id": _plain("ForcedBOSTokenLogitsProcessor"),
    "forced_eos_token_id": _forced_end,
    "remove_invalid_values": lambda _: _class("InfNanRemoveLogitsProcessor")(),
    "exponential_decay_length_penalty": _decay,
    "suppress_tokens": _plain("SuppressTokensLogitsProcessor"),
    "begin_suppress_tokens": _suppressed_at_first,
    **WARPERS,
}
