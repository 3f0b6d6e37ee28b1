"""`bourn batch`: many prompts from a file, their answers into another."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

from typer import Argument, Option

from bourn.cli import options
from bourn.cli.bar import Bar
from bourn.cli.show import FAILED, INTERRUPTED, Status, exit_codes, say
from bourn.engines import engine_for
from bourn.errors import InvalidRequest, StoreFailed
from bourn.settings import Settings

if TYPE_CHECKING:
    from bourn.aio import Model
    from bourn.batch import Job, Output
    from bourn.engines.base import Engine

SLOTS = 4
"""Of a local model, where nobody says: several answers at once are faster than one by one."""

AT_ONCE = 8
"""Requests to a model that keeps its slots to itself, as endpoints do."""


def batch(
    source: Annotated[
        str,
        Argument(
            metavar="IN.jsonl",
            help='Lines such as {"prompt": "…"} or {"messages": […]}; - is stdin.',
        ),
    ],
    output: Annotated[
        str,
        Option("-o", "--output", metavar="OUT.jsonl", help="Where the answers go; - is stdout."),
    ] = "-",
    model: options.Model = None,
    system: options.System = None,
    max_new_tokens: options.MaxNewTokens = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    slots: Annotated[
        int | None, Option(min=1, help=f"Answers at once of a local model [{SLOTS}].")
    ] = None,
    parallel: Annotated[
        int | None, Option(min=1, help=f"Requests at once to an endpoint [{AT_ONCE}].")
    ] = None,
    chat_template: options.ChatTemplate = None,
    window: options.Window = None,
    threads: options.Threads = None,
    cpu_only: options.CpuOnly = None,
    llama_server: options.LlamaServer = None,
    keep_alive: options.KeepAlive = None,
    dtype: options.Dtype = None,
    device: options.Device = None,
    quantization: options.Quantization = None,
    trust_remote_code: options.TrustRemoteCode = None,
    compile: options.Compile = None,  # noqa: A002 (as the flag is called)
) -> None:
    """Answer every line of a file, several at once; run again, it goes on where it ended.

    A line out has the id of the line in, which is its number where it has none of its own, and what
    came of it: an answer, or an error.
    """
    flags = options.flags(locals())
    with exit_codes():
        settings = Settings.load(flags)
        settings = replace(settings, slots=settings.slots or SLOTS)
        with _lines(source) as lines, _output(output, source) as out:
            answering = Answering(settings, out, parallel, Bar(shown=output != "-" or _piped()))
            status = Status()
            engine = engine_for(settings, status.loading)  # which may find and fetch it first
            try:
                asyncio.run(answering.run(engine, status, lines))
            except KeyboardInterrupt:
                say(f"bourn: stopped; {answering}")
                if output != "-":
                    say("  → the same command goes on from there")
                raise SystemExit(INTERRUPTED) from None
        say(f"bourn: {answering}")
        if answering.tally.failed:
            raise SystemExit(FAILED)


def _piped() -> bool:
    return not sys.stdout.isatty()


class Answering:
    """One run over the lines. As a text, what came of it."""

    def __init__(self, settings: Settings, output: Output, at_once: int | None, bar: Bar) -> None:
        from bourn.batch import Tally

        self.tally = Tally()
        self._settings = settings
        self._output = output
        self._at_once = at_once
        self._bar = bar

    async def run(self, engine: Engine, status: Status, lines: IO[bytes]) -> None:
        """Load the model, and have it answer what is to be answered."""
        from bourn.batch import Ahead, Tally, answers

        async with _loaded(engine, self._settings, status) as model:
            self.tally = Tally()  # now it begins
            at_once = self._at_once or model.info.slots or AT_ONCE
            with Ahead(self._wanted(lines)) as jobs, self._bar:
                self._bar.expect(lines)
                async with aclosing(answers(model, jobs, at_once=at_once)) as outcomes:
                    async for outcome in outcomes:
                        self._output.write(outcome.object(model.info.name))
                        self.tally.add(outcome)
                        self._bar.show(self.tally)

    def _wanted(self, lines: IO[bytes]) -> Iterator[Job]:
        """The jobs that are still to be done."""
        from bourn.batch import jobs

        try:
            for job in jobs(lines, self._settings):
                if job.id in self._output.done:
                    self.tally.skipped += 1
                else:
                    yield job
        except OSError as error:
            raise StoreFailed(f"cannot read on: {error.strerror}") from error

    def __str__(self) -> str:
        tally = self.tally
        told = f"{tally.answered} answered, {tally.failed} failed"
        if tally.skipped:
            told += f", {tally.skipped} were answered before"
        speed = tally.tokens / tally.seconds
        return f"{told} · {tally.tokens:,} tokens in {tally.seconds:.0f} s ({speed:.1f} tokens/s)"


@asynccontextmanager
async def _loaded(engine: Engine, settings: Settings, status: Status) -> AsyncIterator[Model]:
    from bourn.aio import Model

    status.show("loading the model …")
    try:
        async with Model(engine, settings) as model:
            status.clear()
            if model.info.notice:
                say(f"bourn: {model.info.notice}")
            yield model
    finally:
        status.clear()


@contextmanager
def _lines(source: str) -> Iterator[IO[bytes]]:
    if source == "-":
        # neither sys.stdin's own buffer nor one that is closed: a thread may wait in it at the end,
        # which nobody can wake
        yield open(0, "rb", closefd=False)  # noqa: SIM115
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(source).open("rb"))
        except OSError as error:
            raise InvalidRequest(f"cannot read {source}: {error.strerror}") from None
        yield file


@contextmanager
def _output(output: str, source: str) -> Iterator[Output]:
    from bourn.batch import Output, opened

    if output == "-":
        yield Output(sys.stdout.buffer, "stdout")
        return
    path = Path(output)
    if source != "-" and path.exists() and path.samefile(source):
        raise InvalidRequest("the answers would overwrite the questions", hint="name another file")
    with opened(path) as out:
        yield out
