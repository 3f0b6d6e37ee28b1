from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bourn.catalog.identity import identity
from bourn.catalog.sources import Checkpoint, Endpoint, ScriptedSource


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def of(folder: Path, notes: Path | None = None) -> str:
    return identity(Checkpoint(folder, "a"), notes)


def test_a_model_is_what_its_files_hold_wherever_they_lie(folder: Path, tmp_path: Path) -> None:
    first = of(folder)
    (folder / "README.md").write_text("nothing that matters")
    moved = folder.rename(tmp_path / "moved")
    assert of(moved) == first


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "chat_template.jinja"])
def test_other_weights_and_settings_are_another_model(folder: Path, file: str) -> None:
    first = of(folder)
    (folder / file).write_text("other")
    assert of(folder) != first


def test_files_are_read_once_while_they_stay_as_they_are(folder: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes" / "digests.json"
    first = of(folder, notes)
    kept = json.loads(notes.read_text())
    notes.write_text(json.dumps(dict.fromkeys(kept, "believed")))
    assert of(folder, notes) not in (first, of(folder))
    os.utime(folder / "model.safetensors", ns=(1, 1))
    os.utime(folder / "config.json", ns=(1, 1))
    assert of(folder, notes) == first


def test_one_that_does_not_last_is_had_without_reading(folder: Path) -> None:
    def now() -> str:
        return identity(Checkpoint(folder, "a"), lasting=False)

    weights = folder / "model.safetensors"
    first, times = now(), weights.stat()
    weights.write_bytes(b"WEIGHTS")
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert now() == first
    weights.write_bytes(b"weights")
    assert now() != first
    (folder / "config.json").unlink()
    assert now() != first


@pytest.mark.parametrize("rubbish", ["", "[]", "{", "null"])
def test_notes_that_are_damaged_are_made_anew(folder: Path, tmp_path: Path, rubbish: str) -> None:
    notes = tmp_path / "digests.json"
    notes.write_text(rubbish)
    assert of(folder, notes) == of(folder)
    assert len(json.loads(notes.read_text())) == 2


def test_endpoints_are_told_apart_and_their_password_is_none_of_it() -> None:
    plain, secret = (
        identity(Endpoint(f"https://{who}host/v1", "big")) for who in ("", "me:secret@")
    )
    assert plain == secret
    others = [
        Endpoint("https://host/v1", "small"),
        Endpoint("https://host:8443/v1", "big"),
        Endpoint("https://host/v2", "big"),
    ]
    assert len({plain, *map(identity, others)}) == 4
    assert identity(ScriptedSource("a")) != identity(ScriptedSource("b"))
