"""Which checks there are for which kind of model, and in which order they are done."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bourn.catalog import Checkpoint, Endpoint, Gguf, Source
from bourn.catalog.templates import template
from bourn.doctor import checkpoint, endpoint, gguf, live, mending
from bourn.doctor.finding import Finding
from bourn.doctor.folder import Folder
from bourn.doctor.gguf import GgufFile
from bourn.engines import OnProgress, engine_of
from bourn.engines.fit import check_fit
from bourn.engines.remote import Remote
from bourn.errors import InvalidRequest
from bourn.settings import Settings


async def examine(
    source: Source,
    settings: Settings,
    *,
    ask: bool = True,
    on_progress: OnProgress | None = None,
) -> AsyncGenerator[Finding]:
    """The findings about a model, as they come: files first, without loading any weight.

    ask: whether it may be asked something; a local model is loaded for that.
    on_progress: called while weights are read, by the engines that can tell.

    Raises:
        SettingsError: something was said that does not fit this kind of model.
        TemplateError: the settings name a chat template that there is none of.
    """
    check_fit(source, settings)
    if isinstance(source, Endpoint):
        remote = engine_of(source, settings)
        assert isinstance(remote, Remote)
        async for finding in endpoint.examine(remote, ask=ask):
            yield finding
        return
    marks: frozenset[str] = frozenset()
    if (files := _files(source, settings)) is not None:
        for finding in _static(files):
            yield finding
        marks = files.chat.marks
    if ask:
        made = partial(engine_of, source, settings, on_progress)
        async for finding in live.examine(made, settings, marks):
            yield finding


class Mended(NamedTuple):
    """findings: those whose fixes were done. backup: the file before, where there was one."""

    findings: tuple[Finding, ...]
    backup: Path | None


def mend(source: Source, settings: Settings) -> Mended:
    """Write what a program can mend into a checkpoint's generation_config.json.

    Raises:
        InvalidRequest: it is no checkpoint.
        StoreFailed: its folder cannot be written to.
    """
    files = _files(source, settings)
    if not isinstance(files, Folder):
        raise InvalidRequest(
            "only a checkpoint's generation_config.json can be mended",
            hint="leave --fix out, and do what the findings say",
        )
    found = tuple(each for each in checkpoint.examine(files) if each.fix is not None)
    return Mended(found, mending.mend(files, found) if found else None)


def _files(source: Source, settings: Settings) -> Folder | GgufFile | None:
    named = settings.chat_template
    given = None if named is None else template(named)
    match source:
        case Checkpoint():
            return Folder(source.folder, source.name, given)
        case Gguf():
            return GgufFile(source.path, source.facts, source.name, given)
        case _:
            return None


def _static(files: Folder | GgufFile) -> Iterator[Finding]:
    return checkpoint.examine(files) if isinstance(files, Folder) else gguf.examine(files)
