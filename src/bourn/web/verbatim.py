"""What a visitor has typed, as Markdown that shows it letter for letter. Pure.

Where a question is edited, the page's script takes it back to what was typed.
"""

from __future__ import annotations

import re

_MEANS_SOMETHING = re.compile(r"[!-/:-@\[-`{-~\t\v\f\r]|^ | $")
"""To Markdown, HTML or LaTeX: all punctuation, and blanks around a line."""


def verbatim(text: str) -> str:
    """Each such letter by its number, as HTML has it; blank lines are lines."""
    return "\n".join(_MEANS_SOMETHING.sub(_by_number, line) or "&#32;" for line in text.split("\n"))


def _by_number(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"
