"""`bourn run`: one answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from typer import Argument, Option

from bourn.cli import options
from bourn.cli.ask import Interrupt, JsonWriter, WholeWriter, Writer, opened, writer_for
from bourn.cli.show import INTERRUPTED, Status, exit_codes, say, stats_line
from bourn.engines import engine_for
from bourn.errors import InvalidRequest, SettingsError
from bourn.settings import Settings

if TYPE_CHECKING:
    from bourn.sync import Stream


def run(
    prompt: Annotated[
        list[str] | None, Argument(help="The question; - stands for what comes on stdin.")
    ] = None,
    model: options.Model = None,
    system: options.System = None,
    max_new_tokens: options.MaxNewTokens = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    raw: Annotated[bool, Option("--raw", help="Go on with the text, no chat template.")] = False,
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
    stats: options.Stats = False,
    as_json: Annotated[bool, Option("--json", help="One event a line, as JSON.")] = False,
    output: Annotated[
        Path | None, Option("-o", "--output", help="Write the answer to this file instead.")
    ] = None,
    no_stream: Annotated[
        bool, Option("--no-stream", help="Show the answer when it is whole.")
    ] = False,
) -> None:
    """Answer once, what is written here, on stdin, or both."""
    flags = options.flags(locals())
    with exit_codes():
        settings = Settings.load(flags)
        status = Status()
        engine = engine_for(settings, status.loading)  # which may begin while the rest is read
        asked = _asked(prompt or [])
        with opened(engine, settings, status) as loaded, _out(output) as out:
            writer = _writer(out, as_json=as_json, no_stream=no_stream)
            interrupted = _answer(loaded.stream(asked, raw=raw), writer, stats=stats)
        if interrupted:
            raise SystemExit(INTERRUPTED)


def _answer(stream: Stream, writer: Writer, *, stats: bool) -> bool:
    """Write the answer down; whether Ctrl-C ended it."""
    status = Status()
    with stream, Interrupt(stream) as interrupt:
        for event in stream.events():
            status.event(event)
            writer.event(event)
    status.clear()
    writer.end(stream)
    if stats:
        say(stats_line(stream))
    if stream.error is not None:
        raise stream.error
    return interrupt.pressed


def _writer(out: TextIO, *, as_json: bool, no_stream: bool) -> Writer:
    if as_json:
        return JsonWriter(out)
    return WholeWriter(out) if no_stream else writer_for(out, plain=True)


@contextmanager
def _out(output: Path | None) -> Iterator[TextIO]:
    if output is None:
        yield sys.stdout
        return
    try:
        with output.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise SettingsError(f"cannot write {output}: {error.strerror}") from None


def _asked(words: list[str]) -> str:
    """The prompt: words in order, `-` being stdin; stdin alone where it is piped and no word given.

    Raises:
        InvalidRequest: there is nothing to ask.
    """
    if not words and not sys.stdin.isatty():
        words = ["-"]
    text = "\n".join(_stdin() if word == "-" else word for word in words)
    if not text.strip():
        raise InvalidRequest("there is no question", hint='bourn run "Why is the sky blue?"')
    return text


def _stdin() -> str:
    said = sys.stdin.buffer.read()
    try:
        return said.decode()
    except UnicodeDecodeError:
        say("bourn: what came on stdin is not all UTF-8; the broken bytes were replaced")
        return said.decode(errors="replace")
