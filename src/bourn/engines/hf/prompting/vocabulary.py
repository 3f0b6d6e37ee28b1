"""What a tokenizer's ids stand for: text to ids, ids to bytes, and bytes to a streamed text.

Laws. What a detokenizer gives, joined, is what the tokenizer decodes of prompt and answer, without
control tokens and without clean-up of spaces, less the prompt's text. So an answer's first space
is taken off only where the prompt has no text at all. One thing is our own: bytes that are no
character become U+FFFD as Unicode counts them, however a tokenizer does.

It knows nothing of chats, of models and of tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bourn.engines.hf.prompting.codec import codec_of
from bourn.text.detokenize import (
    WINDOW,
    ByteDetokenizer,
    ContextDetokenizer,
    Detokenizer,
    Utf8,
    byte_fallback,
)
from bourn.text.families import FAMILIES, family_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_RESERVED = re.compile(r"(<\|?|\[)(unused|reserved)[a-z_ ]*\d+(\|?>|\])")
"""How models call the rows that they keep free: no text, even where nobody says so."""

_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")


class Vocabulary:
    """The tokens of one model, and what they stand for. Safe from many threads at once.

    marks: what the model writes to set apart reasoning and calls (`marks_of`): control tokens that
        these are made of stay in the text, for others to read them.
    own: nobody else uses the tokenizer. If somebody may, a fast one is copied, since another
        thread's truncation would cut our prompts too; of 150,000 tokens that takes a second.
    closes: whether a raw prompt keeps what the tokenizer puts after a text. Encoder-decoder models
        read whole texts; for all others a prompt is to be gone on with, and has no end.

    size: what ids are smaller than. before: what the tokenizer begins each text with.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        marks: Iterable[str] = (),
        own: bool = False,
        closes: bool = False,
    ) -> None:
        self._codec = codec_of(tokenizer, own=own)
        self.size = max(tokenizer.get_vocab().values(), default=-1) + 1
        self._control = _control_ids(tokenizer)
        self._marks = tuple(marks)
        self._bytes: dict[int, bytes] = {}
        self._visible: dict[int, bool] = {}
        self._spelling = self._codec.spelling
        self._anchor = self._codec.encode("a", bare=True)[-1:]
        self.before, after = self._added()
        self._after = after if closes else ()

    def detokenizer(self, prompt: Sequence[int] = ()) -> Detokenizer:
        """From the ids that follow this prompt to their text, each character once it is certain."""
        end = self._end_of(prompt)
        if self._spelling is None:
            return ContextDetokenizer(self._decode, end)
        said = Utf8()
        said.feed(b"".join(map(self.token_bytes, end)))
        # What the answer's first text begins with, and is not the answer's.
        extra = said.flush() if end else self._spelling.prefix
        answer = ByteDetokenizer(self._shown_bytes, end)
        return _Without(extra, answer) if extra else answer

    def token(self, token: int) -> str:
        r"""Its text, a control token's name; a part of a character is written as `\xf0\x9f`."""
        return self.token_bytes(token).decode("utf-8", "backslashreplace")

    def token_bytes(self, token: int) -> bytes:
        """Exactly what it stands for; a control token's name; nothing where there is no token."""
        found = self._bytes.get(token)
        if found is None:
            found = self._bytes[token] = self._read(token)
        return found

    def encode(self, text: str) -> list[int]:
        """The ids of a text, the control tokens that are written in it included; none added."""
        return self._codec.encode(text, bare=True)

    def encode_raw(self, text: str) -> list[int]:
        """The ids of a whole prompt, which begins as the tokenizer begins each text.

        That beginning is there once, whether or not the text has it too.
        """
        ids = self.encode(text)
        begun = tuple(ids[: len(self.before)]) == self.before
        return [*(() if begun else self.before), *ids, *self._after]

    def _end_of(self, prompt: Sequence[int]) -> list[int]:
        """The last ids of a prompt that are seen, as many as can matter; none where none is."""
        end: list[int] = []
        for token in reversed(prompt):
            if self._shown(token):
                end.append(token)
            if len(end) == 2 * WINDOW:
                break
        return end[::-1]

    def _shown(self, token: int) -> bool:
        found = self._visible.get(token)
        if found is None:
            found = self._visible[token] = self._is_text(token)
        return found

    def _is_text(self, token: int) -> bool:
        name = self._name(token)
        if not name:
            return False
        if token in self._control:
            return any(name in mark for mark in self._marks)
        return not _RESERVED.fullmatch(name)

    def _shown_bytes(self, token: int) -> bytes:
        return self.token_bytes(token) if self._shown(token) else b""

    def _decode(self, ids: Sequence[int]) -> str:
        return self._codec.decode([token for token in ids if self._shown(token)])

    def _name(self, token: int) -> str | None:
        return self._codec.name(token) if 0 <= token < self.size else None

    def _read(self, token: int) -> bytes:
        name = self._name(token)
        if name is None:
            return b""
        if token in self._control:
            return name.encode()
        if self._spelling is not None:
            return self._spelling.read(name)
        return byte_fallback(name) if _BYTE.fullmatch(name) else self._in_text(token).encode()

    def _in_text(self, token: int) -> str:
        """What it adds to a text that has begun."""
        begun = self._codec.decode(self._anchor)
        both = self._codec.decode([*self._anchor, token])
        return both[len(begun) :] if both.startswith(begun) else self._codec.decode([token])

    def _added(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What the tokenizer puts before a text, and after it."""
        alone, whole = (tuple(self._codec.encode("a", bare=bare)) for bare in (True, False))
        for at in range(len(whole) - len(alone) + 1 if alone else 0):
            if whole[at : at + len(alone)] == alone:
                return whole[:at], whole[at + len(alone) :]
        return (), ()


def marks_of(template: str | None) -> frozenset[str]:
    """The marks of the family that a chat template belongs to: what `Vocabulary` must leave."""
    family = family_of(template or "")
    sections = FAMILIES[family].sections.values() if family else ()
    return frozenset(mark for section in sections for mark in section.marks)


class _Without:
    """Takes something off the beginning of the answer, if it begins with that."""

    def __init__(self, extra: str, answer: Detokenizer) -> None:
        self._extra = extra
        self._answer = answer

    def feed(self, ids: Iterable[int]) -> str:
        return self._rest(self._answer.feed(ids))

    def flush(self) -> str:
        return self._rest(self._answer.flush())

    def _rest(self, text: str) -> str:
        if text and self._extra:
            text, self._extra = text.removeprefix(self._extra), ""
        return text


def _control_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    added = tokenizer.added_tokens_decoder.items()
    special = {token for token, about in added if about.special}
    return frozenset(special.union(tokenizer.all_special_ids))
