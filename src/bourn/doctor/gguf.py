"""A GGUF file: what its header tells, against what llama.cpp makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from bourn.catalog import gguf
from bourn.catalog.gguf import GgufFacts
from bourn.doctor import chat
from bourn.doctor.chat import Chat, Renders
from bourn.doctor.defaults import far_out
from bourn.doctor.finding import CannotTell, Checks, Finding, broken, note, ok, run, warning

_TOKENIZER = "tokenizer.ggml."
_KEYS = frozenset(
    _TOKENIZER + name
    for name in (
        *("tokens", "token_type", "model", "add_bos_token"),
        *("eot_token_id", "eom_token_id", "padding_token_id"),
    )
)
_CONTROL, _USER_DEFINED = 3, 4
"""Types of tokens that are marks and no text."""

_KNOWN = """
    <|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn>
    <|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance>
    <eos> <turn|> <|tool_response> <\uff5cend\u2581of\u2581sentence\uff5c>
"""
ENDS_BY_TEXT = frozenset(_KNOWN.split())
"""Tokens at which llama.cpp ends whatever the file says, by what they are called."""


class GgufFile:
    """path: the first part. facts: of its header. template: another one than its own."""

    def __init__(
        self, path: Path, facts: GgufFacts, name: str = "", template: str | None = None
    ) -> None:
        self.path = path
        self.facts = facts
        self.name = name or path.stem
        self.template = template if template is not None else facts.chat_template

    @cached_property
    def _told(self) -> Mapping[str, Any]:
        return gguf.metadata(self.path, _KEYS)

    def told(self, name: str) -> Any:
        return self._told.get(_TOKENIZER + name)

    @cached_property
    def texts(self) -> list[str]:
        """Of all tokens, by their ids; none where the file has no vocabulary."""
        return list(self.told("tokens") or ())

    @cached_property
    def tokens(self) -> Mapping[str, int]:
        return {text: id_ for id_, text in enumerate(self.texts)}

    @cached_property
    def marks(self) -> frozenset[str]:
        """Texts of the tokens that are no text."""
        kinds = self.told("token_type") or ()
        marked = (_CONTROL, _USER_DEFINED)
        return frozenset(
            text for text, kind in zip(self.texts, kinds, strict=False) if kind in marked
        )

    @cached_property
    def chat(self) -> Chat:
        return Chat(
            self.template,
            self._sandbox,
            called=(f"{self.name} {self.facts.name or ''}", self.facts.architecture),
            vocabulary=self.tokens,
        )

    def _sandbox(self) -> Renders:
        try:
            from bourn.doctor.jinja import Sandbox
        except ImportError:
            raise CannotTell("it takes jinja2: pip install jinja2") from None
        return Sandbox({"bos_token": self.bos, "eos_token": self.text(self.facts.eos_id)})

    @property
    def bos(self) -> str:
        return self.text(self.facts.bos_id)

    def text(self, id_: int | None) -> str:
        """Of a token; nothing where there is none such."""
        return self.texts[id_] if id_ is not None and 0 <= id_ < len(self.texts) else ""

    @cached_property
    def ends(self) -> Mapping[int, str]:
        """The ids at which llama.cpp ends, and why."""
        known = {id_: "by its text" for text, id_ in self.tokens.items() if text in ENDS_BY_TEXT}
        if {"<|return|>", "<|call|>"} <= self.tokens.keys():  # gpt-oss goes on after this one
            known.pop(self.tokens.get("<|end|>", -1), None)
        said = {"eos_token_id": self.facts.eos_id} | {
            name: self.told(name) for name in ("eot_token_id", "eom_token_id")
        }
        return known | {id_: f"by {name}" for name, id_ in said.items() if id_ is not None}

    @cached_property
    def turn_end(self) -> str:
        """The mark that ends an answer: the token that follows it, or begins what comes next.

        A text, where that is no token. Nothing, where the template shows no end.

        Raises:
            TemplateError, CannotTell: the template cannot tell.
        """
        after, between = self.chat.after_answer.strip(), self.chat.before_question.strip()
        marks = [mark for mark in self.marks | ENDS_BY_TEXT if mark in self.tokens]
        follows = [mark for mark in marks if (after or between).startswith(mark)]
        return max(follows, key=len, default=after if between.startswith(after) else "")


def examine(file: GgufFile) -> Iterator[Finding]:
    """What the header tells; no weight is loaded."""
    return run(CHECKS, file)


# -- checks ----------------------------------------------------------------------------------------


def end_of_turn(file: GgufFile) -> Finding:
    end = file.turn_end
    id_ = file.tokens.get(end)
    if not end:
        return note(
            "the chat template writes nothing after an answer",
            "only the model's own end token ends one",
        )
    if id_ is None:
        return warning(
            f"answers end in {end!r}, which is no token of this model",
            "llama.cpp does not stop there, and goes on into turns that nobody asked for",
            f"make it a stop string: --stop {end!r}",
        )
    if id_ in file.ends:
        return ok(f"answers end in {end} ({id_}), where llama.cpp stops {file.ends[id_]}")
    return broken(
        f"answers end in {end} ({id_}), which is no end token of this file",
        "llama.cpp does not stop there, and goes on into turns that nobody asked for",
        f"gguf-set-metadata FILE tokenizer.ggml.eos_token_id {id_}, or convert it anew",
    )


def end_tokens(file: GgufFile) -> Finding:
    count, eos = len(file.tokens), file.facts.eos_id
    if eos is None:
        return warning(
            "the file names no end token",
            "only tokens that llama.cpp knows by their texts end an answer",
            "gguf-new-metadata can add tokenizer.ggml.eos_token_id",
        )
    if count and eos >= count:
        return broken(
            f"the end token {eos} is beyond the vocabulary of {count:,} tokens",
            "it is never drawn, so that nothing ends there",
            "convert it anew",
        )
    told = (f"{file.text(id_)} ({id_}) {why}" for id_, why in sorted(file.ends.items()))
    return ok("; ".join(told) or f"{eos}")


def beginning_of_text(file: GgufFile) -> Finding:
    """What is written twice llama.cpp takes off once; twice in the template itself it does not."""
    bos = file.bos
    if not bos:
        return ok("the file names no token for it")
    added = file.told("add_bos_token")
    added = file.told("model") == "llama" if added is None else bool(added)
    said = file.chat.write(("user", "Hello"), prompt=True) if file.template is not None else ""
    if said.startswith(bos + bos):
        return broken(
            f"the chat template writes {bos} twice",
            "answers get worse, or never end: no model is trained so",
            "take one out of the template",
        )
    if added and said.startswith(bos):
        return note(
            f"both the chat template and add_bos_token write {bos}",
            "llama.cpp takes one of them off; other programs may not",
        )
    return ok(f"{bos}: {'added to each text' if added else 'not added to a text'}")


def window(file: GgufFile) -> Finding:
    if file.facts.window is None:
        return note(
            "the file states none",
            "nobody can tell how long a conversation may get",
            "give one with --window",
        )
    return ok(f"{file.facts.window:,} tokens")


def sampling(file: GgufFile) -> Finding:
    said = file.facts.sampling.given()
    if wild := far_out(said):
        return warning(
            f"the file recommends: {wild}",
            "answers wander, repeat themselves, or lose their end token",
            "give your own: --temperature, --top-p …",
        )
    return ok(", ".join(f"{name} {value:g}" for name, value in said.items()) or "none of its own")


def _of_chat(check: Callable[[Chat], Finding]) -> Callable[[GgufFile], Finding]:
    return lambda file: check(file.chat)


CHECKS: Checks[GgufFile] = {
    **{name: _of_chat(check) for name, check in chat.CHECKS.items()},
    "end of turn": end_of_turn,
    "end tokens": end_tokens,
    "beginning of text": beginning_of_text,
    "window": window,
    "sampling": sampling,
}
