"""The kinds of OpenAI-compatible endpoint, how to tell them apart, and what each tells of a model.

No connection here: what an endpoint answered goes in, what it is comes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bourn.engines.base import ModelInfo
from bourn.errors import InvalidRequest
from bourn.types import Sampling
from bourn.wire.dialect import NAMELESS, Dialect

_OPENAI_SAMPLING = {
    name: name for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed")
}
_FULL_SAMPLING = _OPENAI_SAMPLING | {
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
}
_OPENAI_FIELDS = frozenset({"n", "logprobs", "tools", "tool_choice", "response_format", "prompt"})
_BY_ID = frozenset({"logit_bias", "token ids as prompt"})
_FULL_FIELDS = _OPENAI_FIELDS | _BY_ID | {"ignore_eos", "template_kwargs"}
_MORE_ENDS = frozenset({"min_new_tokens", "stop_token_ids"})
_USAGE = {"stream_options": {"include_usage": True}}
_CONTINUOUS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}

LLAMACPP = Dialect(
    "llamacpp",
    sampling=_FULL_SAMPLING | {"repetition_penalty": "repeat_penalty"},
    fields=_FULL_FIELDS,
    extra={
        **_USAGE,
        "return_progress": True,  # also what lets the server notice a hang-up inside a long prompt
        "timings_per_token": True,
    },
    chat_extra={"reasoning_format": "auto"},
    resolves=True,
    no_arguments="{}",  # it reads them as JSON
    names_call=False,  # it would pass over the choice, silently
    least_top=1,  # with 0 it gives no logprobs at all
    reasoning="reasoning_content",
    reuse="cache_prompt",
    about="/props",
)
VLLM = Dialect(
    "vllm",
    sampling=_FULL_SAMPLING,
    fields=_FULL_FIELDS | _MORE_ENDS | {"images"},  # refused by itself where the model takes none
    extra=_CONTINUOUS,
    resolves=True,
    top_k_off=-1,
    reasoning="reasoning",
)
SGLANG = Dialect(
    "sglang",
    sampling=_FULL_SAMPLING,
    fields=_FULL_FIELDS | _MORE_ENDS,
    extra=_CONTINUOUS,
    resolves=True,
    top_k_off=-1,
    reasoning="reasoning_content",
    about="/get_model_info",
)
OLLAMA = Dialect(
    "ollama",
    sampling=_OPENAI_SAMPLING,
    fields=_OPENAI_FIELDS - {"n", "tool_choice"} | {"images"},  # it drops those two silently
    extra=_USAGE,
    reasoning="reasoning",
)
OPENAI = Dialect(
    "openai",
    limit="max_completion_tokens",
    sampling=_OPENAI_SAMPLING,
    fields=_OPENAI_FIELDS | _BY_ID | {"images"},
    extra=_USAGE,
    tells=False,
)
MISTRAL = Dialect(  # refuses `stream_options`, and sends usage unasked
    "mistral",
    sampling=_OPENAI_SAMPLING | {"seed": "random_seed"},
    fields=frozenset({"n", "tools", "tool_choice", "response_format", "images"}),
)
GENERIC = Dialect(
    NAMELESS,
    sampling=_OPENAI_SAMPLING,
    fields=_OPENAI_FIELDS | {"images"},
    extra=_USAGE,
)

BY_KIND = {
    dialect.name: dialect for dialect in (LLAMACPP, VLLM, SGLANG, OLLAMA, OPENAI, MISTRAL, GENERIC)
}
_BY_HOST = {"api.openai.com": OPENAI, "api.mistral.ai": MISTRAL}
_BY_OWNER = {"llamacpp": LLAMACPP, "vllm": VLLM, "sglang": SGLANG, "library": OLLAMA}
_WINDOWS = ("max_model_len", "context_length", "context_window", "max_context_length")
"""The window's names in a list of models: vLLM and SGLang, OpenRouter, Groq, Mistral."""


def dialect_of_host(host: str) -> Dialect | None:
    """The dialect of a hosted API that is known by its name."""
    return _BY_HOST.get(host)


def dialect_of(models: Sequence[Mapping[str, Any]]) -> Dialect:
    """The dialect of whoever lists these models: each kind of server writes its name as owner."""
    owners = (_BY_OWNER.get(str(model.get("owned_by"))) for model in models)
    return next(filter(None, owners), GENERIC)


def models_in(answer: object) -> list[Mapping[str, Any]]:
    """The models of a `GET /models`, whatever its shape; none where it is no such list."""
    listed = answer.get("data") if isinstance(answer, Mapping) else answer
    if not isinstance(listed, list):
        return []
    return [model for model in listed if isinstance(model, Mapping) and model.get("id")]


def names_of(model: Mapping[str, Any]) -> list[str]:
    """The names a model goes by, its own first."""
    return [str(model["id"]), *map(str, model.get("aliases") or ())]


def info_of(
    name: str, dialect: Dialect, model: Mapping[str, Any], about: Mapping[str, Any]
) -> ModelInfo:
    """What is known of a model.

    model: its entry in the list of models. about: what the endpoint tells at `dialect.about`.
    """
    found = ModelInfo(
        name=name,
        engine=dialect.name,
        window=_window(model, about),
        slots=_whole(about.get("total_slots")),
        honours=dialect.honours,
        resolves=dialect.resolves,
    )
    if dialect is LLAMACPP:
        return _llamacpp(found, about)
    if dialect is SGLANG and about.get("has_image_understanding"):
        return replace(found, honours=found.honours | {"images"})
    return found


def _llamacpp(info: ModelInfo, props: Mapping[str, Any]) -> ModelInfo:
    """Corrected by `/props`: tools, which it drops silently where the template has none, and more.

    Its own sampling defaults are what its owner started it with, so that they go before ours.
    """
    honours = set(info.honours)
    if (props.get("modalities") or {}).get("vision"):
        honours.add("images")
    why = {"images": "this model sees none"}
    if not (props.get("chat_template_caps") or {}).get("supports_tools", True):
        honours -= {"tools", "tool_choice"}
        why |= dict.fromkeys(("tools", "tool_choice"), "this model's chat template knows no tools")
    settings = props.get("default_generation_settings") or {}
    return replace(
        info,
        honours=frozenset(honours),
        why=why,
        defaults=_defaults(settings.get("params") or {}),
        chat_template=bool(props.get("chat_template", True)),
        prefills=True,
    )


def _defaults(params: Mapping[str, Any]) -> Sampling:
    named = ((ours, params.get(theirs)) for ours, theirs in LLAMACPP.sampling.items())
    given: dict[str, Any] = {
        name: round(value, 6)  # it tells 0.800000011920929
        for name, value in named
        if isinstance(value, int | float) and name != "seed"
    }
    try:
        return Sampling(**given)
    except InvalidRequest:  # a setting of llama.cpp's that has no meaning here
        return Sampling()


def _window(model: Mapping[str, Any], about: Mapping[str, Any]) -> int | None:
    told = [(about.get("default_generation_settings") or {}).get("n_ctx")]  # llama.cpp: of a slot
    told += [model.get(name) for name in _WINDOWS]
    return next(filter(None, map(_whole, told)), None)


def _whole(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None
