"""Where weights go and as what: what `from_pretrained` is told for each wish."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bourn.engines.hf.weights import placing
from bourn.engines.hf.weights.folder import Folder
from bourn.engines.hf.weights.placing import Placing
from bourn.errors import LoadFailed
from tests.support.saved_models import change, save_llama

ON_CPU = "auto" if torch.cuda.is_available() or torch.backends.mps.is_available() else "cpu"


@pytest.fixture(scope="module", params=["told", "untold"])
def half(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A checkpoint of float16 numbers, whose configuration tells so, or does not."""
    folder = save_llama(tmp_path_factory.mktemp("half") / "half", dtype=torch.float16)
    if request.param == "untold":
        change(folder / "config.json", dtype=None)
    return Folder.read(folder)


def arguments(folder: Folder, dtype: str = "auto", device: str = "cpu", **more: Any) -> Any:
    from transformers import AutoConfig

    wanted = Placing.of(dtype, device, more.get("quantization"), folder)
    return wanted.arguments(AutoConfig.from_pretrained(folder.path))


@pytest.mark.parametrize(
    ("quick", "dtype"),
    [
        ({"fp16", "bf16"}, "auto"),
        ({"bf16"}, torch.bfloat16),
        (set(), torch.float32),
    ],
)
def test_float16_on_a_cpu_is_computed_in_what_is_quick_there(
    half: Folder, quick: set[str], dtype: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "_supported", quick.__contains__)
    assert arguments(half) == {"dtype": dtype}


def test_what_was_asked_for_is_left_alone(half: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "_supported", set[str]().__contains__)
    assert arguments(half, "float16") == {"dtype": torch.float16}


def test_other_numbers_are_as_they_are_stored(tmp_path: Path) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        folder = Folder.read(save_llama(tmp_path / str(dtype), dtype=dtype))
        assert arguments(folder) == {"dtype": "auto"}


def test_this_cpu_can_say_what_it_supports() -> None:
    for kind in ("fp16", "bf16"):
        assert placing._supported(kind) in {True, False}
    assert not placing._supported("nothing")


@pytest.mark.skipif(ON_CPU == "auto", reason="there is a GPU here")
def test_without_a_gpu_auto_is_the_cpu(half: Folder) -> None:
    assert Placing.of("auto", "auto", None, half).device == "cpu"


@pytest.mark.parametrize(
    ("gpus", "wanted", "device_map"),
    [
        (1, "auto", {"": "cuda:0"}),
        (1, "cuda", {"": "cuda:0"}),
        (2, "auto", "auto"),
        (2, "cuda", {"": "cuda:0"}),
        (2, "cuda:1", {"": "cuda:1"}),
        (2, "cpu", None),
    ],
)
def test_gpus(
    gpus: int, wanted: str, device_map: object, half: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    told = arguments(half, "bfloat16", wanted)
    assert told.get("device_map") == device_map
    if wanted != "cpu":
        assert arguments(half, "auto", wanted)["dtype"] == "auto"


def test_a_gpu_too_many(half: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(LoadFailed, match=r"no device cuda:1: .* sees 1 CUDA device here"):
        Placing.of("auto", "cuda:1", None, half)


def test_quantising_names_the_device_and_what_is_computed_in(half: Folder) -> None:
    told = arguments(half, quantization="4bit")
    wanted = told["quantization_config"]
    assert told["device_map"] == {"": "cpu"}
    assert wanted.load_in_4bit
    assert (wanted.bnb_4bit_quant_type, wanted.bnb_4bit_compute_dtype) == ("nf4", torch.bfloat16)
    wanted = arguments(half, "float16", quantization="4bit")["quantization_config"]
    assert wanted.bnb_4bit_compute_dtype is torch.float16
    assert arguments(half, quantization="8bit")["quantization_config"].load_in_8bit
