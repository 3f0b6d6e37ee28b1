"""Where a checkpoint's answers begin and end: end tokens, the mark of a turn's end, BOS, padding.

The facts are `engines.hf.ending`'s; here is what they mean for somebody who calls `generate`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from bourn.doctor.finding import CannotTell, Checks, Finding, Fix, broken, note, ok, warning
from bourn.doctor.folder import Folder, ids_in

if TYPE_CHECKING:
    from bourn.engines.hf.prompting.ending import TurnEnd

_RUNS_ON = (
    "`generate` runs on past it to its limit, into turns that nobody asked for; bourn does not"
)


def end_of_turn(folder: Folder) -> Finding:
    if folder.template is None:
        raise CannotTell("there is no chat template to say how a turn ends")
    end = folder.turn_end
    if end is None:
        return note(
            "the chat template writes nothing after an answer",
            "only the model's own end tokens end one",
        )
    if end.text in folder.ends.texts:
        return _no_token(end)
    if end.ids[0] in folder.generate_ends:
        return ok(f"answers end in {_named(folder, end.ids)}, where `generate` stops")
    return broken(
        f"answers end in {_named(folder, end.ids)}, but `generate` stops at {_stops(folder)}",
        _RUNS_ON,
        f"add {end.ids[0]} to eos_token_id in generation_config.json (--fix does)",
        Fix(ends=end.ids),
    )


def _no_token(end: TurnEnd) -> Finding:
    is_ = f"{len(end.ids)} tokens and not one" if len(end.ids) != 1 else "a token of text"
    return warning(
        f"answers end in {end.text!r}, which is {is_}",
        "no end token can be that: it takes a stop string",
        f"bourn takes it as one by itself; elsewhere: --stop {end.text!r}, or "
        f"generate(stop_strings=[{end.text!r}], tokenizer=tokenizer)",
    )


def end_tokens(folder: Folder) -> Finding:
    stated = {where: ids for where, ids in folder.ends.stated.items() if ids}
    ids = tuple(dict.fromkeys(id_ for ids in stated.values() for id_ in ids))
    if not ids:
        return broken(
            "no file names an end token",
            "an answer ends at the limit only",
            "name one: eos_token in tokenizer_config.json, eos_token_id in generation_config.json",
        )
    if strange := [id_ for id_ in ids if not 0 <= id_ < len(folder.tokenizer)]:
        return broken(
            f"end token {strange[0]} is beyond the vocabulary of {len(folder.tokenizer):,} tokens",
            "it is never drawn, so that nothing ends there",
            f"correct it in {_sources(stated, strange[0])}",
        )
    return _unheard(folder) or ok(_told(folder, stated, ids))


def _unheard(folder: Folder) -> Finding | None:
    """The tokenizer's own end token, where `generate` does not know it.

    Where it is also the mark of a turn's end, that is told already.
    """
    known = {*folder.generate_ends, *(folder.turn_end.ids if folder.turn_end else ())}
    own = tuple(set(ids_in(folder.tokenizer.eos_token_id)) - known)
    if not own:
        return None
    worse = warning if folder.generate_ends else broken
    return worse(
        f"the tokenizer ends with {_named(folder, own)}, but `generate` stops at {_stops(folder)}",
        "what was trained with this tokenizer may write it, and `generate` goes on past it",
        f"add {own[0]} to eos_token_id in generation_config.json (--fix does)",
        Fix(ends=own),
    )


def _stops(folder: Folder) -> str:
    return _named(folder, folder.generate_ends) or "nothing"


def _told(folder: Folder, stated: dict[str, tuple[int, ...]], ids: Iterable[int]) -> str:
    return "; ".join(f"{_named(folder, (id_,))} by {_sources(stated, id_)}" for id_ in ids)


def _sources(stated: dict[str, tuple[int, ...]], id_: int) -> str:
    return ", ".join(where for where, ids in stated.items() if id_ in ids)


def _named(folder: Folder, ids: Iterable[int]) -> str:
    """Ids with their texts."""
    return ", ".join(f"{folder.tokenizer.convert_ids_to_tokens(id_)} ({id_})" for id_ in ids)


def beginning_of_text(folder: Folder) -> Finding:
    bos, id_ = folder.tokenizer.bos_token, folder.tokenizer.bos_token_id
    if id_ is None:
        return ok("this model has no token for it")
    added = folder.tokenizer("a").input_ids[:1] == [id_]
    if folder.template is None:
        return ok(f"the tokenizer {'adds' if added else 'does not add'} {bos}")
    written = _leading(folder, bos)
    if written > 1:
        return broken(
            f"the chat template writes {bos} {written} times",
            "answers get worse, or never end: no model is trained so",
            "take all but one out of the template",
        )
    if added and written:
        return warning(
            f"both the chat template and the tokenizer write {bos}",
            "a chat that is rendered to text and tokenised as usual begins with two of them",
            "tokenise with add_special_tokens=False, as apply_chat_template and bourn do",
        )
    if added:
        return warning(
            f"the tokenizer begins each text with {bos}, the chat template does not",
            "a chat begins without the token that all else in training began with",
            "begin the template with {{ bos_token }}",
        )
    return ok(f"{bos}: {'by the template' if written else 'not in use'}")


def _leading(folder: Folder, bos: str) -> int:
    """How often a rendered chat begins with the token."""
    said = folder.chat.write(("user", "Hello"), prompt=True)
    count = 0
    while said.startswith(bos, count * len(bos)):
        count += 1
    return count


def padding(folder: Folder) -> Finding:
    pad = folder.tokenizer.pad_token_id
    if pad is None:
        return ok("there is no token for it, and bourn needs none")
    if pad in folder.ends.ids:
        return note(
            f"{_named(folder, (pad,))} both pads and ends",
            "fine-tuning that leaves padding out of the loss leaves the end out too, so that the "
            "model unlearns to stop",
            "for fine-tuning name another pad token; to generate, it does no harm",
        )
    return ok(f"{_named(folder, (pad,))}, which ends nothing")


CHECKS: Checks[Folder] = {
    "end of turn": end_of_turn,
    "end tokens": end_tokens,
    "beginning of text": beginning_of_text,
    "padding": padding,
}
