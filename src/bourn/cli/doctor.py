"""`bourn doctor`: why a model does not stop, and what else is wrong with it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from bourn.cli import options
from bourn.cli.neutral import neutral
from bourn.cli.show import FAILED, Status, exit_codes, is_styled, say
from bourn.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bourn.catalog import Source
    from bourn.doctor import Finding

Show = Callable[["Finding"], None]


def doctor(
    model: Annotated[str, Argument(help="As for run -m.", show_default=False)],
    fix: Annotated[
        bool, Option("--fix", help="Mend generation_config.json; the one before is kept beside it.")
    ] = False,
    no_run: Annotated[
        bool, Option("--no-run", help="Look only, ask nothing; no weights are loaded.")
    ] = False,
    chat_template: options.ChatTemplate = None,
    window: options.Window = None,
    threads: options.Threads = None,
    cpu_only: options.CpuOnly = None,
    llama_server: options.LlamaServer = None,
    dtype: options.Dtype = None,
    device: options.Device = None,
    quantization: options.Quantization = None,
    trust_remote_code: options.TrustRemoteCode = None,
    as_json: Annotated[bool, Option("--json", help="An object for each finding, a line.")] = False,
) -> None:
    """Find why a model does not stop, and what else is wrong.

    A folder, a name on the hub, a GGUF file, or a server. The exit status is 1 where something is
    broken.
    """
    flags = options.flags(locals())
    with exit_codes():
        from bourn.catalog import resolve

        settings = Settings.load(flags)
        source = resolve(settings.model, code=settings.trust_remote_code)
        if fix:
            _mend(source, settings)
        show = _as_json if as_json else _as_table() if is_styled(sys.stdout) else _as_text
        found = asyncio.run(_examine(source, settings, show, ask=not no_run))
        if not as_json:
            print(f"\n{_summary(found)}")
    if any(each.state == "broken" for each in found):
        raise SystemExit(FAILED)


async def _examine(source: Source, settings: Settings, show: Show, *, ask: bool) -> list[Finding]:
    from bourn.doctor import examine

    found, status = [], Status()
    status.show("looking …")
    try:
        async for finding in examine(source, settings, ask=ask, on_progress=status.loading):
            status.clear()
            show(finding)
            found.append(finding)
            status.show("looking on …")
    finally:
        status.clear()
    return found


def _mend(source: Source, settings: Settings) -> None:
    from bourn.doctor import mend

    mended = mend(source, settings)
    for each in mended.findings:
        say(neutral(f"mended: {each.found}"))
    if not mended.findings:
        say("there is nothing that --fix could mend")
    elif mended.backup is not None:
        say(f"generation_config.json as it was is kept in {mended.backup}")


# -- showing ---------------------------------------------------------------------------------------


def _as_json(finding: Finding) -> None:
    print(json.dumps(asdict(finding), ensure_ascii=False), flush=True)


def _as_text(finding: Finding) -> None:
    print(f"{finding.state:8} {finding.check:18} {neutral(finding.found)}", flush=True)
    for word, text in _more(finding):
        print(f"{'':27} {word}: {text}", flush=True)


def _more(finding: Finding) -> list[tuple[str, str]]:
    told = (("why", finding.why), ("mend", finding.mend))
    return [(word, neutral(text)) for word, text in told if text]


_STYLES = {
    "ok": "green",
    "note": "cyan",
    "warning": "yellow",
    "broken": "bold red",
    "skipped": "dim",
}


def _as_table() -> Show:
    """Row by row, as findings come."""
    from rich.console import Console

    console = Console(highlight=False)

    def show(finding: Finding) -> None:
        console.print(_row(finding))

    return show


def _row(finding: Finding) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(width=7)
    row.add_column(width=17)
    row.add_column(ratio=1)
    dim = "dim" if finding.state == "skipped" else ""
    row.add_row(
        Text(finding.state, _STYLES[finding.state]),
        Text(finding.check, dim),
        Text(neutral(finding.found), dim),
    )
    for word, text in _more(finding):
        mark = "→ " if word == "mend" else ""
        row.add_row("", "", Text(mark + text, "" if mark else "dim"))
    return row


def _summary(found: list[Finding]) -> str:
    counts = Counter(str(each.state) for each in found)
    return ", ".join(f"{counts[state]} {state}" for state in _STYLES if counts[state])
