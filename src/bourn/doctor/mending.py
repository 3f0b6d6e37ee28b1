"""Writing a mended generation_config.json; what was there is kept beside it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bourn.doctor.finding import Finding, Fix
from bourn.doctor.folder import GENERATION, Folder, ids_in
from bourn.errors import StoreFailed

_FROM_CONFIG = ("bos_token_id", "eos_token_id", "pad_token_id")
"""What `generate` takes from config.json as long as there is no generation_config.json."""


def mend(folder: Folder, findings: Iterable[Finding]) -> Path | None:
    """Do what the findings' fixes say, and keep the file before as `….bak`, or `….bak.1` and on.

    The backup's path; None where there was no file before. The folder must be looked at anew.

    Raises:
        StoreFailed: the folder cannot be written to.
    """
    told = dict(_before(folder))
    for finding in findings:
        if finding.fix is not None:
            told = applied(told, finding.fix)
    path = folder.path / GENERATION
    try:
        backup = _backed_up(path) if folder.generation is not None else None
        _write(path, json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise StoreFailed(
            f"cannot write {path}: {error.strerror or error}", hint="copy the folder to your own"
        ) from None
    return backup


def _before(folder: Folder) -> Mapping[str, Any]:
    if folder.generation is not None:
        return folder.generation
    said = {name: folder.said(name) for name in _FROM_CONFIG}
    return {name: value for name, value in said.items() if value is not None}


def applied(told: Mapping[str, Any], fix: Fix) -> dict[str, Any]:
    """The fields after a fix."""
    after = {name: value for name, value in told.items() if name not in fix.drops}
    after |= dict(fix.puts)
    if fix.ends:
        ids = list(dict.fromkeys((*ids_in(told.get("eos_token_id")), *fix.ends)))
        after["eos_token_id"] = ids[0] if len(ids) == 1 else ids
    return after


def _backed_up(path: Path) -> Path:
    """A copy; one that is there already is the older truth, and stays."""
    number = 0
    while True:
        backup = path.with_name(f"{path.name}.bak{f'.{number}' if number else ''}")
        try:
            with backup.open("xb") as kept, path.open("rb") as old:
                shutil.copyfileobj(old, kept)
        except FileExistsError:
            number += 1
        else:
            return backup


def _write(path: Path, text: str) -> None:
    """By a rename: whole or not at all; a link into the hub's store is replaced, not followed."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
