"""Where a model's answer ends: the tokens that say so, gathered from all who know of one.

The tokenizer, the model's configuration, its generation configuration and its chat template each
name some, seldom the same; an answer ends at any of them. No token is taken for an end by its name
alone: that would end answers where `generate` goes on.

It draws nothing and compares nothing: `sequence` does.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from bourn.engines.hf.prompting.rendering import ChatTemplate, Told, templates_of
from bourn.engines.hf.prompting.vocabulary import marks_of
from bourn.errors import TemplateError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_QUESTION, _ANSWER, _AGAIN = "What says the fox?", "Nothing says the fox.", "What says the hen?"


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The marker that a chat template closes an answer with.

    ids: one, where it was added to the vocabulary as a token; else those of its text.
    """

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ends:
    """ids: tokens that end an answer. texts: markers that are no token.

    stated: who named which tokens: "tokenizer", "config", "generation_config", "chat template".
    """

    ids: frozenset[int]
    texts: tuple[str, ...]
    stated: Mapping[str, tuple[int, ...]]


def ends(
    tokenizer: PreTrainedTokenizerBase,
    config: Any,
    generation_config: Any,
    template: str | None = None,
) -> Ends:
    """All that ends an answer. template: used instead of the tokenizer's own; else as it has it.

    config, generation_config: the model's, or None.
    """
    turn = turn_end(tokenizer, template)
    added = tokenizer.added_tokens_decoder
    single = turn.ids if turn and len(turn.ids) == 1 and turn.ids[0] in added else ()
    text_config = getattr(config, "text_config", None)
    stated = {
        "tokenizer": _ids(getattr(tokenizer, "eos_token_id", None)),
        "config": _ids(*(getattr(each, "eos_token_id", None) for each in (config, text_config))),
        "generation_config": _ids(getattr(generation_config, "eos_token_id", None)),
        "chat template": single,
    }
    return Ends(
        ids=frozenset().union(*stated.values()),
        texts=(turn.text,) if turn and not single else (),
        stated=stated,
    )


def turn_end(tokenizer: PreTrainedTokenizerBase, template: str | None = None) -> TurnEnd | None:
    """What a chat template closes an answer with, found by looking at what it writes.

    That is the first token that was added to the vocabulary (a family's own marks come last), or,
    where there is none, the text. Where it writes nothing, a special token that begins the next
    turn shows the end. A text that begins one, such as `### Instruction:`, does not: an answer may
    well hold it.

    None: there is no template, or it shows no end, or refuses any conversation.
    """
    chosen = templates_of(tokenizer, template).get("default")
    if chosen is None:
        return None
    closing, between = _after_answer(chosen)
    added, marks = _added(tokenizer), marks_of(chosen.text)
    special = [mark for mark in added if mark.special and between.startswith(mark.text)]
    found = _first(added, closing, marks) or (None if closing else _first(special, between, marks))
    if found is not None:
        return TurnEnd(found.text, (found.id,))
    if not closing or (between and not between.startswith(closing)):
        return None
    return TurnEnd(closing, tuple(tokenizer.encode(closing, add_special_tokens=False)))


def _after_answer(template: ChatTemplate) -> tuple[str, str]:
    """What follows an answer when nothing more is said, and when another question is."""
    talk = [_message("user", _QUESTION), _message("assistant", _ANSWER)]
    amid = _rest(template, [*talk, _message("user", _AGAIN)])
    return _rest(template, talk).strip(), amid.partition(_AGAIN)[0].strip()


def _rest(template: ChatTemplate, messages: list[Told]) -> str:
    """What it writes after the answer; nothing where it refuses the messages."""
    try:
        _, found, rest = template.render(messages).rpartition(_ANSWER)
    except TemplateError:
        return ""
    return rest if found else ""


def _message(role: str, text: str) -> Told:
    return {"role": role, "content": text}


class _Mark(NamedTuple):
    """A token that was added to the vocabulary, as what marks something always is."""

    text: str
    id: int
    special: bool


def _added(tokenizer: PreTrainedTokenizerBase) -> list[_Mark]:
    """All but blank ones, and the one that begins a text and does not end it."""
    begins = {tokenizer.bos_token} - {tokenizer.eos_token}
    added = tokenizer.added_tokens_decoder.items()
    marks = [_Mark(about.content, token, about.special) for token, about in added]
    return [mark for mark in marks if mark.text.strip() and mark.text not in begins]


def _first(marks: Iterable[_Mark], text: str, last: Container[str]) -> _Mark | None:
    """The one that stands first in a text, the longest of several; those of `last` after all."""
    there = [mark for mark in marks if mark.text in text]
    return min(
        there,
        key=lambda mark: (mark.text in last, text.find(mark.text), -len(mark.text)),
        default=None,
    )


def _ids(*named: Any) -> tuple[int, ...]:
    """Ids from what configurations have: a number, several, or none."""
    ids: list[int] = []
    for each in named:
        ids += [each] if isinstance(each, int) else each or []
    return tuple(dict.fromkeys(token for token in map(int, ids) if token >= 0))
