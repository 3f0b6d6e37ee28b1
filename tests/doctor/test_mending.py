"""What `--fix` writes: a model that ran on stops, and nothing that was there is lost."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bourn.doctor import checkpoint
from bourn.doctor.finding import Finding, Fix, State
from bourn.doctor.folder import Folder
from bourn.doctor.mending import applied, mend
from bourn.engines.hf.weights.quiet import quietly
from bourn.errors import StoreFailed
from tests.support import sick_models as sick


def generated(folder: Path, **options: Any) -> str:
    """What transformers' own `generate` says to a question, with nothing set but a limit."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with quietly(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on its default length, where no limit is set here
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": "Hello"}],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        )
        ids = model.generate(**prompt, **options)
    return str(tokenizer.decode(ids[0, prompt["input_ids"].shape[1] :]))


def mended(folder: Path) -> Path | None:
    here = Folder(folder)
    return mend(here, list(checkpoint.examine(here)))


def written(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "generation_config.json").read_text())
    return told


@pytest.mark.parametrize("make", [sick.ends_elsewhere, sick.ends_nowhere])
def test_a_model_that_ran_on_stops(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    folder = make(tmp_path / "model")
    assert generated(folder, max_new_tokens=7).startswith("hi<|im_end|>\nhi")
    before = (folder / "generation_config.json").read_bytes()
    backup = mended(folder)
    assert generated(folder, max_new_tokens=7) == "hi<|im_end|>"
    assert backup == folder / "generation_config.json.bak"
    assert backup.read_bytes() == before
    states = {each.state for each in checkpoint.examine(Folder(folder))}
    assert states <= {State.OK, State.NOTE}


def test_an_end_token_is_added_beside_those_that_are_there(tmp_path: Path) -> None:
    folder = sick.ends_elsewhere(tmp_path / "model")
    told = written(folder)
    mended(folder)
    ids = [sick.id_of(folder, "<|endoftext|>"), sick.id_of(folder, "<|im_end|>")]
    assert written(folder) == told | {"eos_token_id": ids}


def test_without_a_generation_config_what_the_config_said_stays_said(tmp_path: Path) -> None:
    folder = sick.healthy(tmp_path / "model")
    (folder / "generation_config.json").unlink()
    other = sick.id_of(folder, "<|endoftext|>")
    sick.edit(folder, "config.json", eos_token_id=other, pad_token_id=other)
    assert generated(folder, max_new_tokens=7).startswith("hi<|im_end|>\nhi")
    assert mended(folder) is None
    end = sick.id_of(folder, "<|im_end|>")
    assert written(folder) == {"eos_token_id": [other, end], "pad_token_id": other}
    assert generated(folder, max_new_tokens=7) == "hi<|im_end|>"


def test_an_older_backup_is_never_written_over(tmp_path: Path) -> None:
    folder = sick.cuts_short(tmp_path / "model")
    (folder / "generation_config.json.bak").write_text("precious")
    assert mended(folder) == folder / "generation_config.json.bak.1"
    sick.edit(folder, "generation_config.json", eos_token_id=None)
    assert mended(folder) == folder / "generation_config.json.bak.2"
    assert (folder / "generation_config.json.bak").read_text() == "precious"
    assert "max_length" in (folder / "generation_config.json.bak.1").read_text()


def test_a_link_into_a_store_is_replaced_and_not_followed(tmp_path: Path) -> None:
    folder = sick.ends_elsewhere(tmp_path / "model")
    file, blob = folder / "generation_config.json", tmp_path / "blob"
    content = file.read_bytes()
    file.rename(blob)
    file.symlink_to(blob)
    backup = mended(folder)
    assert blob.read_bytes() == content
    assert backup is not None
    assert backup.read_bytes() == content
    assert not backup.is_symlink()
    assert not file.is_symlink()


def test_temperature_zero_becomes_what_it_means(tmp_path: Path) -> None:
    folder = sick.draws_at_zero(tmp_path / "model")
    with pytest.raises(ValueError, match="strictly positive"):
        generated(folder, max_new_tokens=2)
    mended(folder)
    assert generated(folder, max_new_tokens=7) == "hi<|im_end|>"


def test_a_limit_that_counts_the_prompt_becomes_one_that_does_not(tmp_path: Path) -> None:
    folder = sick.cuts_short(tmp_path / "model")
    with pytest.raises(ValueError, match="`max_length` is set to"):
        generated(folder)  # its prompt alone is that long
    mended(folder)
    assert generated(folder) == "hi<|im_end|>"
    assert written(folder)["max_new_tokens"] == 20


@pytest.mark.parametrize(
    ("before", "fix", "after"),
    [
        ({}, Fix(ends=(3,)), {"eos_token_id": 3}),
        ({"eos_token_id": 2}, Fix(ends=(3,)), {"eos_token_id": [2, 3]}),
        ({"eos_token_id": [2, 3]}, Fix(ends=(3,)), {"eos_token_id": [2, 3]}),
        ({"a": 1, "b": 2}, Fix(puts={"a": 3}, drops=("b", "c")), {"a": 3}),
        ({"a": [1]}, Fix(), {"a": [1]}),
    ],
)
def test_a_fix_changes_what_it_names(
    before: dict[str, Any], fix: Fix, after: dict[str, Any]
) -> None:
    was = json.dumps(before)
    assert applied(before, fix) == after
    assert json.dumps(before) == was


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_of_somebody_else_is_told(tmp_path: Path) -> None:
    folder = sick.ends_elsewhere(tmp_path / "model")
    folder.chmod(0o500)
    with pytest.raises(StoreFailed, match="cannot write"):
        mended(folder)


def test_findings_without_a_fix_change_nothing(tmp_path: Path) -> None:
    folder = Folder(sick.healthy(tmp_path / "model"))
    before = written(folder.path)
    mend(folder, [Finding(State.BROKEN, "all of it")])
    assert written(folder.path) == before
