"""The checkpoint that tests use is the bundled model: its tokenizer, its template, its answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bourn.catalog import gguf
from bourn.engines.hf.weights.loading import Loaded, load
from tests.support.real_checkpoint import real_checkpoint

pytestmark = pytest.mark.real

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def loaded(checkpoint: Path) -> Loaded:
    return load(checkpoint, device="cpu")


def test_it_is_made_once(checkpoint: Path) -> None:
    before = (checkpoint / "model.safetensors").stat().st_mtime_ns
    assert real_checkpoint() == checkpoint
    assert (checkpoint / "model.safetensors").stat().st_mtime_ns == before


def test_its_window_and_template_are_the_files(checkpoint: Path, smollm2: Path) -> None:
    facts = gguf.read(smollm2)
    config = json.loads((checkpoint / "config.json").read_bytes())
    assert config["max_position_embeddings"] == facts.window == 8192
    assert (checkpoint / "chat_template.jinja").read_text() == facts.chat_template


def test_its_tokens_are_the_files(loaded: Loaded, smollm2: Path) -> None:
    from gguf import GGUFReader

    fields = GGUFReader(smollm2).fields
    named: list[str] = fields["tokenizer.ggml.tokens"].contents()
    tokenizer: Any = loaded.tokenizer
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == named
    for kind in ("bos", "eos"):
        stated = fields[f"tokenizer.ggml.{kind}_token_id"].contents()
        assert getattr(tokenizer, f"{kind}_token_id") == stated
        assert getattr(loaded.model.config, f"{kind}_token_id") == stated
    assert tokenizer.eos_token == "<|im_end|>"


def test_it_answers_sensibly_and_stops(loaded: Loaded) -> None:
    import torch

    assert loaded.model.dtype is torch.bfloat16
    prompt = loaded.tokenizer.apply_chat_template(
        QUESTION, add_generation_prompt=True, return_tensors="pt"
    )
    whole = loaded.model.generate(**prompt, max_new_tokens=24, do_sample=False)[0]
    answer = whole[prompt["input_ids"].shape[1] :]
    assert "Paris" in loaded.tokenizer.decode(answer)
    assert answer[-1] == loaded.tokenizer.eos_token_id


def test_the_terminal_shows_the_answer_and_nothing_of_the_libraries(checkpoint: Path) -> None:
    how = ("-m", str(checkpoint), "--cpu-only", "--temperature", "0")
    done = subprocess.run(
        [sys.executable, "-m", "bourn", "run", *how, "What is the capital of France?"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Paris" in done.stdout
