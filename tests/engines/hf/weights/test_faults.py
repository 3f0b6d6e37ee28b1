"""Errors of other libraries while loading, told plainly."""

from __future__ import annotations

import pytest
import torch

from bourn.engines.hf.weights.faults import told_plainly
from bourn.errors import LoadFailed, TemplateError


def told(error: BaseException) -> LoadFailed:
    with pytest.raises(LoadFailed) as caught, told_plainly("org/m"):
        raise error
    assert caught.value.__cause__ is error
    return caught.value


def test_no_memory() -> None:
    with pytest.raises(LoadFailed, match="memory for org/m") as caught, told_plainly("org/m"):
        torch.empty(2**50, dtype=torch.float32)
    assert "--dtype bfloat16" in caught.value.hint
    for error in (MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried …")):
        assert "not enough memory" in str(told(error))


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        (
            "requires it: `pip install -U bitsandbytes>=0.46.1`",
            "pip install 'bitsandbytes>=0.46.1'",
        ),
        ("not found: einops. Run `pip install einops`", "pip install 'einops'"),
        ("libcudart.so.12: cannot open shared object file", "install it beside bourn"),
    ],
)
def test_missing_packages(said: str, hint: str) -> None:
    error = told(ImportError(said))
    assert "org/m needs a package" in str(error)
    assert error.hint == hint


def test_anything_else_by_its_first_line() -> None:
    error = told(ValueError("\n  Something is odd.\nAnd much more about it."))
    assert str(error) == "org/m cannot be loaded: Something is odd."
    assert "ValueError" in error.hint
    assert str(told(KeyError())) == "org/m cannot be loaded: KeyError"
    assert len(str(told(ValueError("long " * 1000)))) < 400


def test_what_is_told_already_stays_and_so_does_an_interruption() -> None:
    for kind in (TemplateError("no such template"), KeyboardInterrupt()):
        with pytest.raises(type(kind)) as caught, told_plainly("org/m"):
            raise kind
        assert caught.value is kind
