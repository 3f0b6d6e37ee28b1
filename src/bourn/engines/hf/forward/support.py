"""Whether slots can serve a model, and if not, why: in one plain sentence each.

From a config alone, what is known to fail. From a model, a trial as well: some tokens through the
slots, with rows that join and are read in pieces, against what the model says of each row alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from bourn.engines.hf.forward.layout import Part
from bourn.engines.hf.forward.lending import names
from bourn.engines.hf.forward.runner import Runner, entrance, ordinary
from bourn.engines.hf.forward.slots import Unservable
from bourn.engines.hf.step import Copy

KEPT_BY_TOKEN = frozenset({"full_attention", "sliding_attention"})
"""Kinds of layers that keep nothing but a key and a value for each token."""
COUPLING = frozenset({"dynamic", "longrope"})
"""Kinds of rotary positions that change for all rows once one of them is long."""
LENDERS = frozenset({"eager", "sdpa", None})
"""Attention that does not ask under what name it runs."""
EXACT, CLOSE = 1e-3, 0.2
"""How far logits may be off, of their standard deviation: the furthest of them where float32 is
computed in, their mean square where it is less, and the order of additions shows."""


def config_refusal(config: Any) -> str | None:
    """Why slots cannot serve models of this config, as far as it tells; loads no weights."""
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder model"
    try:
        text = config.get_text_config(decoder=True)
    except ValueError:
        return "its config has several text models"
    return _text_refusal(text) or _class_refusal(config)


def slots_refusal(model: Any) -> str | None:
    """Why slots cannot serve this model; None if they can. Leaves it as it was, never raises."""
    try:
        return config_refusal(model.config) or _model_refusal(model) or _trial_refusal(model)
    except Unservable as error:
        return error.why
    except Exception as error:  # noqa: BLE001  # a model may bring any code along
        return f"it failed when it was tried ({type(error).__name__}: {error})"


def _text_refusal(config: Any) -> str | None:
    if kinds := sorted(set(getattr(config, "layer_types", None) or ()) - KEPT_BY_TOKEN):
        return f"its layers keep more than a key and a value for each token ({', '.join(kinds)})"
    if kinds := sorted(set(_rope_types(config)) & COUPLING):
        return f"its rotary positions ({kinds[0]}) change for all rows once one of them is long"
    if _has_alibi(config):
        return "its attention tells positions by biases (ALiBi)"
    return None


def _class_refusal(config: Any) -> str | None:
    """What the model's class says of itself, where transformers brings it."""
    from transformers import AutoModelForCausalLM

    try:
        made: Any = AutoModelForCausalLM._model_mapping[type(config)]
    except KeyError:
        return None
    return _forward_refusal(made)


def _forward_refusal(made: Any) -> str | None:
    if getattr(made, "_is_stateful", False):
        return "its layers keep a state, not a key and a value for each token"
    takes = inspect.signature(made.forward).parameters
    if "position_ids" not in takes:
        return "it cannot be told the positions of its tokens"
    if not {"cache", "past_key_values"} & takes.keys():
        return "it takes no cache"
    if not made._can_set_attn_implementation():
        return "it does not call its attention through transformers' attention interface"
    return None


def _model_refusal(model: Any) -> str | None:
    if model.training:
        return "it is in training mode (call model.eval() first)"
    if others := sorted(str(name) for name in names(model) - LENDERS):
        return f"its attention is {others[0]}, which cannot be lent (load it with sdpa)"
    return _forward_refusal(type(model))


def _rope_types(config: Any) -> Iterator[str]:
    """All that it names: for every layer, or for each kind of layers."""
    for name in ("rope_parameters", "rope_scaling"):
        given = getattr(config, name, None) or {}
        for one in (given, *given.values()):
            if isinstance(one, Mapping):
                yield str(one.get("rope_type") or one.get("type"))


def _has_alibi(config: Any) -> bool:
    inner = getattr(config, "attn_config", None)
    return (
        getattr(config, "model_type", "") == "bloom"
        or getattr(config, "position_embedding_type", "") == "alibi"
        or any(bool(getattr(one, "alibi", False)) for one in (config, inner))
    )


def _trial_refusal(model: Any) -> str | None:
    """Two rows that join, are read in pieces and go on together, then one that copies another."""
    ids = ordinary(model.config, 14)
    long, short = ids[:9], ids[9:]
    of_long, of_short = (_alone(model, row) for row in (long, short))
    runner = Runner(model, slots=4, window=len(long))
    try:
        first = runner.read([Part(2, 0, long[:4]), Part(0, 0, short[:3])], [1])
        second = runner.read([Part(2, 4, long[4:8]), Part(0, 3, short[3:4])], [0, 1])
        third = runner.read(
            [Part(2, 8, long[8:]), Part(0, 4, short[4:]), Part(3, 3, long[3:4])],
            [0, 1, 2],
            [Copy(2, 3, 3)],
        )
    finally:
        runner.close()
    ours = torch.cat([first, second, third]).float().cpu()
    right = [of_short[2], of_long[7], of_short[3], of_long[8], of_short[4], of_long[3]]
    return _difference(ours, torch.stack(right), exact=_is_exact(model))


def _alone(model: Any, row: list[int]) -> Tensor:
    """The logits after each of its tokens, as the model has them by itself."""
    ids = torch.tensor([row], device=entrance(model))
    with torch.inference_mode():
        logits: Tensor = model(input_ids=ids, use_cache=False).logits[0]
    return logits.float().cpu()


def _difference(ours: Tensor, right: Tensor, *, exact: bool) -> str | None:
    """Both [rows, vocabulary]. Some vocabularies have tokens that are never drawn, at -inf."""
    finite = right.isfinite()
    if not finite.any(dim=1).all():
        return "its logits are no numbers"
    if not torch.equal(ours.isfinite(), finite):
        return "its logits through slots are not finite where they should be"
    for mine, his, drawn in zip(ours, right, finite, strict=True):
        off = (mine - his)[drawn] / his[drawn].std()
        if off.abs().max() > EXACT if exact else off.square().mean().sqrt() > CLOSE:
            return "its logits through slots differ from its own"
    return None


def _is_exact(model: Any) -> bool:
    """Whether it computes in float32, all of it."""
    exact = model.dtype is torch.float32 and getattr(model, "hf_quantizer", None) is None
    return exact and torch.get_float32_matmul_precision() == "highest"
