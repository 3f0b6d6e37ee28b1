"""A checkpoint's folder as the doctor sees it: each file read once, when it is first wanted.

The weights are never loaded; of them only the header is read, which tells shapes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bourn.doctor.chat import Chat
from bourn.doctor.finding import NEEDS_EXTRA, CannotTell

if TYPE_CHECKING:
    from bourn.engines.hf.prompting.ending import Ends, TurnEnd

Json = Mapping[str, Any]

GENERATION = "generation_config.json"
_LONGEST_HEADER = 100 << 20  # bytes; what safetensors itself allows


class Folder:
    """path: with config.json and weights. name: what people call it. template: another one."""

    def __init__(self, path: Path, name: str = "", template: str | None = None) -> None:
        self.path = path
        self.name = name or path.name
        self._given = template

    # -- JSON --------------------------------------------------------------------------------------

    @cached_property
    def config(self) -> Json:
        return self._read("config.json")

    @property
    def text_config(self) -> Json:
        """Of a model that also sees or hears: the part that writes."""
        inner = self.config.get("text_config")
        return inner if isinstance(inner, dict) else self.config

    @cached_property
    def generation(self) -> Json | None:
        """generation_config.json; None where there is none."""
        return self._read(GENERATION) if (self.path / GENERATION).is_file() else None

    @cached_property
    def tokenizer_config(self) -> Json:
        """Empty where there is none."""
        there = (self.path / "tokenizer_config.json").is_file()
        return self._read("tokenizer_config.json") if there else {}

    def said(self, name: str) -> object:
        """A field of the configuration: of the part that writes, or else of all."""
        return self.text_config.get(name, self.config.get(name))

    def _read(self, name: str) -> Json:
        try:
            told = json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            raise CannotTell(f"there is no {name}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise CannotTell(f"{name} cannot be read: {error}") from None
        if not isinstance(told, dict):
            raise CannotTell(f"{name} holds no object")
        return told

    # -- the tokenizer and its template ------------------------------------------------------------

    @cached_property
    def tokenizer(self) -> Any:
        """As transformers loads it; no code of the folder's own is run.

        Raises:
            CannotTell: transformers is missing, or cannot load it.
        """
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise CannotTell(NEEDS_EXTRA) from None
        from bourn.engines.hf.weights.quiet import quietly

        try:
            with quietly():
                return AutoTokenizer.from_pretrained(
                    str(self.path), local_files_only=True, trust_remote_code=False
                )
        except Exception as error:  # noqa: BLE001  # damaged files fail in ways without number
            first = (str(error) or type(error).__name__).splitlines()[0]
            raise CannotTell(f"the tokenizer cannot be loaded: {first}") from None

    @cached_property
    def template(self) -> str | None:
        """The chat template: the one given, or that of its files, newest kind first."""
        if self._given is not None:
            return self._given
        beside = self.path / "chat_template.jinja"
        if beside.is_file():
            return beside.read_text(encoding="utf-8", errors="replace")
        if (self.path / "chat_template.json").is_file():
            return _one_of(self._read("chat_template.json").get("chat_template"))
        return _one_of(self.tokenizer_config.get("chat_template"))

    @cached_property
    def chat(self) -> Chat:
        return Chat(
            self.template,
            lambda: self.tokenizer,
            called=(self.name, str(self.config.get("model_type", ""))),
            vocabulary=self.vocabulary,
        )

    @cached_property
    def vocabulary(self) -> Mapping[str, int]:
        """Tokens by their texts, read by itself; empty where there is no tokenizer.json."""
        if not (self.path / "tokenizer.json").is_file():
            return {}
        try:
            return _vocabulary(self._read("tokenizer.json"))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError):
            raise CannotTell("tokenizer.json is not as tokenizers writes it") from None

    # -- where it ends -----------------------------------------------------------------------------

    @cached_property
    def turn_end(self) -> TurnEnd | None:
        """How the template ends an answer; None where it does not, or there is none."""
        from bourn.engines.hf.prompting.ending import turn_end

        return turn_end(self.tokenizer, self.template)

    @cached_property
    def ends(self) -> Ends:
        """All that its files say about where an answer ends."""
        from bourn.engines.hf.prompting.ending import ends

        return ends(
            self.tokenizer,
            SimpleNamespace(eos_token_id=self.said("eos_token_id")),
            SimpleNamespace(eos_token_id=(self.generation or {}).get("eos_token_id")),
            self.template,
        )

    @property
    def generate_ends(self) -> tuple[int, ...]:
        """The ids at which transformers' `generate` stops, when nobody tells it more."""
        told = (
            self.said("eos_token_id")
            if self.generation is None
            else self.generation.get("eos_token_id")
        )
        return ids_in(told)

    # -- weights -----------------------------------------------------------------------------------

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of all tensors in safetensors files, by name.

        Raises:
            CannotTell: there is no such file, or one is damaged.
        """
        files = sorted(self.path.glob("*.safetensors"))
        if not files:
            raise CannotTell("there are no weights in safetensors")
        return {name: shape for file in files for name, shape in _shapes(file).items()}


def ids_in(told: object) -> tuple[int, ...]:
    """The ids that a field names: none, one, or several."""
    several = told if isinstance(told, list | tuple) else (told,)
    return tuple(id_ for id_ in several if isinstance(id_, int) and not isinstance(id_, bool))


def _one_of(told: object) -> str | None:
    """A template's text; of several named ones the default."""
    if isinstance(told, list):
        named = {each.get("name"): each.get("template") for each in told if isinstance(each, dict)}
        told = named.get("default") or next(iter(named.values()), None)
    return told if isinstance(told, str) and told else None


def _vocabulary(told: Json) -> Mapping[str, int]:
    """In tokenizer.json: the model's own tokens, numbered or in order, and those added to them."""
    known = told.get("model", {}).get("vocab", {})
    pairs = (
        known.items() if isinstance(known, dict) else ((row[0], n) for n, row in enumerate(known))
    )
    added = ((token["content"], token["id"]) for token in told.get("added_tokens", ()))
    return {str(text): int(id_) for text, id_ in (*pairs, *added)}


def _shapes(file: Path) -> Mapping[str, tuple[int, ...]]:
    size = file.stat().st_size
    with file.open("rb") as opened:
        start = opened.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 0 < length <= min(_LONGEST_HEADER, size - 8):
            raise CannotTell(f"{file.name} is damaged, or no safetensors file")
        raw = opened.read(length)
    try:
        told = json.loads(raw)
        tensors = {name: each for name, each in told.items() if name != "__metadata__"}
        last = max((each["data_offsets"][1] for each in tensors.values()), default=0)
        shapes = {name: tuple(each["shape"]) for name, each in tensors.items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise CannotTell(f"{file.name} is damaged: its header cannot be read") from None
    if 8 + length + last > size:
        raise CannotTell(f"{file.name} is cut short: weights are missing")
    return shapes
