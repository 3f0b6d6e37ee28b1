from __future__ import annotations

import json
import multiprocessing
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from bourn.batch import Output, opened
from bourn.errors import InvalidRequest, StoreFailed

ONE = {"id": 1, "text": "one"}
TWO = {"id": "two", "text": ""}
BAD = {"id": 3, "line": 3, "error": {"message": "no"}}
OURS: list[dict[str, Any]] = [ONE, TWO]
OPENAI = {"custom_id": "a", "response": {"status_code": 200}, "error": None}
OPENAI_BAD = {"custom_id": "b", "line": 1, "response": None, "error": {"message": "no"}}


def lines(path: Path) -> list[dict[str, Any]]:
    assert path.read_bytes().endswith(b"\n") or not path.read_bytes()
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def left_in(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def written(path: Path, *told: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in told))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def test_each_line_is_there_as_soon_as_it_is_written(path: Path) -> None:
    with opened(path) as output:
        assert output.done == frozenset()
        for number, told in enumerate([ONE, {"id": 2, "text": "สวัสดี 👩‍👩‍👧‍👦\n"}, BAD], start=1):
            output.write(told)
            assert len(lines(path)) == number
            assert lines(path)[-1] == told
    assert left_in(path.parent) == ["out.jsonl"]


def test_results_stay_and_errors_are_taken_out(path: Path) -> None:
    written(path, ONE, BAD, OPENAI, TWO, OPENAI_BAD)
    with opened(path) as output:
        assert output.done == {1, "two", "a"}
        assert lines(path) == [ONE, OPENAI, TWO]
        output.write({"id": 3, "text": "three"})
    assert [told.get("id") for told in lines(path)] == [1, None, "two", 3]
    assert left_in(path.parent) == ["out.jsonl"]


def test_what_is_whole_is_not_written_anew(path: Path) -> None:
    written(path, *OURS)
    before = path.stat()
    with opened(path):
        pass
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("left", range(1, len(json.dumps(TWO)) + 1))
def test_a_line_that_was_being_written_is_done_anew(path: Path, left: int) -> None:
    written(path, ONE)
    with path.open("a") as file:
        file.write(json.dumps(TWO)[:left])
    with opened(path) as output:
        assert output.done == {1}
        output.write(TWO)
    assert lines(path) == OURS


def test_a_result_that_is_there_twice_is_kept_once(path: Path) -> None:
    written(path, ONE, {"id": 1, "text": "other"})
    with opened(path) as output:
        assert output.done == {1}
    assert lines(path) == [ONE]


@pytest.mark.parametrize(
    "there",
    [
        b"notes\n",
        b"notes without an end",
        b"[1]\n",
        b"5\n",
        b'{"prompt": "hi"}\n',
        b'{"id": 1, "prompt": "hi"}\n',
        b'{"id": 1.5, "text": "hi"}\n',
        b'{"id": 1, "text": "one"}\nnotes\n{"id": 2, "text": "two"}\n',
        b'{"id": 1, "te\n',
        b"\xff\xfe\n",
    ],
)
def test_a_file_with_something_else_in_it_is_left_alone(path: Path, there: bytes) -> None:
    path.write_bytes(there)
    with pytest.raises(InvalidRequest, match="is no result of a batch"), opened(path):
        pass
    assert path.read_bytes() == there
    assert left_in(path.parent) == ["out.jsonl"]


def test_blank_lines_are_taken_out(path: Path) -> None:
    path.write_bytes(b'\n{"id": 1, "text": "one"}\n \n')
    with opened(path) as output:
        assert output.done == {1}
    assert lines(path) == [ONE]


@pytest.mark.skipif(sys.platform == "win32", reason="there are other rights on Windows")
def test_a_link_stays_one_and_rights_stay_as_they_are(path: Path, tmp_path: Path) -> None:
    real = written(tmp_path / "real.jsonl", ONE, BAD)
    real.chmod(0o640)
    path.symlink_to(real)
    with opened(path) as output:
        output.write(TWO)
    assert path.is_symlink()
    assert lines(real) == OURS
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_two_at_once_are_refused_and_one_after_the_other_is_not(path: Path) -> None:
    with opened(path) as output:
        output.write(ONE)
        with pytest.raises(InvalidRequest, match="another run is writing"), opened(path):
            pass
        output.write(TWO)
    with opened(path) as output:
        assert output.done == {1, "two"}


def _take(path: Path, times: int) -> None:
    for _ in range(times):
        try:
            with opened(path) as output:
                marker = path.with_name("marker")
                marker.touch(exist_ok=False)
                output.write({"id": f"{os.getpid()} {os.urandom(4).hex()}", "text": ""})
                marker.unlink()
        except InvalidRequest:
            continue


@pytest.mark.skipif(sys.platform == "win32", reason="its locks are made in another way")
def test_never_do_two_hold_it(path: Path) -> None:
    """Also where one takes the lock's file away while another opens it."""
    fork = multiprocessing.get_context("spawn")
    others = [fork.Process(target=_take, args=(path, 150)) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join(20)
        assert other.exitcode == 0
    assert lines(path)
    assert left_in(path.parent) == ["out.jsonl"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_is_told(path: Path) -> None:
    with opened(Path("/dev/full")) as output, pytest.raises(StoreFailed, match="No space left"):
        output.write(ONE)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such device")
def test_what_is_no_file_is_only_written_to() -> None:
    with opened(Path(os.devnull)) as output:
        output.write(ONE)
        assert output.done == frozenset()


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    for wrong in (tmp_path / "no" / "such.jsonl", tmp_path):
        with pytest.raises(StoreFailed, match="cannot write"), opened(wrong):
            pass


def test_a_stream_takes_lines_too(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    Output(sys.stdout.buffer, "stdout").write(ONE)
    assert json.loads(capsysbinary.readouterr().out) == ONE
