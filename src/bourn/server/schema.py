"""What the routes take and give, as OpenAPI tells it. What is not listed here is refused.

The bounds are those of `wire.body`; that both agree is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bourn.hub import ABANDONED
from bourn.server.wishes import DIRECTIVES
from bourn.wire.body import (
    LARGEST_LIMIT,
    LONGEST_STOP,
    MOST_CHOICES,
    MOST_MESSAGES,
    MOST_STOPS,
)

Schema = dict[str, Any]


def _of(kind: str, says: str, **more: Any) -> Schema:
    """A value of that kind; null is "not said"."""
    return {"type": [kind, "null"], "description": says, **more}


def _number(low: float, high: float, says: str) -> Schema:
    return _of("number", says, minimum=low, maximum=high)


def _whole(low: int, high: int | None, says: str) -> Schema:
    bounds = {"minimum": low} if high is None else {"minimum": low, "maximum": high}
    return _of("integer", says, **bounds)


def _only(says: str, values: Sequence[Any] = ()) -> Schema:
    """A field of OpenAI's that bourn takes where it asks for nothing."""
    return {"enum": [*values, None], "description": says}


_ID = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_TEXT = {"type": "string"}
_STOP = {"type": "string", "minLength": 1, "maxLength": LONGEST_STOP}
_FUNCTION = {"type": "object", "properties": {"name": _TEXT}, "required": ["name"]}
_CALL: Schema = {
    "type": "object",
    "required": ["id", "function"],
    "properties": {
        "id": _TEXT,
        "function": {
            "type": "object",
            "required": ["name", "arguments"],
            "properties": {"name": _TEXT, "arguments": _TEXT},
        },
    },
}
_PICTURE: Schema = {
    "type": "object",
    "required": ["url"],
    "properties": {"url": _TEXT, "detail": {"type": ["string", "null"]}},
}
_PART: Schema = {
    "anyOf": [
        {
            "type": "object",
            "required": ["type", "text"],
            "properties": {"type": {"const": "text"}, "text": _TEXT},
        },
        {
            "type": "object",
            "required": ["type", "image_url"],
            "properties": {"type": {"const": "image_url"}, "image_url": _PICTURE},
        },
    ]
}
_MESSAGE: Schema = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"type": "string", "description": "As the model's template knows them."},
        "content": {
            "anyOf": [_TEXT, {"type": "array", "items": _PART}, {"type": "null"}],
        },
        "name": _of("string", "Who speaks."),
        "tool_calls": _of("array", "The calls of an assistant's message.", items=_CALL),
        "tool_call_id": _of("string", "The call that a tool's message answers."),
        "reasoning_content": _of("string", "What the assistant thought."),
        "reasoning": _of("string", "The same, by another name."),
        "annotations": {"description": "Of an answer that is sent back; of no consequence."},
        "parsed": {"description": "Of an answer that is sent back; of no consequence."},
    },
    "additionalProperties": {
        "enum": [None, False, 0, "", [], {}],
        "description": "Whatever else an answer had may be sent back where it is empty.",
    },
}

_DIRECTIVE = {"enum": [*DIRECTIVES]}
_BOURN: Schema = {
    "type": ["object", "null"],
    "description": "Wishes that OpenAI's API has no words for.",
    "additionalProperties": False,
    "properties": {
        "background": _of("boolean", "Go on to the end without a reader; it can be come back to."),
        "grace": _number(0, ABANDONED, "Seconds for which it goes on without a reader."),
        "cache": {
            "anyOf": [{"enum": [*DIRECTIVES, None]}, {"type": "array", "items": _DIRECTIVE}],
            "description": "As in the header `Cache-Control`, which may be sent instead.",
        },
        "max_age": _of("number", "Seconds that an answer from the cache may be old.", minimum=0),
        "sampled": _of("boolean", "An answer that was drawn at random may be shared, too."),
        "cut": _of("boolean", "One that ended at its limit may be, with others who say so."),
        "queue": _of("boolean", "Tell the place in the queue, in chunks without choices."),
    },
}

