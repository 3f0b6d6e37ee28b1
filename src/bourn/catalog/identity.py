"""What a model is by its content, so that an answer can be told to be this model's.

A file's digest is kept with its size and time, since reading gigabytes takes seconds; where nothing
outlives the process, place, size and time will do by themselves. It knows no engine: who runs the
model adds what it runs it with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from urllib.parse import urlsplit

from bourn.catalog.sources import Checkpoint, Endpoint, Gguf, ScriptedSource, Source, VllmServe

_READ = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
"""What of a checkpoint's folder makes its answers."""


def identity(source: Source, notes: Path | None = None, *, lasting: bool = True) -> str:
    """A digest of the model. Reads whole files, unless `notes` holds what they were.

    notes: a file in which digests are kept; None keeps none. lasting: the same model has the same
    one next time, and elsewhere; without that nothing is read, and there is nothing to wait for.

    Raises:
        OSError: the model cannot be read.
    """
    of_files = partial(_of_files, notes=notes) if lasting else partial(map, _place)
    match source:
        case Gguf():
            return _digest("gguf", [*of_files(_parts(source))])
        case Checkpoint():
            files = sorted(file for each in _READ for file in source.folder.glob(each))
            return _digest("checkpoint", [*of_files(files)])
        case Endpoint():
            where = urlsplit(source.base_url)  # without the password that it may hold
            return _digest(
                "endpoint",
                [where.scheme, where.hostname or "", str(where.port)],
                [where.path, source.model or ""],
            )
        case VllmServe():
            return _digest("vllm", [source.model])
        case ScriptedSource():
            return _digest("scripted", [source.spec])


def _parts(source: Gguf) -> list[Path]:
    if source.facts.parts == 1:
        return [source.path]
    stem = source.path.name.rpartition("-00001-of-")[0]
    return sorted(source.path.parent.glob(f"{stem}-*.gguf"))


def _of_files(files: Iterable[Path], notes: Path | None) -> list[str]:
    known = _known(notes)
    told = {}
    for file in files:
        place = _place(file)
        if place not in known:
            with file.open("rb") as opened:
                known[place] = file_digest(opened, "sha256").hexdigest()
        told[file.name] = known[place]
    _keep(notes, known)
    return [f"{name} {digest}" for name, digest in sorted(told.items())]


def _place(file: Path) -> str:
    stat = file.stat()
    return json.dumps([str(file.resolve()), stat.st_size, stat.st_mtime_ns])


def _known(notes: Path | None) -> dict[str, str]:
    if notes is not None:
        with suppress(OSError, ValueError):
            told = json.loads(notes.read_bytes())
            if isinstance(told, dict):
                return told
    return {}


def _keep(notes: Path | None, known: dict[str, str]) -> None:
    if notes is not None:
        with suppress(OSError):  # then they are read again
            notes.parent.mkdir(parents=True, exist_ok=True)
            fresh = notes.with_name(f".{notes.name}.new")
            fresh.write_text(json.dumps(known), encoding="utf-8")
            fresh.replace(notes)


def _digest(kind: str, *parts: list[str]) -> str:
    return sha256(json.dumps([kind, *parts]).encode()).hexdigest()
