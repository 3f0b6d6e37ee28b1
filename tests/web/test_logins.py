"""What whoever has shown a key is given, and where a login leads."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bourn.server.keys import owner_of
from bourn.web.logins import LOGGED_IN, Logins, inside

MINE, YOURS = "sk-mine-1234", "sk-yours-5678"
NOW = 1_800_000_000.0


def test_a_cookie_outlives_the_server_and_is_worthless_without_its_key() -> None:
    cookie = Logins([MINE, YOURS]).cookie(MINE, NOW)
    assert cookie is not None
    assert Logins([MINE]).owner(cookie, NOW + 5) == owner_of(MINE)
    assert Logins([YOURS]).owner(cookie, NOW + 5) is None
    assert Logins([YOURS]).cookie(MINE, NOW) is None


def test_a_cookie_grows_stale() -> None:
    logins = Logins([MINE])
    cookie = logins.cookie(MINE, NOW)
    assert cookie is not None
    assert logins.owner(cookie, NOW + LOGGED_IN - 2) == owner_of(MINE)
    assert logins.owner(cookie, NOW + LOGGED_IN + 2) is None
    assert logins.owner(cookie, NOW - 3600) is None  # a clock that was set back makes none longer


def test_a_cookie_cannot_be_made_without_the_key() -> None:
    logins = Logins([MINE, YOURS])
    mine, yours = logins.cookie(MINE, NOW), logins.cookie(YOURS, NOW)
    assert mine is not None
    assert yours is not None
    owner, until, code = mine.split(".")
    for forged in (
        f"{owner_of(YOURS)}.{until}.{code}",
        f"{owner}.{int(until) + 1}.{code}",
        f"{owner}.{until}.{yours.split('.')[2]}",
        f"{owner}.{until}.{'0' * 64}",
        f"{owner}.{until}.",
        f"{owner}.{until}",
        f"{owner}.0{until}.{code}",
        f" {mine}",
        f"{mine}\n",
        owner_of(MINE),
        MINE,
        "",
    ):
        assert logins.owner(forged, NOW + 5) is None


@given(st.text(max_size=120))
def test_no_text_is_a_cookie_by_chance(text: str) -> None:
    assert Logins([MINE]).owner(text, NOW) is None


# -- where a login leads ---------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/", "/?c=1", "/conversations/a.md", "/a?b=//c"])
def test_a_login_leads_into_the_page(target: str) -> None:
    assert inside(target) == target


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example.com",
        "/\\evil.example.com",
        "\\\\evil.example.com",
        "https://evil.example.com",
        "javascript:alert(1)",
        "evil.example.com",
        "/\t/evil.example.com",
        "\t//evil.example.com",
        "/\n/evil.example.com",
        " //evil.example.com",
        "/\x00/evil.example.com",
        "/a\\..\\..\\b",
        "/a\r\nset-cookie: x=y",
        "",
        "/login?next=/login",
        "/logout",
    ],
)
def test_a_login_leads_nowhere_else(target: str) -> None:
    assert inside(target) == "/"


@given(st.text(max_size=30).map(lambda text: f"/{text}"))
def test_whatever_is_asked_a_login_stays_on_this_host(target: str) -> None:
    assert re.fullmatch(r"/(?![/\\])[!-\[\]-~]*", inside(target))
