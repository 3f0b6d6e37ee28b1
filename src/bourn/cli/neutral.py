"""What a model may not do to a terminal: steer it."""

from __future__ import annotations

_C0 = {code: f"^{chr(code ^ 0x40)}" for code in (*range(0x20), 0x7F)}
_C1 = {code: f"<{code:02X}>" for code in range(0x80, 0xA0)}
_TABLE: dict[int, str] = _C0 | _C1 | {ord("\n"): "\n", ord("\t"): "\t", ord("\r"): ""}


def neutral(text: str) -> str:
    """The text with control characters made visible (`^[` is escape), so that none acts.

    Newlines and tabs stay. A carriage return, which could hide what stands before it, goes.
    """
    return text.translate(_TABLE) if not text.isprintable() else text
