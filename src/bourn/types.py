"""The values that travel through bourn. All are frozen; nothing here does I/O or knows a wire.

A `Request` goes right to left, `Piece`s come back from the engine, and become `Event`s that a
journal keeps and a stream reads. Times are seconds, lengths are tokens, unless a name says else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Literal

from bourn.errors import InvalidRequest


class FinishReason(StrEnum):
    """Why an answer ended. Made once, where the generation ends."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    CANCELLED = "cancelled"


class Channel(StrEnum):
    """What a stretch of generated text is for."""

    ANSWER = "answer"
    REASONING = "reasoning"
    TOOL = "tool"


# -- what is asked ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """`url`: https, or a `data:` URL that holds the image itself."""

    url: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    content: str | tuple[TextPart | ImagePart, ...] = ""
    name: str | None = None
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The text of it, without images."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        if isinstance(self.content, str):
            return ()
        return tuple(part for part in self.content if isinstance(part, ImagePart))


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. None means "not said", so that one layer can yield to another.

    temperature: 0 is greedy. top_p, min_p: probabilities. top_k: tokens, 0 switches it off.
    repetition_penalty: 1 is off. presence_penalty, frequency_penalty: as in OpenAI's API, 0 is off.
    seed: the same seed, alone on one machine and build, gives the same answer again.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None

    _bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        "temperature": (0, 100),
        "top_p": (0, 1),
        "top_k": (0, 2**31 - 1),
        "min_p": (0, 1),
        "repetition_penalty": (0.01, 100),
        "presence_penalty": (-2, 2),
        "frequency_penalty": (-2, 2),
        "seed": (0, 2**32 - 2),  # the top one means "draw one" to llama.cpp
    }

    def __post_init__(self) -> None:
        for name, (low, high) in self._bounds.items():
            value = getattr(self, name)
            # written so that NaN fails
            if value is not None and not low <= value <= high:
                hint = f"give a number from {low:.12g} to {high:.12g}"
                raise InvalidRequest(f"{name} is {value}", hint=hint, field=name)

    def over(self, lower: Sampling) -> Sampling:
        """This, with `lower` wherever this says nothing: one step of the order of settings."""
        return replace(lower, **self.given())

    def given(self) -> dict[str, Any]:
        """Only what was said."""
        named = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, value in named if value is not None}


DEFAULT_SAMPLING = Sampling(
    temperature=0.8,
    top_p=0.95,
    top_k=40,
    min_p=0.05,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
)
"""bourn's defaults: llama.cpp's, which most local models are tried with. The lowest layer."""

