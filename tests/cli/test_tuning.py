from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bourn.cli.tuning import kept, lasting, resumed, said, to_load, unsaid
from bourn.engines.base import ModelInfo
from bourn.settings import Settings
from bourn.types import Sampling


def test_a_model_is_loaded_without_what_each_question_says() -> None:
    settings = Settings(
        model="m", system="s", temperature=0.1, stop=("x",), max_new_tokens=5, window=9, api_key="k"
    )
    assert to_load(settings) == Settings(model="m", window=9, api_key="k")


def test_what_was_not_said_is_the_models_own_then_bourns() -> None:
    info = ModelInfo("m", "e", honours=frozenset({"temperature", "top_k"}))
    settings = Settings(temperature=0.1)
    assert said(settings) == {"temperature": 0.1}
    assert unsaid(settings, info) == {"top_k": 40, "max_new_tokens": 1024}
    hosted = ModelInfo(
        "m", "e", honours=info.honours, defaults=Sampling(temperature=0.3), resolves=False
    )
    assert unsaid(Settings(), hosted) == {"temperature": 0.3, "max_new_tokens": 1024}


def test_flags_go_before_what_was_kept() -> None:
    was = {"model": "a", "chat_template": "chatml", "window": 512, "temperature": 0.5, "seed": 1}
    flags: dict[str, object] = {
        "model": None,
        "temperature": 0.9,
        "stop": [],
        "seed": None,
        "top_p": None,
    }
    assert resumed(was, flags) == was | {"temperature": 0.9}
    assert resumed(was, flags | {"model": "b"}) == {"model": "b", "temperature": 0.9, "seed": 1}


def test_what_is_kept_can_be_read_back() -> None:
    settings = Settings(
        model="m", temperature=0.0, stop=("a", "b"), seed=0, cpu_only=True, threads=3, api_key="k"
    )
    again = Settings.load(resumed(kept(settings), {}), environ={}, config_file=Path("/dev/null"))
    assert again == Settings(model="m", temperature=0.0, stop=("a", "b"), seed=0, cpu_only=True)


def test_how_a_checkpoint_is_loaded_is_kept_but_for_trust_in_its_code() -> None:
    settings = Settings(dtype="float32", device="cuda:1", quantization="8bit")
    told = kept(replace(settings, trust_remote_code=True, compile=True))
    assert told == {
        "model": "smollm2",
        "dtype": "float32",
        "device": "cuda:1",
        "quantization": "8bit",
    }
    assert resumed(told, {"model": "b"}) == {"model": "b", "device": "cuda:1"}


@pytest.mark.parametrize(
    ("name", "kept_as"),
    [
        ("https://me:secret@host:8000/v1?key=secret#m", "https://host:8000/v1#m"),
        ("smollm2", "smollm2"),
        ("org/name", "org/name"),
        ("scripted:https?delay=1", "scripted:https?delay=1"),
        ("openai:gpt-5", "openai:gpt-5"),
    ],
)
def test_a_models_name_is_kept_without_secrets(name: str, kept_as: str) -> None:
    assert lasting(name) == kept_as


def test_a_path_is_kept_as_one_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.gguf").touch()
    assert lasting("m.gguf") == lasting("./m.gguf") == str(tmp_path / "m.gguf")
    assert lasting("other.gguf") == "other.gguf"
