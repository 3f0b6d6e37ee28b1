"""What a GGUF file says of itself: its header, read in milliseconds, the weights untouched.

It knows the file format and nothing of engines. Whatever the bytes are, the outcome is facts or a
`LoadFailed`: counts and lengths are bounded, and no more is held than a block and what is wanted.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from bourn.errors import InvalidRequest, LoadFailed
from bourn.types import Sampling


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """What the header tells; None where it does not.

    kind: "model", or else "mmproj" (the eyes of another model), "adapter", "imatrix" …
    size_label: as its maker wrote it, "135M". parameters: counted, of this file alone.
    window: tokens the model was made for. named_templates: further chat templates, by name.
    sampling: the settings its maker recommends. parts: files the model is split into.
    """

    architecture: str
    kind: str = "model"
    name: str | None = None
    size_label: str | None = None
    parameters: int | None = None
    quantisation: str | None = None
    window: int | None = None
    chat_template: str | None = field(default=None, repr=False)
    named_templates: Mapping[str, str] = field(default_factory=dict, repr=False)
    bos_id: int | None = None
    eos_id: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    parts: int = 1

    @property
    def fault(self) -> str | None:
        """Why it is no model of its own; None where it is one."""
        return None if self.kind == "model" else f"it is a part of a model only ({self.kind})"


Value = str | float | list[str] | list[float]
"""Of a key in the header."""


def read(path: Path) -> GgufFacts:
    """The facts in the header of a GGUF file.

    Raises:
        LoadFailed: it is no GGUF file, or a damaged one; says in what way.
    """
    with _opened(path) as header:
        return _facts(header)


def metadata(path: Path, keys: Container[str]) -> dict[str, Value]:
    """What the header says under these keys, arrays too; a vocabulary takes its time and memory.

    Raises:
        LoadFailed: as `read`.
    """
    with _opened(path) as header:
        _check_magic(header)
        header.count(_U64, _MOST_TENSORS, "tensors")
        told = {}
        for _ in range(header.count(_U64, _MOST_KEYS, "keys")):
            key, kind = header.text(_LONGEST_NAME), int(header.number(_U32))
            array = kind == _ARRAY and key in keys
            value = _array(header) if array else _value(header, kind, wanted=key in keys)
            if value is not None and key in keys:
                told[key] = value
        return told


@contextmanager
def _opened(path: Path) -> Iterator[_Header]:
    try:
        with path.open("rb") as file:
            yield _Header(file, path.stat().st_size)
    except _Fault as fault:
        raise LoadFailed(f"{path} {fault}", hint=fault.hint) from None
    except OSError as error:
        raise LoadFailed(
            f"cannot read {path}: {error.strerror or error}", hint="look at the file's permissions"
        ) from None


class _Fault(Exception):
    def __init__(self, fault: str, hint: str = "download it again") -> None:
        super().__init__(fault)
        self.hint = hint


# -- bytes -----------------------------------------------------------------------------------------

_BLOCK = 1 << 20
_U32, _U64 = Struct("<I"), Struct("<Q")
_NUMBERS: Mapping[int, Struct] = {
    kind: Struct(f"<{code}") for kind, code in enumerate("BbHhIif?")
} | {10: _U64, 11: Struct("<q"), 12: Struct("<d")}
_STRING, _ARRAY = 8, 9

# far above what any model has, far below what would hurt
_MOST_KEYS = 100_000
_MOST_TENSORS = 1_000_000
_MOST_ITEMS = 20_000_000
_LONGEST_TEXT = 16 << 20
_LONGEST_NAME = 1 << 16


class _Header:
    """A file read forward, from number to number; holds one block of it."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.size = size
        self.at = 0
        self._file = file
        self._block = b""
        self._base = 0

    def number(self, shape: Struct) -> float:
        start = self._have(shape.size)
        self.at += shape.size
        value: float = shape.unpack_from(self._block, start)[0]
        return value

    def count(self, shape: Struct, most: int, what: str) -> int:
        value = int(self.number(shape))
        if value > most:
            raise _Fault(f"is damaged: it claims {value:,} {what}")
        return value

    def raw(self, size: int) -> bytes:
        start = self._have(size)
        self.at += size
        return self._block[start : start + size]

    def text(self, longest: int) -> str:
        return self.raw(self.count(_U64, longest, "bytes of text")).decode(errors="replace")

    def skip(self, size: int) -> None:
        self.at += size
        if self.at > self.size:
            raise _Fault("is cut short, within its header")

    def skip_texts(self, count: int) -> None:
        """A vocabulary is most of a header, so this loop is what reading costs."""
        unpack = _U64.unpack_from
        while count:
            at, block = self._have(8), self._block
            left = count
            try:
                for left in range(count, 0, -1):  # noqa: B007  # what is left when the block ends
                    at += 8 + unpack(block, at)[0]
                left = 0
            except (struct.error, OverflowError):
                pass  # the next length lies beyond the block, or beyond all measure
            count, self.at = left, self._base + at
        self.skip(0)

    def _have(self, size: int) -> int:
        """Where in the block the next `size` bytes begin, once they are there."""
        start = self.at - self._base
        if start + size <= len(self._block):
            return start
        if self.at + size <= self.size:
            self._file.seek(self.at)
            self._block = self._file.read(max(size, _BLOCK))
            self._base = self.at
        if self.at != self._base or len(self._block) < size:
            raise _Fault("is cut short, within its header")
        return 0


