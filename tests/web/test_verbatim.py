"""What was typed, shown letter for letter."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bourn.web.verbatim import verbatim
from tests.support.shown import as_typed


@pytest.mark.parametrize(
    "text",
    [
        "def __init__(self):\n    return 1  # so\n",
        "<script>alert(1)</script>\n\n# no heading\n\n- no list\n1. none\n\tcode",
        "$a$, $$b$$, \\(c\\), `d` &amp; &#42; https://a.b",
        "",
    ],
)
def test_it_is_what_was_typed(text: str) -> None:
    assert as_typed(verbatim(text)) == text


WRITTEN = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\n\t #*<&`"))


@given(WRITTEN)
def test_nothing_in_it_means_anything(text: str) -> None:
    shown = verbatim(text)
    bare = re.sub(r"&#\d+;", "x", shown)
    assert not re.search(r"[!-/:-@\[-`{-~\t]|^ | $|^$", bare, re.MULTILINE)
    lone = re.sub(r"^ $", "", text, flags=re.MULTILINE)  # a blank alone on its line is as none
    assert as_typed(shown) == lone
