"""Which checks are done for which kind of model; and whole models, from file to answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from bourn.catalog import Checkpoint, Endpoint, ScriptedSource, Source, gguf, sources
from bourn.doctor import Finding, State, checkpoint, endpoint, examine, live, mend
from bourn.doctor import gguf as gguf_checks
from bourn.errors import InvalidRequest, SettingsError, TemplateError
from bourn.settings import Settings
from tests.support import sick_models as sick
from tests.support.gguf_writer import write_gguf
from tests.support.openai_server import Answer, serving, text_stream


async def examined(
    source: Source, settings: Settings | None = None, *, ask: bool = True
) -> dict[str, Finding]:
    found = examine(source, settings or Settings(), ask=ask)
    return {finding.check: finding async for finding in found}


def a_gguf(path: Path) -> sources.Gguf:
    write_gguf(path)
    return sources.Gguf(path, gguf.read(path), "tiny", path.stat().st_size)


async def test_a_folder_is_looked_at_and_then_asked(tmp_path: Path) -> None:
    found = await examined(Checkpoint(sick.healthy(tmp_path / "model"), "tiny"))
    assert list(found) == [*checkpoint.CHECKS, *live.CHECKS]
    assert {each.state for each in found.values()} == {State.OK}
    assert found["clean text"].found == "“hi”"


async def test_nothing_is_asked_where_nothing_may_be(tmp_path: Path) -> None:
    folder = Checkpoint(sick.healthy(tmp_path / "model"), "tiny")
    assert list(await examined(folder, ask=False)) == list(checkpoint.CHECKS)
    file = a_gguf(tmp_path / "tiny.gguf")
    assert list(await examined(file, ask=False)) == list(gguf_checks.CHECKS)
    async with serving() as server:
        assert list(await examined(Endpoint(server.url, "m"), ask=False)) == ["endpoint"]
        assert server.asked == []


async def test_a_server_is_asked_over_the_wire() -> None:
    async with serving(Answer(text_stream("Hi", finish="length"))) as server:
        found = await examined(Endpoint(server.url, "m"))
    assert list(found) == ["endpoint", *endpoint.CHECKS]


async def test_what_has_no_files_here_is_only_asked() -> None:
    assert list(await examined(ScriptedSource("Paris."))) == list(live.CHECKS)


async def test_what_ends_in_a_text_is_stopped_by_bourn(tmp_path: Path) -> None:
    found = await examined(Checkpoint(sick.ends_in_text(tmp_path / "model"), "tiny"))
    assert found["end of turn"].state is State.WARNING
    assert found["stops by itself"].state is State.OK
    assert found["clean text"].found == "“hi”"


async def test_another_template_is_judged_and_asked_with(tmp_path: Path) -> None:
    folder = Checkpoint(sick.has_no_template(tmp_path / "model"), "tiny")
    without = await examined(folder)
    assert without["chat template"].state is State.WARNING
    assert without["stops by itself"].state is State.OK  # it goes on with a text, and ends
    with_one = await examined(folder, Settings(chat_template="chatml"))
    assert {each.state for each in with_one.values()} == {State.OK}


async def test_what_cannot_be_loaded_is_found_to_be_so(tmp_path: Path) -> None:
    found = await examined(Checkpoint(sick.is_cut_short(tmp_path / "model"), "tiny"))
    assert found["files"].state is found["stops by itself"].state is State.BROKEN


async def test_settings_that_do_not_fit_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(TemplateError):
        await examined(Checkpoint(tmp_path, "tiny"), Settings(chat_template="no-such-template"))
    said = Settings.load({"dtype": "float32"})
    with pytest.raises(SettingsError, match="--dtype"):
        await examined(a_gguf(tmp_path / "tiny.gguf"), said, ask=False)


def test_mending(tmp_path: Path) -> None:
    source = Checkpoint(sick.ends_elsewhere(tmp_path / "model"), "tiny")
    mended = mend(source, Settings())
    assert [each.check for each in mended.findings] == ["end of turn"]
    assert mended.backup == source.folder / "generation_config.json.bak"
    again = mend(source, Settings())
    assert again == ((), None)
    assert len(list(source.folder.glob("*.bak*"))) == 1


def test_only_a_folder_can_be_mended(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="only a checkpoint"):
        mend(a_gguf(tmp_path / "tiny.gguf"), Settings())
    with pytest.raises(InvalidRequest, match="only a checkpoint"):
        mend(Endpoint("http://127.0.0.1:9/v1"), Settings())
