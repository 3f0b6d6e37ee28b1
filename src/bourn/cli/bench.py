"""`bourn bench`: how fast a model streams on this machine."""

from __future__ import annotations

import asyncio
import json
import statistics
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from bourn.cli import options
from bourn.cli.show import exit_codes, say
from bourn.engines import engine_for
from bourn.errors import InvalidRequest
from bourn.settings import Settings

if TYPE_CHECKING:
    from bourn.bench import Round


def bench(
    model: Annotated[str | None, Argument(help="As for run -m.", show_default=False)] = None,
    streams: Annotated[
        str, Option("-n", "--streams", help="How many at once, each in turn.")
    ] = "1,4",
    rounds: Annotated[int, Option("-r", "--rounds", min=1, help="Rounds of each.")] = 3,
    max_new_tokens: Annotated[int, Option(min=2, help="Tokens of each answer.")] = 64,
    threads: options.Threads = None,
    cpu_only: options.CpuOnly = None,
    llama_server: options.LlamaServer = None,
    as_json: Annotated[bool, Option("--json", help="An object for each round.")] = False,
) -> None:
    """Measure how fast a model streams here."""
    with exit_codes():
        counts = _counts(streams)
        settings = replace(Settings.load(options.flags(locals())), slots=max(counts))
        measured = asyncio.run(_measure(settings, counts, rounds, max_new_tokens, as_json=as_json))
        if not as_json:
            for count in counts:
                print(_row([one for one in measured if one.streams == count]))


def _counts(streams: str) -> list[int]:
    try:
        counts = [int(count) for count in streams.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise InvalidRequest(f"-n is {streams!r}", hint="give numbers, such as -n 1,4,8")
    return counts


async def _measure(
    settings: Settings, counts: list[int], rounds: int, max_new_tokens: int, *, as_json: bool
) -> list[Round]:
    from bourn.aio import Model
    from bourn.bench import measure

    measured = []
    async with Model(engine_for(settings), settings) as model:
        say(f"bourn: {model.info.name} on {model.info.engine}, {rounds} rounds")
        async for one in measure(model, counts, rounds=rounds, max_new_tokens=max_new_tokens):
            measured.append(one)
            if as_json:
                print(
                    json.dumps(asdict(one) | {"tokens_per_second": one.tokens_per_second}),
                    flush=True,
                )
    return measured


def _row(rounds: list[Round]) -> str:
    speeds = [one.tokens_per_second for one in rounds]
    told = (
        f"{rounds[0].streams:3d} at once: {statistics.median(speeds):7.1f} tokens/s"
        f" ({min(speeds):.1f} to {max(speeds):.1f})"
    )
    for name, values in (
        ("first token", [one.ttft for one in rounds]),
        ("inter-token p50", [one.itl_p50 for one in rounds]),
        ("p99", [one.itl_p99 for one in rounds]),
    ):
        known = [value for value in values if value is not None]
        if known:
            told += f" · {name} {statistics.median(known) * 1000:.0f} ms"
    return told
