"""What a model's own settings do to those who set nothing: limits of length, and sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bourn.doctor.finding import Checks, Finding, Fix, broken, note, ok, warning
from bourn.doctor.folder import Folder


def length_limit(folder: Folder) -> Finding:
    said = folder.generation or {}
    limit, new = _whole(said.get("max_length")), _whole(said.get("max_new_tokens"))
    if limit is not None and new is not None:
        return warning(
            f"both max_length ({limit:,}) and max_new_tokens ({new:,}) are set",
            "max_new_tokens wins, also over a max_length given to `generate`",
            "take max_length out of generation_config.json (--fix does)",
            Fix(drops=("max_length",)),
        )
    if new is not None:
        return note(
            f"max_new_tokens is {new:,}",
            "a max_length given to `generate` is passed over beside it",
            "give max_new_tokens, which bourn always does",
        )
    window = window_of(folder)
    if limit is None or (window is not None and limit >= window):
        return ok("none is set" if limit is None else f"max_length is the window, {limit:,}")
    return warning(
        f"max_length is {limit:,} in generation_config.json",
        "it counts the prompt too: `generate` cuts answers short, and fails on longer prompts",
        "set max_new_tokens instead (--fix does); bourn passes it over",
        Fix(puts={"max_new_tokens": limit}, drops=("max_length",)),
    )


def sampling(folder: Folder) -> Finding:
    said = folder.generation or {}
    drawn = {name: said[name] for name in _FAR_OUT if _number(said.get(name)) is not None}
    if said.get("do_sample") and said.get("temperature") == 0:
        return broken(
            "temperature is 0, and do_sample is true",
            "`generate` refuses to draw with temperature 0",
            "set do_sample to false, and leave temperature out (--fix does)",
            Fix(puts={"do_sample": False}, drops=("temperature",)),
        )
    if wild := far_out(drawn):
        return warning(wild, _WILD, "give your own: --temperature, --top-p …")
    unused = sorted(drawn.keys() - {"repetition_penalty"})
    if unused and said.get("do_sample") is False:
        return note(
            f"do_sample is false, so that {', '.join(unused)} do nothing",
            "`generate` takes the likeliest token each time",
        )
    told = ", ".join(f"{name} {value:g}" for name, value in drawn.items())
    return ok(told or "none of its own")


_WILD = "answers wander, repeat themselves, or lose their end token"

_FAR_OUT: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 1.5),
    "top_p": (0.1, 1.0),
    "min_p": (0.0, 0.5),
    "repetition_penalty": (1.0, 1.3),
}
"""Between what a setting is usual."""


def far_out(values: Mapping[str, Any]) -> str:
    """Those of the settings that are far from usual, and their values; nothing where none is."""
    wild = [
        f"{name} is {value:g}"
        for name, value in values.items()
        if name in _FAR_OUT and not _FAR_OUT[name][0] <= value <= _FAR_OUT[name][1]
    ]
    return ", ".join(wild)


# -- windows ---------------------------------------------------------------------------------------

_WINDOWS = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "n_ctx",
)
_NO_LIMIT = 10**9
"""What transformers writes for "no limit" is far above, and no window is."""


def window_of(folder: Folder) -> int | None:
    """Tokens, by the configuration."""
    return next(filter(None, (_whole(folder.said(name)) for name in _WINDOWS)), None)


def window(folder: Folder) -> Finding:
    config = window_of(folder)
    tokenizer = _whole(folder.tokenizer_config.get("model_max_length"))
    tokenizer = tokenizer if tokenizer and tokenizer < _NO_LIMIT else None
    if config is None:
        return note(
            "config.json states none"
            + (f"; the tokenizer says {tokenizer:,}" if tokenizer else ""),
            "nobody can tell how long a conversation may get",
            "give one with --window",
        )
    if tokenizer is not None and tokenizer > config:
        return warning(
            f"the tokenizer allows {tokenizer:,} tokens, the model {config:,}",
            "programs that trust the tokenizer send prompts that the model cannot hold",
            f"set model_max_length to {config} in tokenizer_config.json",
        )
    if tokenizer is not None and tokenizer < config:
        return note(
            f"the model holds {config:,} tokens, the tokenizer says {tokenizer:,}",
            "programs that cut prompts as the tokenizer says cut them early",
        )
    return _scaled(folder, config)


def _scaled(folder: Folder, config: int) -> Finding:
    """Of the ways to stretch a window only YaRN's says how far it reaches."""
    scaling = rope_of(folder)
    original = _whole(scaling.get("original_max_position_embeddings"))
    factor = _number(scaling.get("factor"))
    said = f"{config:,} tokens, by config.json"
    if _rope_type(scaling) != "yarn" or original is None or factor is None:
        return ok(said)
    reach, stretched = original * factor, f"{original:,} stretched {factor:g} times"
    if reach == config:
        return ok(f"{said}: {stretched}")
    if reach > config:
        return note(
            f"{said}, though by its rope it is {stretched}",
            "conversations end earlier than they need to",
            f"--window {reach:.0f}, where there is memory for it",
        )
    return warning(
        f"{said}, but by its rope only {stretched}",
        "beyond that the model was not made for what it reads",
        f"stay within it: --window {reach:.0f}",
    )


# -- rotary embeddings -----------------------------------------------------------------------------

_COUPLED = ("dynamic", "longrope", "su")


def rope_of(folder: Folder) -> Mapping[str, Any]:
    """How positions are turned: the scaling's fields, under whichever name."""
    for name in ("rope_scaling", "rope_parameters"):
        told = folder.said(name)
        if isinstance(told, dict):
            inner = [each for each in told.values() if isinstance(each, dict)]
            return inner[0] if inner and "rope_type" not in told else told
    return {}


def rope(folder: Folder) -> Finding:
    kind = _rope_type(rope_of(folder))
    if kind in _COUPLED:
        return note(
            f"its rope type is {kind}: positions are turned by the longest text in a batch",
            "in a batch an answer depends on its neighbours",
            "bourn serves such a model one request at a time",
        )
    return ok(f"its rope type is {kind}, the same for each row of a batch")


def _rope_type(scaling: Mapping[str, Any]) -> str:
    return str(scaling.get("rope_type") or scaling.get("type") or "default")


def _whole(value: object) -> int | None:
    exact = isinstance(value, float) and value.is_integer()
    if isinstance(value, bool) or not (isinstance(value, int) or exact):
        return None
    return int(value)  # type: ignore[call-overload, no-any-return]  # whole, as was just seen


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 1e300 else None  # no NaN, and no infinity


CHECKS: Checks[Folder] = {
    "length limit": length_limit,
    "sampling": sampling,
    "window": window,
    "rope": rope,
}
