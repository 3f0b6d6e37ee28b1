r"""Which dollars of a text are formulas, and which are prices. Pure.

The page draws what stands between `\(` and `\)`, and no `$…$`, of which it would take `$5 and $6`
for one. So the formulas among those are found here, by the rule of Pandoc: no blank is beside the
dollars within, and no digit after them.
"""

from __future__ import annotations

import re

_FORMULA = re.compile(
    r"""
    (?: ^[ ]{0,3} (?P<fence>`{3,}|~{3,}) .* (?:\n.*)*? (?: \n [ ]{0,3} (?P=fence) | \Z )
      | (?P<ticks>`+) (?: [^`] | (?!(?P=ticks))` )+? (?P=ticks) (?!`)
      | \\.
      | \$\$ [^$]* (?: \$\$ )?
    )
    | \$ (?P<formula> (?! [\s$] ) (?: [^$\\\n] | \\. )+ (?<! \s ) ) \$ (?! \d )
    """,
    re.VERBOSE | re.MULTILINE,
)


def formulas(text: str) -> str:
    r"""The text with `\(a\)` for each formula `$a$` that is not in code."""
    return _FORMULA.sub(_drawn, text) if text.count("$") > 1 else text


def _drawn(found: re.Match[str]) -> str:
    formula = found["formula"]
    return found[0] if formula is None else rf"\({formula}\)"
