from __future__ import annotations

from pathlib import Path

import pytest

from bourn.cli.commands import COMMANDS
from bourn.cli.completion import completions


def test_completion() -> None:
    assert completions(":cl") == (":clear", ":clear-history")
    assert completions("/sa") == ("/save",)
    assert completions(":conf te") == (":conf temperature=",)
    assert len(completions(":")) == len(COMMANDS)
    assert completions("he") == completions(" :he") == completions(":seed 7") == ()


def test_completion_of_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "talks").mkdir()
    for name in ("talks/a.json", "talks/b c.json", "talks/.hidden"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert completions(":load ") == (":load talks/",)
    assert completions("/save talks/") == ("/save talks/a.json", "/save talks/b c.json")
    assert completions(f":load {tmp_path}/talks/b") == (f":load {tmp_path}/talks/b c.json",)
    assert completions(":load talks/.") == (":load talks/.hidden",)
    assert completions(":load no/such/") == completions(":load ~nobody-here/") == ()
