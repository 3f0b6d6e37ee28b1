"""What a process and its child with an engine say to each other, and how that is written down.

A frame is four bytes of length and then JSON: `[kind, what]`. Never pickle: reading a frame makes
values of the types named here and runs nothing. Pure: no sockets, no clock.

    parent:  Ask · Count · Cancel · Hold                      about one request each, by its id
    child:   Hello · Loading · Ready    once;   Step · Counted · Ended · Failed    then

All that was said in one moment, whoever it is for, goes in one `Step`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

from bourn.engines.base import ModelInfo
from bourn.error_values import error_object, error_of
from bourn.errors import EngineError, InvalidRequest, UnsupportedField
from bourn.types import Piece, Request, Sampling
from bourn.values import codec

LIMIT = 64 * 1024 * 1024
"""Bytes of one frame: room for a few images."""

_HEAD = 4  # bytes that hold the length

_ITS_LOG = "the log of the model's process may tell more"


# -- what is said ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """The child's first word; `key` proves where anybody could connect that it is the child."""

    key: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    id: int
    request: Request


@dataclass(frozen=True, slots=True)
class Count:
    id: int
    request: Request


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody wants it any more; nothing needs to be answered."""

    id: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Its reader is slow: make no more of it for now; or, with `on` False, go on."""

    id: int
    on: bool = True


@dataclass(frozen=True, slots=True)
class Loading:
    """`done` of `total` parts are loaded."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Ready:
    info: ModelInfo


@dataclass(frozen=True, slots=True)
class Step:
    """The pieces of one moment, each with the id of its request, in order."""

    pieces: tuple[tuple[int, Piece], ...]


@dataclass(frozen=True, slots=True)
class Counted:
    id: int
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Ended:
    """There are no more pieces."""

    id: int


@dataclass(frozen=True, slots=True)
class Failed:
    """`id` None: the engine could not be started."""

    id: int | None
    error: Exception


Frame = Hello | Ask | Count | Cancel | Hold | Loading | Ready | Step | Counted | Ended | Failed


# -- pieces: a row each, most of them short --------------------------------------------------------

_piece = codec(Piece)
_rest = attrgetter(*(f.name for f in fields(Piece) if f.name not in {"text", "tokens"}))
_NOTHING = _rest(Piece())


def _write_step(step: Step) -> list[list[Any]]:
    return [
        [id_, piece.text, piece.tokens] if _rest(piece) == _NOTHING else [id_, _piece.write(piece)]
        for id_, piece in step.pieces
    ]


def _read_step(rows: Iterable[list[Any]]) -> Step:
    return Step(
        tuple(
            [
                (row[0], Piece(row[1], tokens=row[2]) if len(row) == 3 else _piece.read(row[1]))
                for row in rows
            ]
        )
    )


# -- requests --------------------------------------------------------------------------------------

TRAVELS = frozenset(
    {
        *(field.name for kind in (Request, Sampling) for field in fields(kind)),
        *("token ids as prompt", "images"),
    }
) - {"engine_options"}
"""What `Request.asks` may name and a frame can hold. Engine options are objects of the user's."""

_HERE = "it is an object of this process, and the model runs in another: use bourn.hf(...) for it"


def abroad(info: ModelInfo) -> ModelInfo:
    """The same model, as far as it can be asked through frames."""
    lost = info.honours - TRAVELS
    return replace(
        info, honours=info.honours & TRAVELS, why={**info.why, **dict.fromkeys(lost, _HERE)}
    )


def _check_travels(request: Request) -> None:
    for name in request.engine_options:
        raise UnsupportedField(name, "the model's process", hint=_HERE)


# -- writing and reading ---------------------------------------------------------------------------

# ASCII, which is the quickest, and keeps half a surrogate pair as it is
_dump = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_load = json.JSONDecoder().decode


_ALIKE: tuple[type, ...] = (Hello, Ask, Count, Cancel, Hold, Loading, Ready, Counted, Ended)
_WRITERS: dict[type, Callable[[Any], Any]] = {
    **{alike: codec(alike).write for alike in _ALIKE},
    Step: _write_step,
    Failed: lambda frame: [frame.id, error_object(frame.error, hint=_ITS_LOG)],
}
_READERS: dict[str, Callable[[Any], Frame]] = {
    **{alike.__name__: codec(alike).read for alike in _ALIKE},
    Step.__name__: _read_step,
    Failed.__name__: lambda told: Failed(told[0], error_of(told[1])),
}


def encode(frame: Frame) -> bytes:
    """A frame as it travels.

    Raises:
        UnsupportedField: it holds a request with what only this process can use.
        InvalidRequest: it holds what JSON cannot say, or is too large.
    """
    kind = type(frame)
    if isinstance(frame, Ask | Count):
        _check_travels(frame.request)
    try:
        body = _dump([kind.__name__, _WRITERS[kind](frame)]).encode("ascii")
    except (TypeError, ValueError) as error:
        raise InvalidRequest(
            f"this cannot be told to the model's process: {error}",
            hint="give plain JSON: texts, numbers, lists, and objects with texts as keys",
        ) from error
    if len(body) > LIMIT:
        raise InvalidRequest(
            f"{len(body):,} bytes are too many for the model's process", hint=f"{LIMIT:,} are not"
        )
    return len(body).to_bytes(_HEAD, "big") + body


class Decoder:
    """From bytes, however they are cut, to frames.

    limit: bytes of a frame; it may be changed between two of them.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are now complete. To be gone through before more is fed.

        Raises:
            EngineError: this is not what was agreed upon; nothing after it can be trusted.
        """
        self._held += data
        while (body := self._body()) is not None:
            yield _decode(body)

    def _body(self) -> bytearray | None:
        """The next frame's; None where it is not complete."""
        size = int.from_bytes(self._held[:_HEAD], "big")
        if len(self._held) < _HEAD:
            return None
        if size > self.limit:
            raise EngineError(f"a frame of {size:,} bytes, where {self.limit:,} are allowed")
        if len(self._held) < _HEAD + size:
            return None
        body = self._held[_HEAD : _HEAD + size]
        del self._held[: _HEAD + size]
        return body


def _decode(body: bytearray) -> Frame:
    try:
        kind, told = _load(body.decode("ascii"))
        return _READERS[kind](told)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise EngineError(
            f"a frame that cannot be read: {type(error).__name__}: {error}"
        ) from error