# -- the parts of a header -------------------------------------------------------------------------

_Value = str | float


def _facts(header: _Header) -> GgufFacts:
    _check_magic(header)
    tensors = header.count(_U64, _MOST_TENSORS, "tensors")
    keys = header.count(_U64, _MOST_KEYS, "keys")
    told: dict[str, _Value] = {}
    for _ in range(keys):
        key = header.text(_LONGEST_NAME)
        value = _value(header, int(header.number(_U32)), wanted=_is_wanted(key))
        if value is not None:
            told[key] = value
    parameters = _parameters(header, tensors, alignment=_whole(told, "general.alignment") or 32)
    return _told(told, parameters)


def _check_magic(header: _Header) -> None:
    if header.size == 0:
        raise _Fault("is empty")
    magic = header.raw(min(4, header.size))
    if magic != b"GGUF":
        raise _no_gguf(magic)
    version = int(header.number(_U32))
    if version in (2, 3):
        return
    if version & 0xFFFF == 0:
        raise _Fault("is written for big-endian machines", "take a little-endian file, as most are")
    if version == 1:
        raise _Fault("is of GGUF version 1, of 2023", "take a newer file of this model")
    raise _Fault(f"is of GGUF version {version}, which is unknown here", "upgrade bourn")


def _no_gguf(magic: bytes) -> _Fault:
    if magic == b"vers":
        return _Fault("is a pointer of Git LFS, not the file", "run `git lfs pull`")
    if magic.lstrip().startswith((b"<", b"{")):
        return _Fault("is no GGUF file but a page that a server sent instead")
    if magic[::-1] in (b"ggml", b"ggmf", b"ggjt"):
        return _Fault("is in a format before GGUF", "take a GGUF file of this model")
    return _Fault("is no GGUF file", "give a .gguf file, or a checkpoint's folder")


def _value(header: _Header, kind: int, *, wanted: bool) -> _Value | None:
    """The value, where it is wanted and no array; all others are passed over."""
    if kind in _NUMBERS:
        return header.number(_NUMBERS[kind])
    if kind == _ARRAY:
        _skip_array(header)
        return None
    if kind != _STRING:
        raise _Fault(f"is damaged: it has a value of the unknown kind {kind}")
    if wanted:
        return header.text(_LONGEST_TEXT)
    header.skip_texts(1)
    return None


def _array(header: _Header) -> list[str] | list[float]:
    kind = int(header.number(_U32))
    count = header.count(_U64, _MOST_ITEMS, "items in an array")
    if kind == _STRING:
        return [header.text(_LONGEST_TEXT) for _ in range(count)]
    if kind not in _NUMBERS:
        raise _Fault(f"is damaged: it has an array of the unknown kind {kind}")
    return [header.number(_NUMBERS[kind]) for _ in range(count)]


def _skip_array(header: _Header) -> None:
    kind = int(header.number(_U32))
    count = header.count(_U64, _MOST_ITEMS, "items in an array")
    if kind == _STRING:
        header.skip_texts(count)
    elif kind in _NUMBERS:
        header.skip(count * _NUMBERS[kind].size)
    else:
        raise _Fault(f"is damaged: it has an array of the unknown kind {kind}")


