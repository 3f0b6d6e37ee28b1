from __future__ import annotations

import pytest

from bourn.engines.address import Address
from bourn.errors import SettingsError

ALL_KEYS = {
    "OPENAI_API_KEY": "sk-openai",
    "OPENROUTER_API_KEY": "sk-openrouter",
    "MISTRAL_API_KEY": "sk-mistral",
    "GROQ_API_KEY": "sk-groq",
    "DEEPSEEK_API_KEY": "sk-deepseek",
    "TOGETHER_API_KEY": "sk-together",
    "BOURN_API_KEY": "sk-bourn",
}


@pytest.mark.parametrize(
    ("base_url", "url", "root", "shown", "plain_local"),
    [
        ("https://h/v1", "https://h/v1", "https://h", "https://h/v1", False),
        ("http://h:8000/v1/", "http://h:8000/v1", "http://h:8000", "http://h:8000/v1", False),
        ("http://localhost:1/x/v1", "http://localhost:1/x/v1", "http://localhost:1/x", None, True),
        ("http://127.0.0.2", "http://127.0.0.2", "http://127.0.0.2", None, True),
        ("http://[::1]:80/v1", "http://[::1]:80/v1", "http://[::1]:80", None, True),
        ("https://localhost/v1", "https://localhost/v1", "https://localhost", None, False),
        ("HTTP://H/v1?a=b", "http://h/v1", "http://h", None, False),
        ("unix:/a/b.sock", "http://localhost/v1", "http://localhost", "unix:/a/b.sock", True),
        ("unix:///a/b.sock", "http://localhost/v1", "http://localhost", "unix:/a/b.sock", True),
    ],
)
def test_a_base_url_taken_apart(
    base_url: str, url: str, root: str, shown: str | None, plain_local: bool
) -> None:
    address = Address.of(base_url)
    assert (address.url, address.root, address.plain_local) == (url, root, plain_local)
    assert address.shown == (shown or url)


@pytest.mark.parametrize(
    "wrong",
    ["", "h/v1", "ftp://h/v1", "http://", "http://h:x/v1", "http://[h/v1", "unix:", "C:\\models"],
)
def test_what_is_no_address(wrong: str) -> None:
    with pytest.raises(SettingsError) as raised:
        Address.of(wrong)
    assert "http://host:port/v1" in raised.value.hint


def test_a_name_and_a_password_become_a_login_and_are_not_shown() -> None:
    address = Address.of("https://ann:p%40ss@h:1/v1?token=hidden")
    assert address.login == "Basic YW5uOnBAc3M="
    assert address.query == "token=hidden"
    for text in (repr(address), address.shown, address.url):
        assert not {"ann", "p@ss", "YW5u", "hidden"} & set(text.replace("=", " ").split())
        assert "ann" not in text
        assert "hidden" not in text
        assert "YW5u" not in text
    assert Address.of("https://token@h/v1").login == "Basic dG9rZW46"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://api.openai.com/v1", "sk-openai"),
        ("https://eu.api.openai.com/v1", "sk-openai"),
        ("https://openrouter.ai/api/v1", "sk-openrouter"),
        ("https://api.mistral.ai/v1", "sk-mistral"),
        ("https://api.groq.com/openai/v1", "sk-groq"),
        ("https://api.deepseek.com/v1", "sk-deepseek"),
        ("https://api.together.xyz/v1", "sk-together"),
        ("http://api.openai.com/v1", "sk-bourn"),
        ("https://api.openai.com.evil.org/v1", "sk-bourn"),
        ("https://notapi.openai.com/v1", "sk-bourn"),
        ("https://evilopenrouter.ai/v1", "sk-bourn"),
        ("https://h/v1", "sk-bourn"),
        ("http://localhost:8000/v1", "sk-bourn"),
        ("unix:/a.sock", "sk-bourn"),
    ],
)
def test_a_key_goes_to_its_own_host_alone(url: str, key: str) -> None:
    assert Address.of(url).key(ALL_KEYS) == key
    assert Address.of(url).key({}) is None


def test_openais_key_goes_to_openais_other_base_url() -> None:
    environ = {"OPENAI_API_KEY": "sk-openai", "OPENAI_BASE_URL": "http://proxy:9/v1"}
    assert Address.of("http://proxy:9/v1").key(environ) == "sk-openai"
    assert Address.of("http://other:9/v1").key(environ) is None
    assert Address.of("unix:/a.sock").key(environ | {"OPENAI_BASE_URL": "http://localhost"}) is None
    assert Address.of("http://h/v1").key(environ | {"OPENAI_BASE_URL": "http://["}) is None


def test_the_general_key_stands_in() -> None:
    assert Address.of("https://api.openai.com/v1").key({"BOURN_API_KEY": "b"}) == "b"
    environ = {"BOURN_API_KEY": "b", "OPENAI_BASE_URL": "http://proxy:9/v1"}
    assert Address.of("http://proxy:9/v1").key(environ) == "b"
