"""Laws of cutting an answer into parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bourn.web.blocks import parts

markdown = st.lists(
    st.sampled_from(
        [
            *("word ", "\n", "\n\n", "```", "~~~~", "$$", "\\[", "\\]", "# ", "- ", "1. ", "    "),
            *("| ", "\r\n", "\x85", "\u2028", "é", "`"),
        ]
    ),
    max_size=60,
).map("".join)
least = st.integers(1, 40)


@given(text=markdown, least=least)
def test_the_parts_are_the_text(text: str, least: int) -> None:
    found = parts(text, least)
    assert "".join(found) == text
    assert all(len(part) >= least for part in found[:-1])


@given(text=markdown, least=least, data=st.data())
def test_what_is_cut_stays_cut(text: str, least: int, data: st.DataObject) -> None:
    begun = text[: data.draw(st.integers(0, len(text)))]
    before, after = parts(begun, least), parts(text, least)
    assert before[:-1] == after[: len(before) - 1]
