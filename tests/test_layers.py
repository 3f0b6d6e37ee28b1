"""Imports go one way: a module may import from the layers before its own, and from its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "bourn"

LAYERS = [
    "errors",
    "values",
    "error_values",
    "databases",
    "types",
    "messages",
    "settings",
    "text",
    "metrics",
    "catalog",
    "journal",
    "stream",
    "wire",
    "engines",
    "admission",
    "terms",
    "archive",
    "sharing",
    "choices",
    "generation",
    "hub",
    "asking",
    "chat",
    "conversations",
    "aio",
    "sync",
    "history",
    "gradio",
    "server",
    "web",
    "batch",
    "bench",
    "doctor",
    "cli",
]


def imports(path: Path) -> set[str]:
    """The parts of bourn that a file imports at run time, in functions too."""
    found: set[str] = set()
    for node in _run_time(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bourn."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "bourn":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            found |= {parts[1] for parts in names if parts[0] == "bourn" and len(parts) > 1}
    return found & set(LAYERS)


def _run_time(node: ast.AST) -> list[ast.AST]:
    if (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    ):
        return []
    return [node, *(deeper for child in ast.iter_child_nodes(node) for deeper in _run_time(child))]


MODULES = [
    path for path in sorted(SOURCE.rglob("*.py")) if path.parent != SOURCE or path.stem in LAYERS
]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    later = LAYERS[LAYERS.index(own) + 1 :]
    assert not imports(path) & set(later)


def test_every_module_has_a_layer() -> None:
    parts = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
    assert parts - {"__init__", "__main__"} <= set(LAYERS)
