"""Whatever bytes a file has, reading its header gives facts or a LoadFailed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given
from hypothesis import strategies as st

from bourn.catalog.gguf import GgufFacts, read
from bourn.errors import LoadFailed
from tests.support.gguf_writer import TINY, Tensor, gguf_bytes

RAW = gguf_bytes({**TINY, "general.sampling.temp": 0.7}, [Tensor("a", (4, 4)), Tensor("b", (2,))])


def outcome(raw: bytes) -> GgufFacts | LoadFailed:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        path.write_bytes(raw)
        try:
            return read(path)
        except LoadFailed as fault:
            return fault


@given(st.binary(max_size=300))
def test_any_bytes(raw: bytes) -> None:
    assert isinstance(outcome(raw), LoadFailed)


@given(st.binary(max_size=300))
def test_any_bytes_after_a_good_beginning(raw: bytes) -> None:
    assert isinstance(outcome(RAW[:24] + raw), GgufFacts | LoadFailed)


@given(
    st.lists(st.tuples(st.integers(0, len(RAW) - 1), st.integers(0, 255)), min_size=1, max_size=8)
)
@example([(RAW.index(b"Tiny") - 1, 128)])  # a length near 2 ** 63
def test_changed_bytes(changes: list[tuple[int, int]]) -> None:
    raw = bytearray(RAW)
    for place, byte in changes:
        raw[place] = byte
    assert isinstance(outcome(bytes(raw)), GgufFacts | LoadFailed)


@given(st.integers(0, len(RAW) - 1))
def test_cut_anywhere(size: int) -> None:
    told = outcome(RAW[:size])
    last_tensor_begins = len(RAW) - 8
    assert isinstance(told, LoadFailed) or size > last_tensor_begins
