"""Where a long answer is cut."""

from __future__ import annotations

import pytest

from bourn.web.blocks import parts

LONG = "word " * 10


def test_a_short_text_is_one_part() -> None:
    assert parts("") == [""]
    assert parts("  a\n\nb") == ["  a\n\nb"]


def test_it_is_cut_between_paragraphs() -> None:
    assert parts(f"{LONG}\n\n{LONG}\n\nend", 20) == [f"{LONG}\n\n", f"{LONG}\n\n", "end"]
    assert parts(f"{LONG}\n\n# Head\n\nend", 20) == [f"{LONG}\n\n", "# Head\n\nend"]
    assert parts(f"{LONG}\n{LONG}\nend", 20) == [f"{LONG}\n{LONG}\nend"]


@pytest.mark.parametrize(
    "whole",
    [
        f"{LONG}\n\n```python\nx\n\ny\n\n# z\n```\n",
        f"~~~~\n{LONG}\n\nx\n~~~\n\ny\n~~~~ no end\n\nz\n",
        f"````\n{LONG}\n```\n\nx\n````",
        f"$$\n{LONG}\n\nx\n$$",
        f"\\[ {LONG}\n\nx \\]",
        "1. word word word\n\n   more\n\n2. two",
        "- word word word word\n\n- two",
        "> word word word word\n\n> two",
    ],
)
def test_what_belongs_together_is_not_cut(whole: str) -> None:
    *_, last = parts(whole, 20)
    assert parts(whole, 20) == [last] or "```python" in last
    assert "".join(parts(whole, 20)) == whole


def test_after_code_it_is_cut_again() -> None:
    assert parts(f"```\n{LONG}\n```\n\nend", 20) == [f"```\n{LONG}\n```\n\n", "end"]
    assert parts(f"`` ```x``` {LONG}\n\nend", 20)[-1] == "end"


def test_a_list_that_does_not_end_is_cut_at_last() -> None:
    items = "".join(f"- {LONG}\n\n" for _ in range(20))
    found = parts(items, 100)
    assert len(found) > 3
    assert all(part.startswith("- ") for part in found)
