"""What a checkpoint's folder holds, and why it may not be loaded. Its JSON and headers alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bourn.catalog import checkpoint
from bourn.engines.hf.weights.faults import brings_code
from bourn.errors import LoadFailed

_WRITES_NOTHING = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForMaskedLM",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "ForImageClassification",
)
_FLOATS = ("F64", "F32", "BF16", "F16")
_TOKENIZERS = ("tokenizer*", "tokenization*.py", "vocab.*", "*.model", "*.tiktoken", "tekken.json")


@dataclass(frozen=True, slots=True)
class Folder:
    """A checkpoint's folder. config: its `config.json`."""

    path: Path
    config: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Self:
        """The folder, once its configuration is read and its weights are known to be there.

        Raises:
            LoadFailed: it is damaged, or no checkpoint.
        """
        if not (path / "config.json").is_file():
            raise LoadFailed(
                f"{path} is no checkpoint: it has no config.json",
                hint="give a folder as `save_pretrained` writes it",
            )
        checkpoint.check_weights(path)
        return cls(path, checkpoint.configuration(path))

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def code(self) -> Mapping[str, Any]:
        """The classes of transformers that Python code in the folder stands in for."""
        told = self.config.get("auto_map")
        return told if isinstance(told, dict) else {}

    @property
    def quantised(self) -> str | None:
        """How its weights are quantised already; None where they are not."""
        return checkpoint.quantised(self.config)

    @property
    def weights(self) -> list[Path]:
        return sorted(self.path.glob("*.safetensors"))

    @property
    def stored(self) -> str | None:
        """The kind of its numbers, as safetensors calls them: F32, BF16, F16."""
        from safetensors import safe_open

        with safe_open(self.weights[0], framework="pt") as tensors:
            kinds = [tensors.get_slice(name).get_dtype() for name in tensors.keys()]  # noqa: SIM118
        return next((kind for kind in kinds if kind in _FLOATS), None)

    def check(self, *, code: bool) -> None:
        """See what can be seen before any of it is loaded. code: Python code in it may be run.

        Raises:
            LoadFailed: it cannot be loaded, or should not be.
        """
        self._check_kind()
        self._check_code(allowed=code)
        for file in self.weights:
            _check_header(file)
        if not any(next(self.path.glob(pattern), None) for pattern in _TOKENIZERS):
            raise self.without_tokenizer()

    def _check_kind(self) -> None:
        for name in map(str, self.config.get("architectures") or ()):
            if name.endswith(_WRITES_NOTHING):
                raise LoadFailed(
                    f"{self.name} is a {name}, which writes no text",
                    hint="take a checkpoint that was made for generating text",
                )

    def _check_code(self, *, allowed: bool) -> None:
        from transformers import CONFIG_MAPPING, __version__

        kind = self.config.get("model_type")
        if (allowed and self.code) or not isinstance(kind, str) or kind in CONFIG_MAPPING:
            return
        if self.code:
            raise brings_code(self.name)
        raise LoadFailed(
            f"transformers {__version__} does not know models of the type `{kind}`",
            hint="pip install -U transformers, if it is a new one",
        )

    def without_tokenizer(self) -> LoadFailed:
        return LoadFailed(
            f"{self.name} has no tokenizer",
            hint="put tokenizer.json and tokenizer_config.json of the model that it was made from "
            "beside its weights",
        )


def _check_header(file: Path) -> None:
    """Raises LoadFailed: it is no whole file of weights."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt"):
            pass
    except SafetensorError as error:
        with file.open("rb") as opened:
            pointer = opened.read(40).startswith(b"version https://git-lfs")
        raise LoadFailed(
            f"{file} is a pointer of git-lfs, not the weights"
            if pointer
            else f"{file} is damaged: {error}",
            hint="git lfs pull" if pointer else "download it again",
        ) from None
    except OSError as error:
        raise LoadFailed(f"{file} cannot be read: {error.strerror or error}") from None
