"""Names of servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from bourn.catalog.addresses import openai, unix, url
from bourn.catalog.sources import Endpoint
from bourn.errors import ModelNotFound


@pytest.mark.parametrize(
    ("name", "base_url", "model"),
    [
        ("https://host/v1#model", "https://host/v1", "model"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1", None),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1", None),
        ("http://[::1]:8000/v1/#org/name", "http://[::1]:8000/v1", "org/name"),
        (
            "https://host/openai/deploy?api-version=1#m",
            "https://host/openai/deploy?api-version=1",
            "m",
        ),
    ],
)
def test_urls(name: str, base_url: str, model: str | None) -> None:
    assert url(name) == Endpoint(base_url, model)


@pytest.mark.parametrize("name", ["https://", "http:", "http://host:port/v1", "http://[::1/v1"])
def test_what_is_no_url_is_refused(name: str) -> None:
    with pytest.raises(ModelNotFound, match="URL") as caught:
        url(name)
    assert "http://" in caught.value.hint


@pytest.mark.parametrize(
    "page", ["https://huggingface.co/org/name", "https://hf.co/org/name/tree/main"]
)
def test_a_page_of_the_hub_is_no_server(page: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        url(page)
    assert caught.value.hint == "say hf:org/name"


def test_a_password_in_a_url_is_not_shown() -> None:
    assert "secret" not in repr(url("https://me:secret@host/v1#m"))


def test_unix_sockets(tmp_path: Path) -> None:
    assert unix(f"{tmp_path}/s#m") == Endpoint(f"unix:{tmp_path}/s", "m")
    assert unix("s") == Endpoint(f"unix:{Path.cwd()}/s")
    with pytest.raises(ModelNotFound):
        unix("#m")


def test_openai() -> None:
    assert openai("gpt-5", {}) == Endpoint("https://api.openai.com/v1", "gpt-5", "openai")
    with pytest.raises(ModelNotFound):
        openai("", {})


def test_openais_address_may_be_anothers_and_then_the_dialect_is_unknown() -> None:
    environ = {"OPENAI_BASE_URL": "http://localhost:8000/v1/"}
    assert openai("m", environ) == Endpoint("http://localhost:8000/v1", "m")
