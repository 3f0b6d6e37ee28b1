"""What is read of a folder, from whichever of its files tells it, and what is damaged in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bourn.doctor.finding import CannotTell
from bourn.doctor.folder import Folder, ids_in


def folder(path: Path, **files: Any) -> Folder:
    for name, told in files.items():
        (path / f"{name}.json").write_text(told if isinstance(told, str) else json.dumps(told))
    return Folder(path)


def test_of_several_places_for_a_template_the_newest_kind_is_taken(tmp_path: Path) -> None:
    assert folder(tmp_path, tokenizer_config={}).template is None
    assert folder(tmp_path, tokenizer_config={"chat_template": "old"}).template == "old"
    assert folder(tmp_path, chat_template={"chat_template": "newer"}).template == "newer"
    (tmp_path / "chat_template.jinja").write_text("newest")
    assert folder(tmp_path).template == "newest"
    assert Folder(tmp_path, template="given").template == "given"


def test_of_several_named_templates_the_default_is_taken(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    assert folder(tmp_path, tokenizer_config={"chat_template": named}).template == "plain"


def test_the_part_that_writes_goes_before_the_whole(tmp_path: Path) -> None:
    here = folder(tmp_path, config={"a": 1, "b": 2, "text_config": {"b": 3}})
    assert (here.said("a"), here.said("b"), here.said("c")) == (1, 3, None)


@pytest.mark.parametrize(
    ("files", "ends"),
    [
        ({"config": {"eos_token_id": 7}}, (7,)),
        ({"config": {"eos_token_id": 7}, "generation_config": {}}, ()),
        ({"config": {"eos_token_id": 7}, "generation_config": {"eos_token_id": [8, 9]}}, (8, 9)),
        ({"config": {"text_config": {"eos_token_id": [7]}}}, (7,)),
        ({"config": {}}, ()),
    ],
)
def test_where_generate_stops(tmp_path: Path, files: dict[str, Any], ends: tuple[int, ...]) -> None:
    assert folder(tmp_path, **files).generate_ends == ends


def test_ids_as_configurations_name_them() -> None:
    assert (ids_in(3), ids_in([3, 4]), ids_in(None)) == ((3,), (3, 4), ())
    assert (ids_in(True), ids_in(["a", None, 3]), ids_in("3")) == ((), (3,), ())


@pytest.mark.parametrize("text", ["{", "[1]", ""])
def test_damaged_json_cannot_tell(tmp_path: Path, text: str) -> None:
    with pytest.raises(CannotTell, match=r"config\.json"):
        _ = folder(tmp_path, config=text).config


def test_vocabularies_in_both_shapes(tmp_path: Path) -> None:
    added = [{"id": 2, "content": "<end>"}]
    merged = {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": added}
    assert folder(tmp_path, tokenizer=merged).vocabulary == {"a": 0, "b": 1, "<end>": 2}
    listed = {"model": {"vocab": [["a", -1.0], ["b", -2.0]]}, "added_tokens": added}
    assert folder(tmp_path, tokenizer=listed).vocabulary == {"a": 0, "b": 1, "<end>": 2}
    with pytest.raises(CannotTell, match=r"tokenizer\.json"):
        _ = folder(tmp_path, tokenizer={"model": 3}).vocabulary


def test_a_tokenizer_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CannotTell, match="the tokenizer cannot be loaded"):
        _ = folder(tmp_path, config={"model_type": "llama"}).tokenizer


def weights(path: Path, header: Any, *, length: int | None = None, data: int = 0) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(raw) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + raw + bytes(data))
    return path


def tensor(*shape: int, end: int = 0) -> dict[str, Any]:
    return {"dtype": "F32", "shape": list(shape), "data_offsets": [0, end]}


def test_shapes_of_all_files(tmp_path: Path) -> None:
    weights(tmp_path / "a.safetensors", {"x": tensor(3, 2, end=24), "__metadata__": {}}, data=24)
    weights(tmp_path / "b.safetensors", {"y": tensor(5)})
    assert Folder(tmp_path).shapes == {"x": (3, 2), "y": (5,)}


@pytest.mark.parametrize(
    ("header", "length", "said"),
    [
        (b"", 0, "is damaged, or no safetensors file"),
        (b"{}", 1 << 60, "is damaged, or no safetensors file"),
        (b"not json", None, "its header cannot be read"),
        (b"[]", None, "its header cannot be read"),
        ({"x": {"shape": [1]}}, None, "its header cannot be read"),
        ({"x": tensor(3, end=12)}, None, "is cut short"),
    ],
)
def test_damaged_weights(tmp_path: Path, header: Any, length: int | None, said: str) -> None:
    weights(tmp_path / "m.safetensors", header, length=length)
    with pytest.raises(CannotTell, match=said):
        _ = Folder(tmp_path).shapes


def test_no_weights(tmp_path: Path) -> None:
    with pytest.raises(CannotTell, match="no weights in safetensors"):
        _ = Folder(tmp_path).shapes
