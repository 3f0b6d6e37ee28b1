"""Laws of a vocabulary: whatever ids come, the stream is what the tokenizer decodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from bourn.engines.hf.prompting.vocabulary import Vocabulary
from bourn.text.detokenize import Utf8
from tests.support import tiny_tokenizers as tiny
from tests.text.cutting import HARD

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

law = settings(deadline=None, max_examples=100)  # a busy machine is no counterexample

OF_BYTES: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "chatml": tiny.chatml,
    "llama3": tiny.llama3,
    "no template": tiny.no_template,
}
OF_PIECES: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "spm": tiny.spm,
    "spm, no prefix": lambda: tiny.spm(prefix_space=False),
    "gemma": tiny.gemma,
    "mistral": tiny.mistral,
    "llama2": tiny.llama2,
}
PREFIXED = {"spm", "mistral", "llama2"}  # a space is put before each text, and taken off again
OTHERS: dict[str, Callable[[], PreTrainedTokenizerBase]] = {"t5": tiny.t5, "bert": tiny.bert}
ALL = OF_BYTES | OF_PIECES | OTHERS

TEXTS = st.lists(st.one_of(st.text(max_size=4), st.sampled_from(HARD)), max_size=12).map("".join)


@cache
def tokenizer(kind: str) -> PreTrainedTokenizerBase:
    return ALL[kind]()


@cache
def vocabulary(kind: str) -> Vocabulary:
    return Vocabulary(tokenizer(kind))


@cache
def spelled_bytes(kind: str) -> frozenset[int]:
    """Tokens that are one byte each; what their sum is, only their neighbours tell."""
    named = tokenizer(kind).get_vocab().items()
    return frozenset(token for name, token in named if name.startswith("<0x"))


def decoded(kind: str, ids: Sequence[int]) -> str:
    known = [token for token in ids if token < vocabulary(kind).size]
    return str(
        tokenizer(kind).decode(known, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    )


def streamed(kind: str, prompt: Sequence[int], ids: Sequence[int]) -> str:
    detokenizer = vocabulary(kind).detokenizer(prompt)
    return "".join([*(detokenizer.feed((token,)) for token in ids), detokenizer.flush()])


def any_ids(kind: str) -> st.SearchStrategy[list[int]]:
    """Any tokens, control tokens and ids that are none among them."""
    return st.lists(st.integers(0, vocabulary(kind).size + 2), max_size=40)


@law
@given(st.sampled_from(sorted(ALL)), st.data())
def test_any_ids_after_any_prompt(kind: str, data: st.DataObject) -> None:
    ids = [token for token in data.draw(any_ids(kind)) if token not in spelled_bytes(kind)]
    end = data.draw(st.integers(0, len(ids)))
    prompt, whole = decoded(kind, ids[:end]), decoded(kind, ids)
    given = streamed(kind, ids[:end], ids[end:])
    if prompt.endswith("\ufffd"):  # it may end inside a character: another law
        assert given == whole[len(whole) - len(given) :]
    else:
        assert given == whole[len(prompt) :]


@law
@given(st.sampled_from(sorted(OF_BYTES | OF_PIECES)), st.data())
def test_any_bytes_after_any_prompt(kind: str, data: st.DataObject) -> None:
    """Broken characters too, which some tokenizers count in their own way: told by the bytes."""
    ids = data.draw(any_ids(kind))
    end = data.draw(st.integers(0, len(ids)))
    spelled = [vocabulary(kind).token_bytes(token) for token in ids]
    control = set(tokenizer(kind).added_tokens_decoder)
    seen = [
        b"" if n in control and decoded(kind, [n]) == "" else b
        for n, b in zip(ids, spelled, strict=True)
    ]
    certain = Utf8()
    prompt = certain.feed(b"".join(seen[:end]))
    cut_off = certain.flush()
    whole = b"".join(seen).decode("utf-8", "replace")
    new = whole[len(prompt) :].removeprefix(cut_off)
    if kind in PREFIXED and not any(seen[:end]):
        new = new.removeprefix(" ")
    assert streamed(kind, ids[:end], ids[end:]) == new


@law
@given(st.sampled_from(sorted(OF_BYTES | OF_PIECES)), TEXTS, TEXTS)
def test_a_text_after_a_text(kind: str, before: str, text: str) -> None:
    """Whole characters, in all their bytes: what is decoded is what was encoded."""
    prompt = vocabulary(kind).encode_raw(before)
    ids = vocabulary(kind).encode(text)
    whole = decoded(kind, [*prompt, *ids])
    assert whole.startswith(decoded(kind, prompt))
    assert streamed(kind, prompt, ids) == whole[len(decoded(kind, prompt)) :]


@law
@given(st.sampled_from(sorted(ALL)), st.data())
def test_however_many_ids_come_at_once(kind: str, data: st.DataObject) -> None:
    ids = data.draw(any_ids(kind))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=5)))
    detokenizer = vocabulary(kind).detokenizer()
    parts = [ids[a:b] for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    given = "".join([*map(detokenizer.feed, parts), detokenizer.flush()])
    assert given == streamed(kind, (), ids)


@law
@given(st.sampled_from(sorted(ALL)), TEXTS)
def test_a_raw_prompt_begins_once_and_is_the_text(kind: str, text: str) -> None:
    before, ids = vocabulary(kind).before, vocabulary(kind).encode_raw(text)
    assert tuple(ids[: len(before)]) == before
    rest = ids[len(before) :]
    assert vocabulary(kind).encode(text) in (rest, ids)


@law
@given(st.sampled_from(sorted(OF_BYTES)), TEXTS)
def test_the_bytes_of_tokens_are_the_bytes_of_the_text(kind: str, text: str) -> None:
    ids = vocabulary(kind).encode(text)
    assert b"".join(map(vocabulary(kind).token_bytes, ids)) == text.encode()