_COMMON: Schema = {
    "model": _of("string", "One of `/v1/models`; without it the first."),
    "stream": _of("boolean", "As an event stream."),
    "stream_options": {
        "type": ["object", "null"],
        "description": "Of an event stream.",
        "additionalProperties": False,
        "properties": {
            "include_usage": _of("boolean", "End with a chunk of usage and metrics."),
            "include_obfuscation": _only("There is none.", [False]),
        },
    },
    "max_tokens": _whole(
        1, LARGEST_LIMIT, "The most tokens to generate; else the rest of the window."
    ),
    "min_tokens": _whole(0, LARGEST_LIMIT, "The least; not more than the most."),
    "n": _whole(1, MOST_CHOICES, "How many answers."),
    "temperature": _number(0, 100, "0 is greedy."),
    "top_p": _number(0, 1, "Draw from the most probable tokens that make up this share."),
    "top_k": _whole(-1, 2**31 - 1, "Draw from this many; 0 or -1 is off."),
    "min_p": _number(0, 1, "Draw from what is at least this share of the most probable."),
    "presence_penalty": _number(-2, 2, "0 is off."),
    "frequency_penalty": _number(-2, 2, "0 is off."),
    "repetition_penalty": _number(0.01, 100, "1 is off."),
    "repeat_penalty": _number(0.01, 100, "The same, by llama.cpp's name."),
    "seed": _whole(0, 2**32 - 2, "The same seed gives the same answer, alone on one machine."),
    "logit_bias": _of(
        "object",
        "What is added to the logits of tokens, by their ids.",
        additionalProperties={"type": "number", "minimum": -100, "maximum": 100},
        propertyNames={"pattern": "^[0-9]{1,9}$"},
    ),
    "stop": {
        "anyOf": [
            _STOP,
            {"type": "array", "items": _STOP, "maxItems": MOST_STOPS},
            {"type": "null"},
        ],
        "description": "Texts that end the answer, and are not in it.",
    },
    "stop_token_ids": _of("array", "Tokens that end the answer.", items=_ID),
    "ignore_eos": _of("boolean", "Go on beyond the model's own end, to the limit."),
    "cache_prompt": _of("boolean", "Whether to go on from what was read before (the KV cache)."),
    "user": {"description": "Taken, and of no consequence here."},
    "metadata": {"description": "Taken, and of no consequence here."},
    "safety_identifier": {"description": "Taken, and of no consequence here."},
    "prompt_cache_key": {"description": "Taken, and of no consequence here."},
    "prompt_cache_retention": {"description": "Taken, and of no consequence here."},
    "prompt_cache_options": {"description": "Taken, and of no consequence here."},
    "moderation": {"description": "Taken, and of no consequence here."},
    "store": _only("Nothing is stored for later.", [False]),
    "service_tier": _only("There is one.", ["auto", "default"]),
    "bourn": _BOURN,
}

_CHAT_FIELDS: Schema = {
    "messages": {
        "type": "array",
        "items": _MESSAGE,
        "minItems": 1,
        "maxItems": MOST_MESSAGES,
        "description": "The conversation so far.",
    },
    **_COMMON,
    "max_completion_tokens": _whole(
        1, LARGEST_LIMIT, "The newer name of `max_tokens`, and before it."
    ),
    "logprobs": _of("boolean", "Tell how probable each token was."),
    "top_logprobs": _whole(0, 20, "Beside each token this many others; with `logprobs`."),
    "tools": _of(
        "array",
        "Functions that the model may call.",
        items={
            "type": "object",
            "required": ["type", "function"],
            "properties": {"type": {"const": "function"}, "function": _FUNCTION},
        },
    ),
    "tool_choice": {
        "anyOf": [{"enum": ["none", "auto", "required", None]}, {"type": "object"}],
        "description": "Whether to call one, or which.",
    },
    "parallel_tool_calls": _of("boolean", "False ends the answer with its first call."),
    "response_format": {
        "type": ["object", "null"],
        "description": "JSON, perhaps by a schema, where the model can be held to it.",
        "required": ["type"],
        "properties": {"type": {"enum": ["text", "json_object", "json_schema"]}},
    },
    "chat_template_kwargs": _of("object", "Variables for the chat template."),
    "modalities": _only("Text is all there is.", [["text"]]),
    "functions": _only("The old name of `tools`.", [[]]),
    **{
        name: _only("Not here.")
        for name in (
            "function_call",
            "audio",
            "prediction",
            "reasoning_effort",
            "verbosity",
            "web_search_options",
        )
    },
}

_COMPLETION_FIELDS: Schema = {
    "prompt": {
        "anyOf": [
            _TEXT,
            {"type": "array", "items": _ID, "minItems": 1},
            {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 1},
            {
                "type": "array",
                "items": {"type": "array", "items": _ID, "minItems": 1},
                "minItems": 1,
                "maxItems": 1,
            },
        ],
        "description": "A text, or token ids. Several prompts are several requests.",
    },
    **_COMMON,
    "logprobs": _whole(0, 20, "Tell how probable each token was, beside this many others."),
    "best_of": _only("The best is not looked for.", [1]),
    "echo": _only("The prompt is not repeated.", [False]),
    "suffix": _only("Nothing is filled in.", [""]),
}

CHAT_REQUEST: Schema = {
    "type": "object",
    "required": ["messages"],
    "additionalProperties": False,
    "properties": _CHAT_FIELDS,
    "if": {"required": ["top_logprobs"], "properties": {"top_logprobs": {"type": "integer"}}},
    "then": {"required": ["logprobs"], "properties": {"logprobs": {"const": True}}},
}
COMPLETION_REQUEST: Schema = {
    "type": "object",
    "required": ["prompt"],
    "additionalProperties": False,
    "properties": _COMPLETION_FIELDS,
}
