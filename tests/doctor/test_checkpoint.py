"""Each made model that is sick is found to be so, in that one way; the healthy one in none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bourn.doctor import checkpoint
from bourn.doctor.finding import FAILED, Finding, State
from bourn.doctor.folder import Folder
from tests.support import sick_models as sick

NOTE, WARNING, BROKEN = State.NOTE, State.WARNING, State.BROKEN


def examined(folder: Path) -> dict[str, Finding]:
    return {finding.check: finding for finding in checkpoint.examine(Folder(folder))}


def test_a_healthy_one_is_healthy(tmp_path: Path) -> None:
    found = examined(sick.healthy(tmp_path / "model"))
    assert {name: each.state for name, each in found.items()} == dict.fromkeys(
        checkpoint.CHECKS, State.OK
    )


def test_no_weight_is_loaded(tmp_path: Path) -> None:
    """Zeros in place of every number make no difference, and no model's code is imported."""
    folder = sick.healthy(tmp_path / "model")
    before = examined(folder)
    weights = folder / "model.safetensors"
    raw = weights.read_bytes()
    header = 8 + int.from_bytes(raw[:8], "little")
    weights.write_bytes(raw[:header] + bytes(len(raw) - header))
    assert examined(folder) == before


@pytest.mark.parametrize(
    ("make", "check", "state", "found"),
    [
        (sick.ends_elsewhere, "end of turn", BROKEN, "<|im_end|> (322), but `generate` stops at"),
        (sick.ends_nowhere, "end of turn", BROKEN, "stops at nothing"),
        (sick.ends_by_its_tokenizer_alone, "end tokens", WARNING, "the tokenizer ends with <|im_e"),
        (sick.ends_for_nobody, "end tokens", BROKEN, "`generate` stops at nothing"),
        (sick.has_no_end, "end tokens", BROKEN, "no file names an end token"),
        (sick.has_no_end, "end of turn", NOTE, "writes nothing after an answer"),
        (sick.ends_beyond, "end tokens", BROKEN, "151645 is beyond the vocabulary of 327"),
        (sick.ends_in_text, "end of turn", WARNING, "'[end]', which is 4 tokens"),
        (sick.begins_twice, "beginning of text", WARNING, "the tokenizer write <s>"),
        (sick.begins_twice_alone, "beginning of text", BROKEN, "writes <s> 2 times"),
        (sick.begins_nowhere, "beginning of text", WARNING, "the chat template does not"),
        (sick.pads_with_end, "padding", NOTE, "both pads and ends"),
        (sick.has_no_template, "chat template", WARNING, "there is no chat template"),
        (sick.never_asks, "generation prompt", BROKEN, r'"<|im_start|>assistant\n", which'),
        (sick.refuses_system, "system message", NOTE, "System role not supported"),
        (sick.refuses_system, "role order", NOTE, "two questions in a row, an assistant who"),
        (sick.drops_system, "system message", WARNING, "leaves it out without a word"),
        (sick.takes_one_turn, "role order", BROKEN, "refuses a second turn"),
        (sick.is_no_jinja, "chat template", BROKEN, "unknown tag 'endfor'"),
        (sick.leaves_question_out, "chat template", BROKEN, "leaves the question out"),
        (sick.cuts_short, "length limit", WARNING, "max_length is 20"),
        (sick.cuts_in_two_ways, "length limit", WARNING, "both max_length (200) and"),
        (sick.draws_at_zero, "sampling", BROKEN, "temperature is 0"),
        (sick.draws_wildly, "sampling", WARNING, "1.9, top_p is 0.01, repetition_penalty is 1.8"),
        (sick.knows_more_than_it_has, "vocabulary", BROKEN, "328 tokens, but 327 rows"),
        (sick.says_another_size, "vocabulary", BROKEN, "config.json says 4,000 tokens"),
        (sick.has_a_short_window, "window", WARNING, "the tokenizer allows 2,048 tokens"),
        (sick.stretches_by_batch, "rope", NOTE, "its rope type is dynamic"),
        (sick.stretches_by_batch, "batching", NOTE, "dynamic"),
        (sick.is_pickled, "files", BROKEN, "it has its weights in pickled files only"),
        (sick.is_pickled_too, "files", NOTE, "beside safetensors there are pickles: training_args"),
        (sick.is_cut_short, "files", BROKEN, "model.safetensors is cut short"),
        (sick.brings_code, "code", WARNING, "configuration_own.OwnConfig, modeling_own.Own"),
    ],
)
def test_a_sick_one_is_found_to_be_so(
    tmp_path: Path,
    make: Callable[[Path], Path],
    check: str,
    state: State,
    found: str,
) -> None:
    finding = examined(make(tmp_path / "model"))[check]
    assert (finding.state, found in finding.found) == (state, True), finding
    assert finding.why
    assert finding.mend or state is NOTE


def test_without_transformers_files_are_still_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sick.healthy(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "transformers", None)
    found = examined(folder)
    for name in ("files", "code", "length limit", "sampling", "window", "rope", "vocabulary"):
        assert found.pop(name).state is State.OK
    for name, finding in found.items():
        assert finding.state is State.SKIPPED, name
        assert "pip install 'bourn[hf]'" in finding.found


def test_code_of_the_folder_is_never_run(tmp_path: Path) -> None:
    folder = sick.brings_code(tmp_path / "model")
    ran = f"open({str(tmp_path / 'ran')!r}, 'w')"
    for name in ("configuration_own", "modeling_own", "tokenization_own"):
        (folder / f"{name}.py").write_text(f"{ran}\nclass OwnConfig: ...\nclass Own: ...\n")
    told = {"AutoTokenizer": ["tokenization_own.Own", None]}
    sick.edit(folder, "tokenizer_config.json", auto_map=told, tokenizer_class="Own")
    sick.edit(folder, "config.json", model_type="own")
    found = examined(folder)
    assert not (tmp_path / "ran").exists()
    assert "tokenization_own.Own" in found["code"].found
    assert found["batching"].state is State.SKIPPED


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json"])
def test_a_damaged_file_is_told_and_the_rest_is_still_done(tmp_path: Path, name: str) -> None:
    folder = sick.healthy(tmp_path / "model")
    (folder / name).write_text("{")
    found = examined(folder)
    assert list(found) == list(checkpoint.CHECKS)
    assert not any(each.found.startswith(FAILED) for each in found.values())
    told = [each for each in found.values() if name in each.found]
    assert told or name == "tokenizer.json"
    if name != "tokenizer.json":
        assert found["files"].state is BROKEN
