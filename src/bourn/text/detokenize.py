"""From bytes and token ids to text, each character as soon as later tokens cannot change it.

Knows no tokenizer, only a function that tells what ids stand for. Three ways in, one face:

- `Utf8`: bytes.
- `ByteDetokenizer`: ids, where each token stands for bytes of its own; `byte_level` and
  `byte_fallback` tell which. To be preferred: no character is ever in doubt for long.
- `ContextDetokenizer`: ids, where what a token stands for depends on those before it, or where
  only a function that decodes is to be had.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

REPLACEMENT = "\ufffd"

KEPT = 6
"""Tokens of context that a decoder is given, at least."""

WINDOW = 16
"""Tokens decoded at once, at most; twice that while a character is unfinished."""


class Detokenizer(Protocol):
    """Law: what `feed` and `flush` give, joined, is the decoded whole without its prompt."""

    def feed(self, ids: Iterable[int]) -> str: ...

    def flush(self) -> str:
        """The text has ended: what stands for a character that was cut off."""
        ...


class Utf8:
    """Holds the bytes of an unfinished character, and nothing else.

    An invalid byte becomes U+FFFD at once; a character cut off by the end, one U+FFFD on `flush`.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        return self._decoder.decode(data)

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class ByteDetokenizer:
    """token_bytes: the bytes of one token; none for a control token that is not to be seen.

    prompt: the ids before. Never given again; but a character that it left unfinished is given
    once, when it is finished.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], prompt: Sequence[int] = ()) -> None:
        self._bytes = token_bytes
        self._utf8 = Utf8()
        end = b""
        for token in reversed(prompt):
            if len(end) >= 3:  # all that an unfinished character can have
                break
            end = token_bytes(token) + end
        self._utf8.feed(end)

    def feed(self, ids: Iterable[int]) -> str:
        return self._utf8.feed(b"".join(map(self._bytes, ids)))

    def flush(self) -> str:
        return self._utf8.flush()


class ContextDetokenizer:
    """decode: the text of some ids; more ids at the end change nothing before them.

    (Leave out its clean-up of spaces. An unfinished character may be U+FFFD, once or for each of
    its bytes.) The first space of all is treated as `decode` does; after a prompt there is none
    that is first. prompt: as in `ByteDetokenizer`.

    U+FFFD at the end of the text is held for three tokens more. After that it is no unfinished
    character, since none has more than four bytes.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], prompt: Sequence[int] = ()) -> None:
        self._decode = decode
        whole, unfinished = self._parts(prompt)
        self._ids = [*whole, *unfinished]
        self._text = decode(self._ids)
        self._sent = self._certain(decode(whole))
        self._prompts = len(self._text) - self._sent  # how many U+FFFD are the prompt's own
        self._doubts: list[int] = []  # for each that is held, the number of the token it came with
        self._count = 0

    def feed(self, ids: Iterable[int]) -> str:
        return "".join([self._add(token) for token in ids])

    def flush(self) -> str:
        return self._give(len(self._text))

    def _add(self, token: int) -> str:
        self._count += 1
        self._ids.append(token)
        before, self._text = self._text, self._decode(self._ids)
        if self._text and len(self._text) == self._sent:
            self._ids.pop()  # it stands for nothing, and is no context either
            return ""
        self._doubt(before)
        given = self._give(len(self._text) - len(self._doubts))
        if len(self._ids) > (2 * WINDOW if self._doubts else WINDOW):
            self._forget()
        return given

    def _doubt(self, before: str) -> None:
        """Which U+FFFD at the end may yet become a character."""
        certain = len(self._text.rstrip(REPLACEMENT))
        if certain > self._sent:
            self._doubts.clear()
        number = len(self._text) - max(certain, self._sent)
        if len(self._text) < len(before):
            # Some decoders write one for each byte: a character is finished now.
            number = self._prompts = 0
        self._doubts += [self._count] * (number - len(self._doubts))
        del self._doubts[number:]
        while self._doubts and self._doubts[0] <= self._count - 3:
            del self._doubts[0]

    def _give(self, end: int) -> str:
        given = self._text[self._sent : end]
        self._sent = max(self._sent, end)
        if self._prompts and given:
            own = min(self._prompts, len(given) - len(given.lstrip(REPLACEMENT)))
            self._prompts = self._prompts - own if own == len(given) else 0
            return given[own:]
        return given

    def _forget(self) -> None:
        """The oldest tokens go. Counted from its end the text stays the same."""
        held = len(self._text) - self._sent
        self._ids = self._end_of(self._ids)
        self._text = self._decode(self._ids)
        self._sent = max(0, len(self._text) - held)

    def _end_of(self, ids: Sequence[int]) -> list[int]:
        """The last few ids, all where they stand for nothing.

        Where several bytes that are no character make each other unreadable, the shortest text is
        the one that begins with a character.
        """
        ends = [list(ids[-size:]) for size in range(KEPT, KEPT + 4)]
        texts = [self._decode(end) for end in ends]
        if not any(texts):
            return list(ids)
        return ends[texts.index(min(filter(None, texts), key=len))]

    def _parts(self, prompt: Sequence[int]) -> tuple[list[int], list[int]]:
        """The end of the prompt, and the ids of a character that it leaves unfinished."""
        for number in range(4):
            border = len(prompt) - number
            end = self._end_of(prompt[:border])
            if not self._decode(end).endswith(REPLACEMENT):
                break
        return end, list(prompt[border:])

    def _certain(self, whole: str) -> int:
        """How much of the prompt's text cannot change any more."""
        if self._text.startswith(whole.rstrip(REPLACEMENT)):
            return len(self._text.rstrip(REPLACEMENT))
        return len(whole)


def byte_level(token: str) -> bytes:
    """The bytes of a token of a byte-level vocabulary, as GPT-2, Llama 3 and Qwen have it.

    Such vocabularies are written with one visible character for each byte.
    """
    return b"".join([_BYTES.get(character) or character.encode() for character in token])


def byte_fallback(token: str) -> bytes:
    """The bytes of a token of a SentencePiece vocabulary, as Llama 2, Mistral and Gemma have it.

    The space before a text's first word, which SentencePiece adds and removes, stays.
    """
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.replace("▁", " ").encode()


def _byte_characters() -> dict[str, bytes]:
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    characters = {chr(byte): byte for byte in visible}
    characters |= {chr(256 + number): byte for number, byte in enumerate(hidden)}
    return {character: bytes([byte]) for character, byte in characters.items()}


_BYTES = _byte_characters()
