"""Which models a command line names, what they are called, and what of the settings they get."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bourn.catalog import Checkpoint, Endpoint, ScriptedSource, Source
from bourn.engines.base import ModelInfo
from bourn.engines.hf.child.apart import Apart
from bourn.engines.remote import Remote
from bourn.engines.scripted import Scripted
from bourn.errors import ModelNotFound, RateLimited, SettingsError
from bourn.server.offers import Named, found, offers
from bourn.server.standby import Standby
from bourn.settings import Settings
from bourn.terms import Terms
from bourn.types import Request, Sampling
from tests.support.checkpoint_writer import write_checkpoint
from tests.support.openai_server import Answer, error, listing, serving, text_stream

HELLO = Answer(text_stream("Hello"))


def said(flags: dict[str, object], environ: dict[str, str] | None = None) -> Settings:
    return Settings.load(flags, environ=environ or {}, config_file=Path(os.devnull))


def engines(models: Sequence[Named], settings: Settings) -> list[Standby]:
    return [offer.engine for offer in offers(models, settings)]


def engine_in(standby: Standby) -> Any:
    return standby._engine


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("scripted:Hello?delay=0.1", "scripted"),
        ("fast=scripted:Hello?delay=0.1", "fast"),
        ("gpt-4.1=scripted:a=b", "gpt-4.1"),
        ("org/model=scripted:x", "org/model"),
        ("http://host:8080/v1#big", "big"),
        ("http://host:8080/v1", "host:8080"),
        ("https://user:secret@host/v1?a=b", "host"),
        ("unix:/run/other.sock", "other"),
        ("big=https://host/v1?key=x#y", "big"),
    ],
)
def test_what_a_model_is_called(written: str, name: str) -> None:
    assert [model.name for model in found([written], Settings())] == [name]


def test_a_path_with_an_equals_sign_is_a_path(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "a=b")
    assert found([str(folder)], Settings()) == [Named(Checkpoint(folder, "a=b"))]
    assert found([f"m={folder}"], Settings())[0].name == "m"


def test_two_of_the_same_name_are_refused() -> None:
    with pytest.raises(SettingsError, match="two models are called scripted") as caught:
        found(["scripted:a", "scripted:b"], Settings())
    assert caught.value.hint.endswith("other=scripted:b")
    both = found(["scripted:a", "b=scripted:a"], Settings())
    assert [model.name for model in both] == ["scripted", "b"]


def test_a_wrong_name_is_told_before_anything_is_begun() -> None:
    with pytest.raises(ModelNotFound, match="nothing-like-it"):
        found(["scripted:a", "nothing-like-it"], Settings())


# -- what they are loaded with ---------------------------------------------------------------------


async def test_each_kind_has_its_engine_and_a_checkpoint_is_apart(tmp_path: Path) -> None:
    models = [
        Named(ScriptedSource("hi")),
        Named(Endpoint("http://host/v1", "big")),
        Named(Checkpoint(write_checkpoint(tmp_path), "m")),
    ]
    standbys = engines(models, said({"slots": 3, "dtype": "float32"}))
    kinds = [type(engine_in(standby)) for standby in standbys]
    assert kinds == [Scripted, Remote, Apart]
    assert [standby.name for standby in standbys] == ["scripted", "big", "m"]
    for standby in standbys:
        await standby.aclose()


def test_what_fits_none_of_them_is_refused() -> None:
    models = [Named(Endpoint("http://host/v1", "a")), Named(Endpoint("http://host/v1", "b"))]
    with pytest.raises(SettingsError, match="--slots is for GGUF files and checkpoints"):
        engines(models, said({"slots": 2}))


def test_unloading_is_the_servers_business_whatever_the_model(tmp_path: Path) -> None:
    models = [Named(ScriptedSource("")), Named(Endpoint("http://host/v1", "a"))]
    here, elsewhere = engines(models, said({"keep_alive": "5m"}))
    assert (here._keep_alive, elsewhere._keep_alive) == (300, None)
    (here, _) = engines(models, said({"keep_alive": "0"}))
    assert here._keep_alive is None


# -- whose answers are whose -----------------------------------------------------------------------


def key_in(
    source: Source, flags: dict[str, object], *, share: bool = False, owner: str = ""
) -> Any:
    """The key of a greedy request to that model."""
    (offer,) = offers([Named(source)], said(flags), share=share)
    assert offer.key is not None
    asked = Request(prompt="Hi", sampling=Sampling(temperature=0))
    return offer.key()(asked, asked, ModelInfo("m", "e"), Terms(owner=owner))


def test_answers_are_those_of_one_model_loaded_in_one_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("bourn.server.standby.Standby.prepare", lambda self: None)
    here = Checkpoint(write_checkpoint(tmp_path / "a"), "m")
    same = Checkpoint(write_checkpoint(tmp_path / "b"), "other")
    known = key_in(here, {})
    assert known is not None
    assert key_in(same, {"threads": 2, "slots": 3}) == known
    other = Checkpoint(write_checkpoint(tmp_path / "c", {"hidden_size": 99}), "m")
    ways: list[dict[str, object]] = [
        {"dtype": "float32"},
        {"quantization": "4bit"},
        {"device": "cpu"},
        {"chat_template": "chatml"},
    ]
    keys = [key_in(here, way) for way in ways] + [key_in(other, {})]
    keys += [key_in(ScriptedSource("a"), {}), key_in(ScriptedSource("b"), {})]
    assert len({known, *keys}) == len(keys) + 1


def test_keys_share_answers_where_the_server_says_so() -> None:
    source = ScriptedSource("a")
    assert key_in(source, {}, owner="me") != key_in(source, {}, owner="you")
    mine, yours = (key_in(source, {}, share=True, owner=owner) for owner in ("me", "you"))
    assert mine == yours


async def test_what_an_endpoint_refuses_for_now_is_told_at_once() -> None:
    """Clients ask again by themselves, and know better for how long."""
    busy = error(429, {"error": {"message": "slow down"}}, **{"Retry-After": "7"})
    async with serving(busy, HELLO, pages={"/v1/models": listing("m")}) as server:
        (standby,) = engines([Named(Endpoint(server.url, "m"))], said({}))
        await standby.start()
        with pytest.raises(RateLimited, match="slow down") as caught:
            async for _ in standby.generate(Request(prompt="hi")):
                pass
        assert len(server.asked) == 1
        await standby.aclose()
    assert caught.value.retry_after == 7
