"""Made models are too small for more than one thread, and exact results should not depend on it.

How much transformers says does not depend on who runs the tests either.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def talkative(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As transformers is when nobody asks it for more or less."""
    from transformers.utils import logging

    monkeypatch.delenv("TRANSFORMERS_VERBOSITY", raising=False)
    before = logging.get_verbosity()
    logging.set_verbosity_warning()
    yield
    logging.set_verbosity(before)
