"""The tokenizers of transformers behind one face that many threads can use, and how they spell.

It knows no control tokens and no prompts: `vocabulary` does.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from bourn.text.detokenize import byte_fallback, byte_level

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Spelling:
    """Tokens stand for bytes of their own. prefix: what is taken off where a text begins."""

    read: Callable[[str], bytes]
    prefix: str = ""


class Codec(Protocol):
    """A tokenizer, as far as it is needed here. bare: without what it adds by itself."""

    def encode(self, text: str, *, bare: bool) -> list[int]: ...

    def decode(self, ids: list[int]) -> str:
        """Control tokens included, spaces as they are."""
        ...

    def name(self, token: int) -> str | None: ...

    @property
    def spelling(self) -> Spelling | None: ...


def codec_of(tokenizer: PreTrainedTokenizerBase, *, own: bool) -> Codec:
    """own: nobody else uses the tokenizer, so that it need not be copied."""
    if not _is_plain(tokenizer):
        return _Slow(tokenizer)
    backend = tokenizer.backend_tokenizer
    try:
        return _Fast(backend if own else copy.deepcopy(backend))
    except Exception:  # noqa: BLE001  # all it raises is Exception: a part of it is Python code
        return _Slow(tokenizer)


def _is_plain(tokenizer: Any) -> bool:
    """Whether it is fast, and its class adds no ways of its own."""
    from transformers import PreTrainedTokenizerFast as Fast

    own = type(tokenizer)
    ways = ("decode", "_decode", "_encode_plus", "convert_tokens_to_string")
    return isinstance(tokenizer, Fast) and all(
        getattr(own, way) is getattr(Fast, way) for way in ways
    )


class _Fast:
    """One of the `tokenizers` library, which nobody else changes: it can be read from anywhere."""

    def __init__(self, backend: Tokenizer) -> None:
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = False
        self._backend = backend
        self.spelling = _spelling_of(backend)

    def encode(self, text: str, *, bare: bool) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=not bare).ids)

    def decode(self, ids: list[int]) -> str:
        return str(self._backend.decode(ids, skip_special_tokens=False))

    def name(self, token: int) -> str | None:
        return self._backend.id_to_token(token)


class _Slow:
    """One that Python code takes part in: for one thread at a time."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        from transformers import ByT5Tokenizer

        self._tokenizer = tokenizer
        self._lock = Lock()
        self.spelling: Spelling | None = None
        if isinstance(tokenizer, ByT5Tokenizer):
            self.spelling = Spelling(_numbered)

    def encode(self, text: str, *, bare: bool) -> list[int]:
        with self._lock:
            ids = self._tokenizer.encode(text, add_special_tokens=not bare, verbose=False)
            return list(ids)

    def decode(self, ids: list[int]) -> str:
        with self._lock:
            return str(self._tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def name(self, token: int) -> str | None:
        with self._lock:
            name: str | None = self._tokenizer.convert_ids_to_tokens(token)
            return name


def _numbered(name: str) -> bytes:
    """ByT5 writes a byte as the character of that number."""
    return bytes([ord(name)]) if len(name) == 1 and ord(name) < 256 else name.encode()


_FIRST_SPACE = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def _spelling_of(backend: Tokenizer) -> Spelling | None:
    """Told by its decoder's own description; None where tokens depend on each other."""
    if backend.decoder is None:
        return None
    told = json.loads(backend.decoder.__getstate__())
    match told.get("decoders", [told]):
        case [{"type": "ByteLevel"}]:
            return Spelling(_byte_level_as_decoded(backend))
        case [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            *rest,
        ] if rest in ([], [_FIRST_SPACE]):
            return Spelling(byte_fallback, " " if rest else "")
    return None


def _byte_level_as_decoded(backend: Tokenizer) -> Callable[[str], bytes]:
    """A token with any character that stands for no byte stands for itself, as a whole."""
    decoder = backend.decoder

    def read(name: str) -> bytes:
        text = str(decoder.decode([name]))
        return byte_level(name) if "\ufffd" in text else text.encode()

    return read
