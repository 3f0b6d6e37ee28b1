"""Which of several GGUF files is meant, and which files of a checkpoint are wanted."""

from __future__ import annotations

import pytest

from bourn.catalog.choice import (
    INDEX,
    PREFERRED,
    choose,
    companions,
    models,
    parts,
    quantisation,
    weights,
)
from bourn.errors import ModelNotFound

REPO = ["README.md", "config.json", *(f"M-7B-{q}.gguf" for q in ("Q2_K", "Q4_K_M", "Q8_0", "f16"))]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("SmolLM2-135M-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("qwen2.5-0.5b-instruct-q8_0.gguf", "Q8_0"),
        ("model-IQ2_XXS.gguf", "IQ2_XXS"),
        ("model-UD-Q4_K_XL.gguf", "Q4_K_XL"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("model-BF16.gguf", "BF16"),
        ("Q8_0/model-Q8_0-00001-of-00002.gguf", "Q8_0"),
        ("Qwen3-4B.gguf", None),
        ("ggml-model.gguf", None),
    ],
)
def test_the_quantisation_in_a_name(name: str, told: str | None) -> None:
    assert quantisation(name) == told


def test_parts_of_a_split_model() -> None:
    assert parts("a-00002-of-00003.gguf") == (
        "a-00001-of-00003.gguf",
        "a-00002-of-00003.gguf",
        "a-00003-of-00003.gguf",
    )
    assert parts("whole.gguf") == ("whole.gguf",)


def test_models_are_counted_once_and_companions_not_at_all() -> None:
    names = ["b-00002-of-00002.gguf", "b-00001-of-00002.gguf", "a.gguf", "mmproj-a-f16.gguf"]
    assert models([*names, "model.imatrix.gguf", "x.txt"]) == [
        ("a.gguf",),
        ("b-00001-of-00002.gguf", "b-00002-of-00002.gguf"),
    ]


@pytest.mark.parametrize("pick", ["Q8_0", "q8_0", "M-7B-Q8_0.gguf"])
def test_what_is_said_is_chosen(pick: str) -> None:
    assert choose(REPO, pick, "org/m") == ("M-7B-Q8_0.gguf",)


def test_a_file_in_a_folder_is_found_by_either_name() -> None:
    names = ["Q4/m-00001-of-00002.gguf", "Q4/m-00002-of-00002.gguf", "m-Q8_0.gguf"]
    for pick in ("Q4/m-00002-of-00002.gguf", "m-00001-of-00002.gguf"):
        assert choose(names, pick, "org/m") == tuple(names[:2])


def test_unsaid_the_preferred_is_chosen() -> None:
    assert choose(REPO, None, "org/m") == ("M-7B-Q4_K_M.gguf",)
    assert choose(["m-Q8_0.gguf", "m-Q5_K_M.gguf", "m-F16.gguf"], None, "m") == ("m-Q5_K_M.gguf",)


def test_the_only_one_is_chosen_whatever_it_is() -> None:
    assert choose(["m-IQ1_S.gguf"], None, "org/m") == ("m-IQ1_S.gguf",)


def test_four_bits_go_before_five_before_eight() -> None:
    order = [PREFERRED.index(name) for name in ("Q4_K_M", "Q4_0", "Q5_K_M", "Q8_0")]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("names", "pick"),
    [
        (["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"], None),
        (["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"], "Q4_K_M"),
        (["a-F16.gguf", "b-F32.gguf"], None),
        (["a-F16.gguf", "b-F32.gguf"], "Q8_0"),
        (["a-F16.gguf", "b-F32.gguf"], "c.gguf"),
    ],
)
def test_what_is_not_clear_is_listed(names: list[str], pick: str | None) -> None:
    with pytest.raises(ModelNotFound, match="org/m") as caught:
        choose(names, pick, "org/m")
    assert all(name in str(caught.value) for name in names)
    assert f"org/m:{names[0]}" in caught.value.hint


def test_no_gguf_at_all() -> None:
    with pytest.raises(ModelNotFound, match="no GGUF file in org/m"):
        choose(["README.md", "mmproj-x.gguf"], None, "org/m")


def test_missing_parts_are_named() -> None:
    with pytest.raises(ModelNotFound, match="a-00002-of-00003") as caught:
        choose(["a-00001-of-00003.gguf", "a-00003-of-00003.gguf"], None, "org/m")
    assert "a-00001" in str(caught.value)
    assert caught.value.hint


# -- checkpoints -----------------------------------------------------------------------------------

BESIDE = [
    "additional_chat_templates/rag.jinja",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "tekken.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.txt",
]
UNWANTED = [
    "LICENSE.txt",
    "README.md",
    "consolidated.safetensors",
    "model.fp16.safetensors",
    "onnx/config.json",
    "original/consolidated.00.pth",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "training_args.bin",
]
CHECKPOINT = [*BESIDE, *UNWANTED, "modeling_m.py", "model.safetensors"]


def test_whole_weights_are_one_file_and_never_pickled() -> None:
    assert weights(CHECKPOINT) == ["model.safetensors"]
    assert weights(["config.json", "pytorch_model.bin", "consolidated.safetensors"]) == []


def test_split_weights_are_those_of_the_index() -> None:
    shards = [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
    others = ["consolidated-00001-of-00002.safetensors", "old/model-00001-of-00002.safetensors"]
    assert weights([INDEX, *others, *shards]) == shards


def test_beside_the_weights_are_configuration_tokenizer_and_templates() -> None:
    assert companions(CHECKPOINT) == BESIDE


def test_python_files_are_wanted_only_where_somebody_says_so() -> None:
    told = companions(CHECKPOINT, code=True)
    assert set(told) - set(BESIDE) == {"modeling_m.py"}


def test_the_index_comes_with_what_is_beside() -> None:
    assert companions([INDEX, "model-00001-of-00001.safetensors"]) == [INDEX]
