"""Folders in Hugging Face's format: what their JSON tells, and what damage is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bourn.catalog.checkpoint import CheckpointFacts, is_checkpoint, is_whole, read, size
from bourn.errors import LoadFailed
from tests.support.checkpoint_writer import write_checkpoint


def test_a_checkpoint(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    assert is_checkpoint(folder)
    assert read(folder) == CheckpointFacts(4096, "bfloat16", chat_template=True)
    assert size(folder) > 0


def test_a_folder_without_weights_or_configuration_is_none(tmp_path: Path) -> None:
    assert not is_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert not is_checkpoint(tmp_path)


def test_the_text_model_of_one_that_sees(tmp_path: Path) -> None:
    config = {"text_config": {"max_position_embeddings": 8, "dtype": "float16"}}
    assert read(write_checkpoint(tmp_path, config)).window == 8
    assert read(tmp_path).quantisation == "float16"


def test_a_quantised_one(tmp_path: Path) -> None:
    config = {"quantization_config": {"quant_method": "awq"}, "torch_dtype": "float16"}
    assert read(write_checkpoint(tmp_path, config)).quantisation == "awq"


@pytest.mark.parametrize("config", [{}, [], {"text_config": 3, "max_position_embeddings": "x"}])
def test_odd_configurations_tell_nothing(tmp_path: Path, config: object) -> None:
    folder = write_checkpoint(tmp_path, template=False)
    (folder / "config.json").write_text(json.dumps(config))
    assert read(folder) == CheckpointFacts()


def test_a_damaged_configuration_is_told(tmp_path: Path) -> None:
    (write_checkpoint(tmp_path) / "config.json").write_text("{")
    with pytest.raises(LoadFailed, match=r"config\.json is damaged"):
        read(tmp_path)


def test_missing_weights_are_told(tmp_path: Path) -> None:
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index = json.dumps({"weight_map": shards})
    (write_checkpoint(tmp_path) / "model.safetensors.index.json").write_text(index)
    with pytest.raises(LoadFailed, match="lacks model-00001-of-00002"):
        read(tmp_path)


def test_templates_of_their_own_file(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, template=False)
    assert not read(folder).chat_template
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert read(folder).chat_template


def test_pickled_weights_are_told_with_how_to_convert_them(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert is_checkpoint(folder)
    with pytest.raises(LoadFailed, match="pickled files only") as caught:
        read(folder)
    assert f"save_pretrained({str(folder)!r})" in caught.value.hint


def test_no_weights_at_all_are_told(tmp_path: Path) -> None:
    (write_checkpoint(tmp_path) / "model.safetensors").unlink()
    with pytest.raises(LoadFailed, match="has no weights"):
        read(tmp_path)


def test_what_is_whole(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    assert is_whole(folder)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-00001-of-00001.safetensors"}}))
    assert not is_whole(folder)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    assert is_whole(folder)
    (folder / "config.json").write_text("{")
    assert not is_whole(folder)


def test_with_code_it_is_whole_once_the_files_that_it_names_are_there(tmp_path: Path) -> None:
    code = {"AutoModelForCausalLM": "modeling_m.M", "AutoConfig": "org/other--configuration_m.C"}
    folder = write_checkpoint(tmp_path, {"auto_map": code})
    assert is_whole(folder)
    assert not is_whole(folder, code=True)
    (folder / "modeling_m.py").write_text("")
    assert is_whole(folder, code=True)