DEFAULT_MAX_NEW_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One answer that somebody wants.

    Either `messages` (a chat, rendered by the model's template) or `prompt` (a completion of raw
    text, or of token ids, no template).

    max_new_tokens: the most tokens to generate, reasoning included; None is the rest of the window.
    min_new_tokens: the least; no end token is drawn before.
    stop: texts that end the answer. They act on the answer, not on reasoning; the earliest end
        wins. stop_token_ids: tokens that end it, as the model's own end tokens do.
    logit_bias: what is added to a token's logit before all else, by token id.
    n: how many answers (choices) to the same prompt; each takes a slot.
    logprobs: how many alternatives to give beside each token; 0 is the token alone, None is off.
    tools, response_format: as in OpenAI's API. parallel_tool_calls: False ends an answer with its
        first call, whatever the engine: no second one is given, or computed.
    template_kwargs: variables for the chat template, such as `enable_thinking`.
    reuse_prompt: whether an engine may go on from what it has read before (its KV cache). That is
        fast, and shifts probabilities a little: without it the same seed gives the same answer
        whatever was asked before.
    engine_options: what only one engine understands, by name; all others refuse it.
    """

    messages: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] | None = None
    sampling: Sampling = field(default_factory=Sampling)
    max_new_tokens: int | None = DEFAULT_MAX_NEW_TOKENS
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    n: int = 1
    logprobs: int | None = None
    ignore_eos: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool = True
    response_format: Mapping[str, Any] | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    reuse_prompt: bool = True
    engine_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.messages) == (self.prompt is not None):
            raise InvalidRequest(
                "there is nothing to answer" if self.prompt is None else "both messages and prompt",
                hint="give either messages (a chat) or a prompt (raw completion)",
            )
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise InvalidRequest(f"max_new_tokens is {self.max_new_tokens}", hint="give 1 or more")
        if not 0 <= self.min_new_tokens <= (self.max_new_tokens or self.min_new_tokens):
            raise InvalidRequest(
                f"min_new_tokens is {self.min_new_tokens}", hint="give 0 up to max_new_tokens"
            )
        if self.n < 1:
            raise InvalidRequest(f"n is {self.n}", hint="give 1 or more")
        if "" in self.stop:
            raise InvalidRequest("a stop string is empty", hint="an empty text is everywhere")

    def asks(self) -> set[str]:
        """The optional fields that are used, and which an engine must be able to honour."""
        used = {
            "min_new_tokens": self.min_new_tokens > 0,
            "stop_token_ids": bool(self.stop_token_ids),
            "logit_bias": bool(self.logit_bias),
            "n": self.n > 1,
            "logprobs": self.logprobs is not None,
            "ignore_eos": self.ignore_eos,
            "tools": bool(self.tools),
            "tool_choice": self.tool_choice is not None,
            "response_format": self.response_format is not None,
            "template_kwargs": bool(self.template_kwargs),
            "prompt": self.prompt is not None,
            "token ids as prompt": isinstance(self.prompt, tuple),
            "images": any(message.images for message in self.messages),
        }
        wished = {name for name, yes in used.items() if yes}
        return wished | set(self.sampling.given()) | set(self.engine_options)


# -- what an engine gives --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One generated token: its text, its bytes (perhaps a part of a character), ln p."""

    token: str
    logprob: float
    bytes: bytes = b""
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolDelta:
    """A part of a tool call. `id` and `name` come with the first part of each `index`."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts of tokens. `estimated`: the engine never told, so pieces of text were counted."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    estimated: bool = False

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Piece:
    """What an engine gives at one moment: left of it are tensors and wires, right of it neither.

    tokens: how many tokens were generated since this choice's last piece, visible or not.
    prompt_done, prompt_total: how much of the prompt was read, while it is being read.
    opened: the channel that the prompt leaves open, told before the choice's first text.
    finish: the choice's last piece says why it ended. Every choice must have one.
    assumed: nobody has said why it ended: it is taken for a whole answer, but not given to others.
    usage: counts so far, the last one told wins; over all choices.
    """

    text: str = ""
    channel: Channel = Channel.ANSWER
    choice: int = 0
    tokens: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    tool: ToolDelta | None = None
    prompt_done: int | None = None
    prompt_total: int | None = None
    opened: Channel | None = None
    finish: FinishReason | None = None
    usage: Usage | None = None
    assumed: bool = False


# -- what a reader sees ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metrics:
    """How fast it was. Seconds, from the moment the request was opened unless said otherwise.

    ttft: to the first generated token of any kind, reasoning included. first_text: to the first
    text of the answer. total: to the end. queue_time: spent waiting for a slot.
    tokens: generated. tokens_per_second: after the first token, so the prompt does not count.
    itl_mean, itl_p50, itl_p99: inter-token latency of each choice, from one of its tokens to the
        next: the mean, the middle one, and the slowest in a hundred.
    prompt_tokens, cached_tokens: read in all, and of these found in the KV cache.
    Where nothing was generated the times are None.
    """

    queue_time: float = 0.0
    ttft: float | None = None
    first_text: float | None = None
    total: float = 0.0
    tokens: int = 0
    tokens_per_second: float | None = None
    itl_p50: float | None = None
    itl_p99: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    estimated: bool = False
    itl_mean: float | None = None


State = Literal["complete", "cancelled", "failed", "lost", "blocked"]


@dataclass(frozen=True, slots=True)
class Queued:
    """Waiting for a slot; `place` 1 is next."""

    place: int


@dataclass(frozen=True, slots=True)
class Started:
    """A slot was found. `sampling` is what was sent, its seed included."""

    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Progress:
    """The prompt is being read: `done` of `total` tokens."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Delta:
    """New text of one channel, or part of a tool call; final, never taken back."""

    text: str
    channel: Channel = Channel.ANSWER
    choice: int = 0
    tokens: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    tool: ToolDelta | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """One choice has ended. `stop`: the stop string that ended it, if one did.

    assumed: the engine gave no reason; this is the one that it would most likely have given.
    """

    reason: FinishReason
    choice: int = 0
    stop: str | None = None
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The last event of a journal: how the generation ended. After it nothing comes."""

    state: State
    usage: Usage = Usage()
    metrics: Metrics = Metrics()
    error: BaseException | None = None


Event = Queued | Started | Progress | Delta | Finished | Done


def text_of(event: Event) -> str:
    """The text that an event adds to the first choice's answer."""
    if isinstance(event, Delta) and event.choice == 0 and event.channel is Channel.ANSWER:
        return event.text
    return ""
