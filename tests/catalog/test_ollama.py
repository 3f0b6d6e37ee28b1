"""Ollama's store on this disk, and where its server is."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bourn.catalog.ollama import Server, Stored, manifest_of, names, read, server
from bourn.errors import LoadFailed, ModelNotFound
from bourn.types import Sampling
from tests.support.ollama_writer import write_manifest, write_model

LIBRARY = "registry.ollama.ai/library"


def test_names_as_ollama_shows_them(tmp_path: Path) -> None:
    for name in (f"{LIBRARY}/tiny/latest", f"{LIBRARY}/tiny/1b", "registry.ollama.ai/me/mine/v1"):
        write_model(tmp_path, name)
    write_model(tmp_path, "hf.co/org/m-GGUF/Q4_K_M")
    (tmp_path / "manifests" / ".DS_Store").touch()
    told = dict(names(tmp_path))
    assert set(told) == {"tiny:latest", "tiny:1b", "me/mine:v1", "hf.co/org/m-GGUF:Q4_K_M"}
    for name, manifest in told.items():
        assert manifest_of(name, tmp_path) == manifest


def test_a_name_without_a_tag_is_the_latest(tmp_path: Path) -> None:
    assert manifest_of("tiny", tmp_path) == manifest_of("tiny:latest", tmp_path)


@pytest.mark.parametrize(
    "name", ["", ":tag", "../x", "a/../b:c", "a/b/c/d", "a b", "a:b:c", "/etc"]
)
def test_what_is_no_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        manifest_of(name, tmp_path)


def test_a_manifest_leads_to_the_file_and_its_parameters(tmp_path: Path) -> None:
    params = {"temperature": 0.6, "repeat_penalty": 1.1, "top_k": 20, "stop": ["x"], "num_ctx": 4}
    blob = write_model(tmp_path, params=params)
    sampling = Sampling(temperature=0.6, repetition_penalty=1.1, top_k=20)
    assert read(manifest_of("tiny", tmp_path), tmp_path) == Stored(blob, sampling)


@pytest.mark.parametrize("params", [{"temperature": "hot", "top_p": 9}, [1], None])
def test_odd_parameters_are_passed_over(tmp_path: Path, params: dict[str, object] | None) -> None:
    write_model(tmp_path, params=params)
    assert read(manifest_of("tiny", tmp_path), tmp_path).sampling == Sampling()


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ({"layers": []}, "no GGUF file"),
        ({"layers": None}, "no GGUF file"),
        ({"layers": [{"mediaType": "x"}]}, "damaged"),
        ({"layers": 3}, "damaged"),
        ({}, "damaged"),
        ([], "damaged"),
        (
            {"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "../../x"}]},
            "no digest",
        ),
    ],
)
def test_damaged_manifests(tmp_path: Path, told: object, fault: str) -> None:
    manifest = write_manifest(tmp_path, f"{LIBRARY}/tiny/latest", told)
    with pytest.raises(LoadFailed, match=fault):
        read(manifest, tmp_path)


@pytest.mark.parametrize(
    ("said", "base_url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        (":8080", "http://127.0.0.1:8080/v1"),
        ("box", "http://box:11434/v1"),
        ("box:8080", "http://box:8080/v1"),
        ("http://box", "http://box:80/v1"),
        ("https://box/", "https://box:443/v1"),
        ("[::]:8080", "http://[::1]:8080/v1"),
        ("http://[fe80::1]:1", "http://[fe80::1]:1/v1"),
    ],
)
def test_where_the_server_is(said: str, base_url: str) -> None:
    assert server({"OLLAMA_HOST": said}).base_url == base_url


def test_where_no_server_can_be() -> None:
    with pytest.raises(ModelNotFound, match="OLLAMA_HOST"):
        server({"OLLAMA_HOST": "box:port"})


def test_only_this_machine_is_here() -> None:
    assert server({}).here
    assert not server({"OLLAMA_HOST": "box"}).here


def test_whether_it_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert Server("http", "127.0.0.1", port).answers()
    assert not Server("http", "127.0.0.1", port).answers()
