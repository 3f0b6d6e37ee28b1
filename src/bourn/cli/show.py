"""What a terminal shows: answers on stdout and nothing else there, all the rest on stderr."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from bourn.cli.neutral import neutral
from bourn.errors import BournError, InvalidRequest, PromptTooLong, SettingsError, TemplateError
from bourn.metrics import feel_of_speed, feel_of_start
from bourn.types import Event, Progress, Queued

if TYPE_CHECKING:
    from bourn.stream import Answer

FAILED, MISUSED, INTERRUPTED = 1, 2, 130


def prepare_streams() -> None:
    """A console that cannot show a character gets a `?`: that is no fault of the model's."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def is_styled(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a person looks at a terminal that knows escape sequences, and wants colours."""
    return knows_escapes(stream, environ) and not environ.get("NO_COLOR")


def knows_escapes(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether it is a terminal that can do more than write on."""
    if not stream.isatty():
        return False
    if os.name == "nt":
        from rich.console import detect_legacy_windows

        return not detect_legacy_windows()
    return environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}


@contextmanager
def exit_codes() -> Iterator[None]:
    """Errors told on stderr, and the exit status: 1 failed, 2 used wrongly, 130 interrupted."""
    prepare_streams()
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head -1`: who read has enough. What is left in the buffer must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BournError as error:
        tell_error(error)
        raise SystemExit(_status(error)) from None


def _status(error: BournError) -> int:
    if isinstance(error, PromptTooLong | TemplateError):
        return FAILED
    return MISUSED if isinstance(error, InvalidRequest | SettingsError) else FAILED


def tell_error(error: BaseException) -> None:
    say(neutral(f"bourn: {error or type(error).__name__}"))  # a server may have written it
    if isinstance(error, BournError) and error.hint:
        say(neutral(f"  → {error.hint}"))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Status:
    """A line on stderr that comes and goes; nothing where stderr is no terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shows = self._stream.isatty()
        self._shown = ""

    def show(self, text: str) -> None:
        text = _one_row(text)
        if self._shows and text != self._shown:
            self._write(f"\r{text}" + " " * (len(self._shown) - len(text)))
            self._shown = text

    def clear(self) -> None:
        if self._shown:
            self._write("\r" + " " * len(self._shown) + "\r")
            self._shown = ""

    def loading(self, done: int, total: int) -> None:
        """Show how much of a model is loaded, while somebody waits for it. From any thread."""
        if self._shown:
            self.show(f"loading: {done / total:.0%} of the weights")

    def event(self, event: Event) -> None:
        """Show where a request stands that has no token yet."""
        match event:
            case Queued():
                self.show(f"waiting, place {event.place}")
            case Progress() if event.done < event.total:
                share = event.done / event.total
                self.show(f"reading the prompt: {share:.0%} of {event.total:,} tokens")
            case Progress():
                pass
            case _:
                self.clear()

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _one_row(text: str) -> str:
    """What of a text fits one row of the terminal, where it can be written over."""
    text = " ".join(text.split())
    columns = shutil.get_terminal_size().columns - 1
    most = columns if text.isascii() else columns // 2  # wide characters take two
    return text if len(text) <= most else text[: max(most - 2, 0)].rstrip() + " …"


def stats_line(answer: Answer) -> str:
    """One line of numbers, and what they feel like."""
    told = answer.metrics
    parts = [f"{'~' if told.estimated else ''}{told.tokens} tokens"]
    if told.ttft is not None:
        parts.append(f"first after {told.ttft:.2f} s ({feel_of_start(told.ttft)})")
    if told.first_text is not None and told.ttft is not None and told.first_text > told.ttft + 0.05:
        parts.append(f"first text {told.first_text:.2f} s")
    if told.tokens_per_second is not None:
        speed = told.tokens_per_second
        parts.append(f"{speed:.1f} tokens/s ({feel_of_speed(speed)})")
    if told.itl_p50 is not None and told.itl_p99 is not None:
        parts.append(f"inter-token p50 {told.itl_p50 * 1000:.0f} p99 {told.itl_p99 * 1000:.0f} ms")
    parts.append(f"prompt {told.prompt_tokens} ({told.cached_tokens} cached)")
    parts.append(f"queue {told.queue_time:.2f} s")
    parts.append(f"total {told.total:.2f} s")
    if answer.seed is not None:
        parts.append(f"seed {answer.seed}")
    parts.append(answer.finish_reason or answer.state or "unfinished")
    return " · ".join(parts)
