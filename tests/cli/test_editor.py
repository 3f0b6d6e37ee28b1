from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bourn.cli.editor import edit, editor_of
from bourn.errors import InvalidRequest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the editors are shell scripts")


@pytest.fixture
def editor(tmp_path: Path) -> Path:
    """Writes down the name and the mode of the file, and adds a line."""
    script = tmp_path / "my editor"
    script.write_text(f'#!/bin/sh\nstat -c "%a %n" "$2" > {tmp_path}/seen\necho "$1" >> "$2"\n')
    script.chmod(0o755)
    return script


def test_the_text_comes_back_as_it_was_left(editor: Path, tmp_path: Path) -> None:
    assert edit("Grüße\n\n  漢字", f"'{editor}' added") == "Grüße\n\n  漢字\nadded"
    mode, name = (tmp_path / "seen").read_text().split()
    assert name.endswith(".md")
    assert not Path(name).exists(), "nothing is left behind"
    assert mode in {"600", "644"}


@pytest.mark.parametrize("command", ["/no/such/editor", "false", "'unclosed", ""])
def test_an_editor_that_fails_is_told(command: str) -> None:
    with pytest.raises(InvalidRequest):
        edit("text", command)


def test_visual_goes_before_editor() -> None:
    assert editor_of({"VISUAL": "a", "EDITOR": "b"}) == "a"
    assert editor_of({"VISUAL": "", "EDITOR": "b"}) == "b"
    assert editor_of({}) is None
