"""What has to be installed before a checkpoint can be loaded. It imports none of that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec

from bourn.errors import LoadFailed

NEEDED: Mapping[str, tuple[int, int]] = {
    "torch": (2, 8),
    "transformers": (5, 20),
    "accelerate": (1, 15),
    "jinja2": (3, 1),
}
"""The least versions, as the extra `hf` has them."""


def check_installed() -> None:
    """See that a checkpoint can be loaded here at all, before gigabytes of it are fetched.

    Raises:
        LoadFailed: a package is missing, or too old.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise LoadFailed(
            f"checkpoints need {_listed(missing)}, which {_are(missing)} not installed",
            hint="pip install 'bourn[hf]'",
        )
    for name, least in NEEDED.items():
        there = _version(name)
        if there and _numbers(there) < least:
            raise LoadFailed(
                f"checkpoints need {name} {'.'.join(map(str, least))} or later; {there} is here",
                hint="pip install -U 'bourn[hf]'",
            )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # built here, and never installed as a package
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _are(names: list[str]) -> str:
    return "are" if names[1:] else "is"
