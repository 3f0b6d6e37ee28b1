"""What checkpoints need installed: told before anything is fetched or loaded."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from bourn.catalog.packages import NEEDED, check_installed
from bourn.errors import LoadFailed


def test_what_is_installed_here_is_enough() -> None:
    check_installed()


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        (["torch"], "need torch, which is not installed"),
        (["torch", "transformers"], "need torch and transformers, which are not installed"),
        (list(NEEDED), "need torch, transformers, accelerate and jinja2, which are"),
    ],
)
def test_what_is_missing_is_named(
    missing: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(LoadFailed, match=told) as caught:
        check_installed()
    assert caught.value.hint == "pip install 'bourn[hf]'"


@pytest.mark.parametrize("version", ["4.57.3", "5.19.0", "5.9"])
def test_what_is_too_old_is_named(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "transformers-0.dist-info").mkdir()
    told = f"Metadata-Version: 2.1\nName: transformers\nVersion: {version}\n"
    (tmp_path / "transformers-0.dist-info" / "METADATA").write_text(told)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LoadFailed, match=rf"transformers 5\.20 or later; {version} is here"):
        check_installed()


def test_the_versions_are_those_of_the_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extra = " ".join(project["project"]["optional-dependencies"]["hf"])
    for name, least in NEEDED.items():
        assert f"{name}>={'.'.join(map(str, least))}" in extra
