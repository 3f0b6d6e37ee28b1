"""Formulas and prices."""

from __future__ import annotations

import pytest

from bourn.web.formulas import formulas


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("so $E = mc^2$, and $a_1$.", r"so \(E = mc^2\), and \(a_1\)."),
        (r"a $\text{5\$}$ b", r"a \(\text{5\$}\) b"),
        ("`a` and $b$", r"`a` and \(b\)"),
        ("```\n$x$\n```\n$y$", "```\n$x$\n```\n" + r"\(y\)"),
    ],
)
def test_formulas_are_found(text: str, drawn: str) -> None:
    assert formulas(text) == drawn


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and $6.",
        "From $5-$10, or US$7, not $x.",
        r"\$a\$",
        "$$a$$ and $$b",
        "in `$a$` and ``$`$``",
        "```sh\necho $A$B\n```",
        "~~~\n$a$\n",
        "```\n$a$",
        "$a\nb$",
        "no dollar",
    ],
)
def test_all_else_stays(text: str) -> None:
    assert formulas(text) == text


def test_it_takes_no_time() -> None:
    for each in (
        "$a " * 20_000,
        "`" * 20_000 + "$ $",
        "$" * 20_000,
        "`a$" * 10_000,
        "\n```$$" * 5_000,
    ):
        assert isinstance(formulas(each), str)
