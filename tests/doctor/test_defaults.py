"""A model's own settings, and where its window is stated: by the JSON files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bourn.doctor.defaults import CHECKS, far_out
from bourn.doctor.finding import Finding, State, run
from bourn.doctor.folder import Folder

OK, NOTE, WARNING, BROKEN = State.OK, State.NOTE, State.WARNING, State.BROKEN
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1000}


def examined(
    folder: Path,
    config: dict[str, Any] | None = None,
    *,
    generation: dict[str, Any] | None = None,
    tokenizer: dict[str, Any] | None = None,
) -> dict[str, Finding]:
    files = {
        "config.json": {"max_position_embeddings": 4000} if config is None else config,
        "generation_config.json": generation,
        "tokenizer_config.json": tokenizer,
    }
    for name, told in files.items():
        if told is not None:
            (folder / name).write_text(json.dumps(told))
    return {finding.check: finding for finding in run(CHECKS, Folder(folder))}


@pytest.mark.parametrize(
    ("generation", "state", "found", "changes"),
    [
        ({}, OK, "none is set", None),
        ({"max_length": 4000}, OK, "max_length is the window, 4,000", None),
        ({"max_length": 20}, WARNING, "max_length is 20", ({"max_new_tokens": 20}, ["max_length"])),
        ({"max_new_tokens": 256}, NOTE, "max_new_tokens is 256", None),
        ({"max_length": 9, "max_new_tokens": 5}, WARNING, "both", ({}, ["max_length"])),
    ],
)
def test_limits_of_length(
    tmp_path: Path, generation: dict[str, Any], state: State, found: str, changes: Any
) -> None:
    finding = examined(tmp_path, generation=generation)["length limit"]
    assert (finding.state, found in finding.found) == (state, True)
    fix = finding.fix and (dict(finding.fix.puts), list(finding.fix.drops))
    assert fix == changes


@pytest.mark.parametrize(
    ("generation", "state", "found"),
    [
        (None, OK, "none of its own"),
        ({"do_sample": True, "temperature": 0.7, "top_p": 0.9}, OK, "temperature 0.7, top_p 0.9"),
        ({"do_sample": True, "temperature": 0}, BROKEN, "temperature is 0"),
        ({"do_sample": True, "temperature": 1.6}, WARNING, "temperature is 1.6"),
        ({"do_sample": True, "top_p": 0.001}, WARNING, "top_p is 0.001"),
        ({"repetition_penalty": 1.5}, WARNING, "repetition_penalty is 1.5"),
        ({"repetition_penalty": 1.1}, OK, "repetition_penalty 1.1"),
        ({"do_sample": False, "temperature": 0.7}, NOTE, "so that temperature do nothing"),
    ],
)
def test_sampling(
    tmp_path: Path, generation: dict[str, Any] | None, state: State, found: str
) -> None:
    finding = examined(tmp_path, generation=generation)["sampling"]
    assert (finding.state, found in finding.found) == (state, True), finding


def test_what_is_far_out() -> None:
    usual = {"temperature": 1.5, "top_p": 0.1, "min_p": 0.5, "repetition_penalty": 1.3, "top_k": 1}
    assert far_out(usual) == ""
    assert far_out({"temperature": 1.51, "top_p": 0.5}) == "temperature is 1.51"


@pytest.mark.parametrize(
    ("config", "limit", "state", "found"),
    [
        ({"max_position_embeddings": 4000}, None, OK, "4,000 tokens, by config.json"),
        ({"n_positions": 1024}, None, OK, "1,024 tokens"),
        ({"text_config": {"max_position_embeddings": 70}}, None, OK, "70 tokens"),
        ({"max_position_embeddings": 4000}, 10**30, OK, "4,000 tokens"),
        ({"max_position_embeddings": 4000}, 8000, WARNING, "the tokenizer allows 8,000"),
        ({"max_position_embeddings": 4000}, 512, NOTE, "the tokenizer says 512"),
        ({}, None, NOTE, "config.json states none"),
        ({}, 2048, NOTE, "the tokenizer says 2,048"),
        ({"n_positions": 4000, "rope_scaling": YARN}, None, OK, "1,000 stretched 4 times"),
        (
            {"n_positions": 1000, "rope_scaling": YARN},
            None,
            NOTE,
            "1,000 tokens, by config.json, th",
        ),
        ({"n_positions": 9000, "rope_scaling": YARN}, None, WARNING, "only 1,000 stretched 4"),
        (
            # Llama 3's own way of stretching: its factor is no multiple of the window
            {"n_positions": 9000, "rope_scaling": YARN | {"rope_type": "llama3"}},
            None,
            OK,
            "9,000 tokens, by config.json",
        ),
    ],
)
def test_where_the_window_is_stated(
    tmp_path: Path, config: dict[str, Any], limit: int | None, state: State, found: str
) -> None:
    tokenizer = None if limit is None else {"model_max_length": limit}
    finding = examined(tmp_path, config, tokenizer=tokenizer)["window"]
    assert (finding.state, found in finding.found) == (state, True), finding


@pytest.mark.parametrize(
    ("config", "state", "kind"),
    [
        ({}, OK, "default"),
        ({"rope_scaling": None}, OK, "default"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, OK, "linear"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, NOTE, "dynamic"),
        ({"rope_parameters": {"rope_type": "longrope"}}, NOTE, "longrope"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, OK, "yarn"),
        ({"text_config": {"rope_scaling": {"rope_type": "dynamic"}}}, NOTE, "dynamic"),
    ],
)
def test_rope_types(tmp_path: Path, config: dict[str, Any], state: State, kind: str) -> None:
    finding = examined(tmp_path, config)["rope"]
    assert finding.state is state
    assert finding.found.startswith(f"its rope type is {kind}")
