"""Which engine a model gets, and what of the settings reaches it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bourn.catalog import Checkpoint, Endpoint, ScriptedSource, Source
from bourn.catalog.templates import template
from bourn.engines import SERVING_SLOTS, engine_of
from bourn.engines.hf.child.apart import Apart
from bourn.engines.hf.child.worker import Config
from bourn.engines.hf.engine import Transformers
from bourn.engines.remote import Remote
from bourn.engines.scripted import Scripted
from bourn.errors import LoadFailed, SettingsError, TemplateError
from bourn.settings import Settings
from tests.support.checkpoint_writer import write_checkpoint


def said(flags: dict[str, object], environ: dict[str, str] | None = None) -> Settings:
    return Settings.load(flags, environ=environ or {}, config_file=Path(os.devnull))


def loading(folder: Path, settings: Settings) -> dict[str, Any]:
    """How a checkpoint would be loaded."""
    engine = engine_of(Checkpoint(folder, "m"), settings)
    assert isinstance(engine, Transformers)
    told: Any = engine._load
    assert told.args == (folder,)
    return dict(told.keywords)


def test_each_kind_of_model_has_its_engine(tmp_path: Path) -> None:
    kinds: dict[Source, type[object]] = {
        Checkpoint(write_checkpoint(tmp_path), "m"): Transformers,
        Endpoint("http://h/v1"): Remote,
        ScriptedSource(""): Scripted,
    }
    for source, kind in kinds.items():
        assert isinstance(engine_of(source, Settings()), kind)


def test_nothing_said_leaves_all_to_the_checkpoint(tmp_path: Path) -> None:
    assert loading(write_checkpoint(tmp_path), Settings()) == {
        "dtype": "auto",
        "device": "auto",
        "quantization": None,
        "chat_template": None,
        "trust_remote_code": False,
        "threads": None,
        "on_progress": None,
    }


def test_what_was_said_reaches_it(tmp_path: Path) -> None:
    flags = {"dtype": "float32", "cpu_only": True, "threads": 3, "trust_remote_code": True}
    more = {"chat_template": "chatml", "quantization": "8bit"}
    told = loading(write_checkpoint(tmp_path), said(flags | more))
    assert told == {
        "dtype": "float32",
        "device": "cpu",
        "quantization": "8bit",
        "chat_template": template("chatml"),
        "trust_remote_code": True,
        "threads": 3,
        "on_progress": None,
    }


def test_a_standing_wish_to_quantise_passes_over_what_is_small_already(tmp_path: Path) -> None:
    small = write_checkpoint(tmp_path, {"quantization_config": {"quant_method": "awq"}})
    environ = {"BOURN_QUANTIZATION": "4bit"}
    assert loading(small, said({}, environ))["quantization"] is None
    assert loading(small, said({"quantization": "4bit"}))["quantization"] == "4bit"
    large = write_checkpoint(tmp_path / "large")
    assert loading(large, said({}, environ))["quantization"] == "4bit"


async def served(folder: Path, settings: Settings) -> Config:
    """What the process of a checkpoint that is served is told."""
    engine: Any = engine_of(Checkpoint(folder, "m"), settings, serving=True)
    assert isinstance(engine, Apart)
    await engine.aclose()
    child: Any = engine._child
    return Config(**json.loads(child._feed))


async def test_a_checkpoint_that_is_served_has_a_process_of_its_own(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    told = await served(folder, said({}))
    assert (told.folder, told.name, told.slots) == (str(folder), "m", SERVING_SLOTS)
    flags = {"dtype": "float32", "cpu_only": True, "threads": 3, "trust_remote_code": True}
    more = {"chat_template": "chatml", "quantization": "8bit", "slots": 2, "window": 99}
    told = await served(folder, said(flags | more))
    assert (told.dtype, told.device, told.threads, told.slots) == ("float32", "cpu", 3, 2)
    assert (told.quantization, told.window, told.trust_remote_code) == ("8bit", 99, True)
    assert told.chat_template == template("chatml")


@pytest.mark.parametrize(
    ("flags", "kind", "told"),
    [
        ({"chat_template": "chatmk"}, TemplateError, "no chat template"),
        ({"llama_server": "x"}, SettingsError, "--llama-server is for GGUF files"),
    ],
)
def test_wrong_wishes_are_told_before_anything_is_loaded(
    flags: dict[str, object], kind: type[Exception], told: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=told):
        engine_of(Checkpoint(write_checkpoint(tmp_path), "m"), said(flags))


def test_missing_packages_are_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LoadFailed, match="need torch") as caught:
        engine_of(Checkpoint(write_checkpoint(tmp_path), "m"), Settings())
    assert caught.value.hint == "pip install 'bourn[hf]'"


def test_an_engine_for_a_checkpoint_does_not_load_torch_by_being_made(tmp_path: Path) -> None:
    import subprocess

    folder = write_checkpoint(tmp_path)
    script = (
        "import sys; from pathlib import Path; from bourn.catalog import Checkpoint; "
        "from bourn.engines import engine_of; from bourn.settings import Settings; "
        f"engine_of(Checkpoint(Path({str(folder)!r}), 'm'), Settings()); "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
