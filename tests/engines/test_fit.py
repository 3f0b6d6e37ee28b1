"""Settings that a kind of model cannot honour: refused where they were said for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bourn.catalog import Checkpoint, Endpoint, Gguf, ScriptedSource, Source, VllmServe
from bourn.catalog.gguf import GgufFacts
from bourn.engines.fit import check_fit, device, fitted
from bourn.errors import SettingsError
from bourn.settings import Settings

GGUF = Gguf(Path("m.gguf"), GgufFacts("llama"), "m", 1)
CHECKPOINT = Checkpoint(Path("m"), "m")
SERVER = Endpoint("https://host/v1")


def said(flags: dict[str, object], environ: dict[str, str] | None = None) -> Settings:
    return Settings.load(flags, environ=environ or {}, config_file=Path(os.devnull))


@pytest.mark.parametrize(
    ("source", "name", "value", "told"),
    [
        (GGUF, "dtype", "float16", "--dtype is for checkpoints; this model is a GGUF file"),
        (GGUF, "quantization", "4bit", "--quantization is for checkpoints"),
        (GGUF, "trust_remote_code", True, "--trust-remote-code is for checkpoints"),
        (GGUF, "compile", True, "--compile is for checkpoints"),
        (GGUF, "device", "cuda:1", "--device cuda:1 is for checkpoints"),
        (CHECKPOINT, "llama_server", "bin/x", "--llama-server is for GGUF files; .* a checkpoint"),
        (CHECKPOINT, "keep_alive", "5m", "--keep-alive is for GGUF files"),
        (SERVER, "threads", 2, "--threads is for GGUF files and checkpoints; .* a server's"),
        (SERVER, "window", 512, "--window"),
        (SERVER, "cpu_only", True, "--cpu-only"),
        (SERVER, "chat_template", "chatml", "--chat-template"),
        (VllmServe("org/m", Path("vllm")), "dtype", "float16", "--dtype .* for `vllm serve`"),
    ],
)
def test_what_was_said_for_a_model_that_cannot_honour_it_is_refused(
    source: Source, name: str, value: object, told: str
) -> None:
    with pytest.raises(SettingsError, match=told) as caught:
        check_fit(source, said({name: value}))
    assert "leave" in caught.value.hint


def test_standing_wishes_are_for_the_models_that_they_fit() -> None:
    environ = {"BOURN_DTYPE": "float16", "BOURN_THREADS": "2", "BOURN_KEEP_ALIVE": "5m"}
    for source in (GGUF, CHECKPOINT, SERVER):
        check_fit(source, said({"temperature": 0.5, "stop": ["x"], "seed": 1}, environ))


@pytest.mark.parametrize(
    ("source", "flags"),
    [
        (GGUF, {"device": "cpu", "window": 9, "threads": 1, "keep_alive": "1m", "slots": 2}),
        (GGUF, {"device": "auto", "cpu_only": True, "llama_server": "x", "chat_template": "a"}),
        (CHECKPOINT, {"device": "cuda:1", "dtype": "auto", "quantization": "8bit", "slots": 2}),
        (CHECKPOINT, {"trust_remote_code": True, "window": 9, "threads": 1, "keep_alive": 0}),
        (SERVER, {"api_key": "k", "max_new_tokens": 4, "system": "s", "cpu_only": False}),
        (ScriptedSource("hi"), {"dtype": "float16", "window": 9}),
    ],
)
def test_what_can_be_honoured_is_not_refused(source: Source, flags: dict[str, object]) -> None:
    check_fit(source, said(flags))


@pytest.mark.parametrize(
    ("environ", "flags", "meant"),
    [
        ({}, {}, "auto"),
        ({}, {"device": "cuda:1"}, "cuda:1"),
        ({}, {"cpu_only": True}, "cpu"),
        ({}, {"cpu_only": True, "device": "cpu"}, "cpu"),
        ({}, {"cpu_only": True, "device": "auto"}, "cpu"),
        ({"BOURN_DEVICE": "cuda"}, {"cpu_only": True}, "cpu"),
        ({"BOURN_CPU_ONLY": "1"}, {"device": "cuda"}, "cuda"),
    ],
)
def test_the_device(environ: dict[str, str], flags: dict[str, object], meant: str) -> None:
    assert device(said(flags, environ)) == meant


@pytest.mark.parametrize("where", ["flags", "variables"])
def test_a_contradiction_about_the_device_is_told(where: str) -> None:
    if where == "flags":
        settings = said({"cpu_only": True, "device": "cuda:0"})
    else:
        settings = said({}, {"BOURN_CPU_ONLY": "1", "BOURN_DEVICE": "cuda:0"})
    with pytest.raises(SettingsError, match="--cpu-only and --device cuda:0 contradict"):
        device(settings)


# -- several models --------------------------------------------------------------------------------


def test_of_several_models_each_gets_what_it_can_honour() -> None:
    flags = {"dtype": "float16", "slots": 2, "device": "cuda", "temperature": 0.5}
    sources: list[Source] = [GGUF, CHECKPOINT, SERVER]
    shares = fitted(sources, said(flags))
    assert [share.called_for & {"dtype", "slots", "device"} for share in shares] == [
        {"slots"},
        {"dtype", "slots", "device"},
        set(),
    ]
    for source, share in zip(sources, shares, strict=True):
        check_fit(source, share)
        assert "temperature" in share.called_for


def test_what_none_of_them_can_honour_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"--dtype is for checkpoints; .* a GGUF file"):
        fitted([GGUF, SERVER], said({"dtype": "float16"}))
    assert len(fitted([GGUF, SERVER, ScriptedSource("")], said({"dtype": "float16"}))) == 3
