"""`bourn doctor`: what is shown, what is written, and the exit status."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bourn.cli.doctor import doctor
from tests.support import sick_models as sick
from tests.support.background import served
from tests.support.gguf_writer import write_gguf
from tests.support.openai_server import Answer, text_stream
from tests.support.terminal import Terminal

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command, called with these parameters: its exit status, stdout and stderr."""
    for name in [name for name in os.environ if name.startswith("BOURN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(model: str | Path, **options: Any) -> tuple[int, str, str]:
        try:
            doctor(str(model), **options)
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capsys.readouterr()

    return run


def test_a_line_for_each_finding_and_what_is_wrong_with_its_mend(run: Run, tmp_path: Path) -> None:
    status, out, err = run(sick.ends_elsewhere(tmp_path / "model"), no_run=True)
    assert status == 1
    assert err == ""
    lines = out.splitlines()
    assert "ok       chat template      it has one, of 187 characters" in lines
    at = next(number for number, line in enumerate(lines) if line.startswith("broken"))
    assert lines[at].startswith("broken   end of turn        answers end in <|im_end|> (322)")
    assert lines[at + 1].startswith(" " * 27 + " why: `generate` runs on past it")
    assert lines[at + 2].startswith(" " * 27 + " mend: add 322 to eos_token_id")
    assert lines[-1] == "14 ok, 1 note, 1 broken"


def test_nothing_broken_is_no_failure(run: Run, tmp_path: Path) -> None:
    assert run(sick.healthy(tmp_path / "well"), no_run=True)[0] == 0
    assert run(sick.begins_twice(tmp_path / "warned"), no_run=True)[0] == 0
    assert run("scripted:Paris.")[0] == 0


def test_json_is_an_object_a_line(run: Run, tmp_path: Path) -> None:
    status, out, _ = run(sick.ends_elsewhere(tmp_path / "model"), no_run=True, as_json=True)
    found = [json.loads(line) for line in out.splitlines()]
    assert status == 1
    assert all(each.keys() == found[0].keys() for each in found)
    (wrong,) = [each for each in found if each["state"] == "broken"]
    assert wrong["check"] == "end of turn"
    assert wrong["fix"] == {"ends": [322], "puts": {}, "drops": []}


def test_fix_mends_and_says_what_it_did(run: Run, tmp_path: Path) -> None:
    folder = sick.ends_elsewhere(tmp_path / "model")
    status, out, err = run(folder, fix=True, no_run=True)
    assert status == 0
    assert "broken" not in out
    assert "mended: answers end in <|im_end|> (322), but" in err
    assert f"as it was is kept in {folder / 'generation_config.json.bak'}" in err
    assert run(folder, fix=True, no_run=True)[2] == "there is nothing that --fix could mend\n"


def test_fix_of_what_cannot_be_mended_is_a_wrong_use(run: Run, tmp_path: Path) -> None:
    status, out, err = run(write_gguf(tmp_path / "m.gguf"), fix=True)
    assert (status, out) == (2, "")
    assert "only a checkpoint's generation_config.json can be mended" in err


@pytest.mark.parametrize(
    ("model", "status"), [("no/such/model.gguf", 1), ("http://", 1), ("scripted:?slots=x", 2)]
)
def test_what_is_no_model(run: Run, model: str, status: int) -> None:
    assert run(model)[0] == status


def test_a_server(run: Run) -> None:
    with served(Answer(text_stream("Hi", finish="length"))) as server:
        status, out, _ = run(f"{server.url}#m")
    assert status == 0
    assert "ok       end mark           [DONE]" in out


def test_what_a_file_says_cannot_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    folder = sick.templated(
        sick.healthy(tmp_path / "model"), "{{ raise_exception('\x1b[2J gone') }}"
    )
    _, out, _ = run(folder, no_run=True)
    assert "\x1b" not in out
    assert "^[[2J gone" in out


@pytest.mark.terminal
def test_the_table_fits_80_columns(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", without=["tokenizer.chat_template"])
    with Terminal("doctor", str(path), "--no-run", home=tmp_path, rows=50) as terminal:
        assert terminal.wait_for_end() == 0
        shown = [line for line in terminal.lines if line]
    assert shown[0] == "warning chat template     there is no chat template"
    assert shown[1].startswith(" " * 26 + "it cannot chat")
    assert all(line.startswith((" " * 26, "ok ", "warning ", "skipped ")) for line in shown[:-1])
    assert shown[-1].endswith("skipped")
    assert b"\x1b[33mwarning" in terminal.raw
