from __future__ import annotations

import base64
import io
import os
import sys
from pathlib import Path

import pytest

from bourn.cli.clipboard import copy, osc52

TEXT = "Grüße, 漢字\n🔥 \ud800"
SEEN = "Grüße, 漢字\n🔥 ?"


def test_the_terminal_is_asked_in_base64() -> None:
    head, body = osc52(TEXT).split(";c;")
    assert head == "\x1b]52"
    assert base64.b64decode(body.removesuffix("\x07")).decode() == SEEN


def test_without_a_terminal_and_a_program_there_is_no_way() -> None:
    assert copy(TEXT, None, {"DISPLAY": ":0", "PATH": "/nowhere"}) == ()


@pytest.mark.skipif(sys.platform != "linux", reason="the programs are those of Linux")
@pytest.mark.parametrize(
    ("variable", "program"),
    [("WAYLAND_DISPLAY", "wl-copy"), ("DISPLAY", "xclip"), ("DISPLAY", "xsel")],
)
def test_a_program_and_the_terminal_both_get_the_text(
    tmp_path: Path, variable: str, program: str
) -> None:
    (tmp_path / program).write_text(f"#!/bin/sh\ncat > {tmp_path}/got\necho noise\n")
    (tmp_path / program).chmod(0o755)
    terminal = io.StringIO()
    environ = {variable: "here", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert copy(TEXT, terminal, environ) == (program, "the terminal")
    assert (tmp_path / "got").read_text() == SEEN
    assert terminal.getvalue() == osc52(TEXT)


@pytest.mark.skipif(sys.platform != "linux", reason="the programs are those of Linux")
def test_a_program_that_fails_is_no_way(tmp_path: Path) -> None:
    (tmp_path / "xclip").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "xclip").chmod(0o755)
    assert copy(TEXT, None, {"DISPLAY": "here", "PATH": str(tmp_path)}) == ()
