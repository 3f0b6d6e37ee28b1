"""What transformers, torch and a checkpoint's own code raise while loading, as bourn's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from bourn.errors import BournError, LoadFailed

_NO_MEMORY = re.compile(
    r"out of memory|(?:can't|cannot) allocate memory|not enough memory", re.IGNORECASE
)
_INSTALL = re.compile(r"pip install (?:-\S+ )*['\"]?([\w.\[\]-]+(?:[<>=!]=?[\w.]+)?)")
_LONGEST = 300


@contextmanager
def told_plainly(what: str) -> Iterator[None]:
    """Whatever is raised inside, as `LoadFailed` that says of what, and what to do."""
    try:
        yield
    except BournError:
        raise
    except Exception as error:  # a checkpoint, or code in it, can make transformers raise anything
        raise _plain(what, error) from error


def brings_code(what: str) -> LoadFailed:
    """The refusal to run Python code that nobody here has looked at."""
    return LoadFailed(
        f"{what} comes with Python code of its own, which loading it would run",
        hint="read its *.py files; --trust-remote-code (trust_remote_code=True) runs them with all "
        "your rights",
    )


def _plain(what: str, error: Exception) -> LoadFailed:
    said = _first_line(error)
    if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
        return LoadFailed(
            f"there is not enough memory for {what}: {said}",
            hint="make it smaller by --dtype bfloat16 or --quantization 4bit, or take another",
        )
    if "trust_remote_code" in str(error):
        return brings_code(what)
    install = _INSTALL.search(str(error))
    if isinstance(error, ImportError) or install:
        return LoadFailed(
            f"{what} needs a package that is not here, or does not work: {said}",
            hint=f"pip install '{install[1]}'" if install else "install it beside bourn",
        )
    return LoadFailed(
        f"{what} cannot be loaded: {said}",
        hint=f"a {type(error).__name__} of transformers; TRANSFORMERS_VERBOSITY=info tells more",
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:_LONGEST] if lines else type(error).__name__
