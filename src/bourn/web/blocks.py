"""A long answer in parts, so that a browser draws anew only the last one as it grows. Pure."""

from __future__ import annotations

import re

LEAST = 1500

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_MATH = re.compile(r"\$\$|\\\[|\\\]")


def parts(text: str, least: int = LEAST) -> list[str]:
    """The Markdown in parts; together they are the text.

    It is cut between paragraphs, never within code or a formula, and before items of a list only
    where a part would become long. No part is shorter than `least` letters but the last. What is
    cut once stays so, whatever comes after it.
    """
    found: list[str] = []
    begin = end = 0
    fence, in_math, after_blank = "", False, False
    for line in text.splitlines(keepends=True):
        if after_blank and not fence and not in_math and _may_begin(line, end - begin, least):
            found.append(text[begin:end])
            begin = end
        fence = _fence_after(fence, line)
        if not fence:
            in_math ^= len(_MATH.findall(line)) % 2 == 1
        after_blank = not line.strip()
        end += len(line)
    return [*found, text[begin:]]


def _may_begin(line: str, size: int, least: int) -> bool:
    first = line[0]
    if size < least or first.isspace():
        return False
    return first.isalpha() or first == "#" or size >= 3 * least


def _fence_after(fence: str, line: str) -> str:
    """What opened the code that the text is in after this line; "" where it is in none."""
    found = _FENCE.match(line.rstrip("\n"))
    if found is None:
        return fence
    if not fence:
        return found[1] if "`" not in found[2] or found[1][0] == "~" else ""
    ends = found[1].startswith(fence) and not found[2].strip()
    return "" if ends else fence