def _parameters(header: _Header, tensors: int, *, alignment: int) -> int:
    """How many weights there are; and that the file does not end before the last tensor begins."""
    total = last = 0
    for _ in range(tensors):
        header.skip_texts(1)
        dimensions = header.count(_U32, 8, "dimensions of a tensor")
        total += prod(int(header.number(_U64)) for _ in range(dimensions))
        header.skip(4)
        last = max(last, int(header.number(_U64)))
    weights = -(-header.at // alignment) * alignment
    if tensors and weights + last >= header.size:
        raise _Fault("is cut short: weights are missing", "download it again, to its end")
    return total


# -- what they mean --------------------------------------------------------------------------------

_TEMPLATE = "tokenizer.chat_template"
_SAMPLING: Mapping[str, str] = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_p": "top_p",
    "general.sampling.top_k": "top_k",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}
_TEXTS = frozenset(
    {"general.architecture", "general.type", "general.name", "general.size_label", _TEMPLATE}
)

_NOT_SAID = 1024  # a flag in the file type: it was guessed
_FILE_TYPES = """
    F32 F16 Q4_0 Q4_1 Q4_1 Q4_2 Q4_3 Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S
    Q5_K_M Q6_K IQ2_XXS IQ2_XS Q2_K_S IQ3_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS
    IQ1_M BF16 Q4_0 Q4_0 Q4_0 TQ1_0 TQ2_0 MXFP4 NVFP4 Q1_0
"""
QUANTISATIONS: Mapping[int, str] = dict(enumerate(_FILE_TYPES.split()))
"""The names of `general.file_type`."""


def _is_wanted(key: str) -> bool:
    return key in _TEXTS or key.startswith(f"{_TEMPLATE}.")


def _told(told: Mapping[str, _Value], parameters: int) -> GgufFacts:
    architecture = _text(told, "general.architecture")
    if _whole(told, "split.no"):
        raise _Fault("is a later part of a split model", "give the first part, …-00001-of-…")
    if not architecture:
        raise _Fault("names no architecture", "it may be a part of something else")
    file_type = _whole(told, "general.file_type")
    return GgufFacts(
        architecture=architecture,
        kind=_text(told, "general.type") or ("mmproj" if architecture == "clip" else "model"),
        name=_text(told, "general.name"),
        size_label=_text(told, "general.size_label"),
        parameters=parameters or None,
        quantisation=None if file_type is None else QUANTISATIONS.get(file_type & ~_NOT_SAID),
        window=_whole(told, f"{architecture}.context_length"),
        chat_template=_text(told, _TEMPLATE),
        named_templates=dict(_named_templates(told)),
        bos_id=_whole(told, "tokenizer.ggml.bos_token_id"),
        eos_id=_whole(told, "tokenizer.ggml.eos_token_id"),
        sampling=sampling_of((name, told[key]) for key, name in _SAMPLING.items() if key in told),
        parts=max(1, _whole(told, "split.count") or 1),
    )


def _named_templates(told: Mapping[str, _Value]) -> Iterator[tuple[str, str]]:
    for key, value in told.items():
        if key.startswith(f"{_TEMPLATE}.") and isinstance(value, str):
            yield key.removeprefix(f"{_TEMPLATE}."), value


def _text(told: Mapping[str, _Value], key: str) -> str | None:
    value = told.get(key)
    return value if isinstance(value, str) and value else None


def _whole(told: Mapping[str, _Value], key: str) -> int | None:
    value = told.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def sampling_of(said: Iterable[tuple[str, object]]) -> Sampling:
    """The settings, by `Sampling`'s names, without those that make no sense (a top_k of -1).

    Numbers are rounded to what a 32-bit float holds, so that 0.95 is 0.95.
    """
    sampling = Sampling()
    for name, value in said:
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        number = float(f"{value:.7g}")
        exact = int(value) if name in _WHOLE and number.is_integer() else number
        try:
            sampling = replace(sampling, **{name: exact})  # type: ignore[arg-type]  # whole, or not
        except InvalidRequest:
            continue
    return sampling


_WHOLE = frozenset({"top_k", "seed"})
