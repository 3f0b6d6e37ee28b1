from __future__ import annotations

import pytest

from bourn.server.config import ServerConfig
from bourn.server.origins import Origins
from tests.support.served_app import Told, ask, hello, scope_of

OPEN = ServerConfig()
FRIEND = ServerConfig(origins=("https://chat.example.com",))
KEYS = ServerConfig(keys=frozenset({"sk-1"}))


async def asked(config: ServerConfig, host: str, origin: str | None = None, **scope: str) -> Told:
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    return await ask(Origins(hello, config), scope_of(headers=headers, **scope))


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:8000", "127.0.0.1", "[::1]:8000", "localhost:8000", "LOCALHOST", "localhost."),
        *("0.0.0.0:8000", "192.168.1.7:8000", "[fe80::1]", "app.localhost:8000"),
        *("bourn:8000", "gpu-box.local", "host.docker.internal:8000", "bourn.ns.svc.cluster.local"),
        "",
    ],
)
async def test_names_that_no_stranger_can_have(host: str) -> None:
    assert (await asked(OPEN, host)).status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example.com:8000", "evil.example.com.", "127.0.0.1.nip.io:8000", "evilocal.com"),
        *("notlocalhost.com", "a.localhost.evil.com", "[::1", "1.2.3"),
    ],
)
async def test_a_strangers_domain_that_was_given_our_address_gets_nothing(host: str) -> None:
    told = await asked(OPEN, host)
    assert told.status == 403
    assert told.error["code"] == "forbidden"
    assert told.error["hint"]


async def test_the_name_that_the_server_was_bound_to_is_its_own() -> None:
    bound = ServerConfig(host="LLM.example.com")
    assert (await asked(bound, "llm.example.com:8000")).status == 200
    assert (await asked(bound, "other.example.com:8000")).status == 403


@pytest.mark.parametrize(
    "origin",
    [
        *("https://evil.example.com", "http://localhost:3000", "http://127.0.0.1:8001", "null"),
        *("chrome-extension://abcdef", "file://", "http://[bad", ""),
    ],
)
async def test_pages_of_other_origins_are_refused(origin: str) -> None:
    told = await asked(OPEN, "127.0.0.1:8000", origin, method="POST")
    assert told.status == 403
    assert not [name for name in told.headers if name.startswith("access-control")]


async def test_no_host_is_no_origin() -> None:
    assert (await asked(OPEN, "", "null", method="POST")).status == 403


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8000", "https://127.0.0.1:8000"])
async def test_the_servers_own_pages_may_ask(origin: str) -> None:
    assert (await asked(OPEN, "127.0.0.1:8000", origin, method="POST")).status == 200


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_whether_the_server_is_well_may_be_asked_by_everybody(path: str) -> None:
    told = await asked(OPEN, "lb.example.com", "https://evil.example.com", path=path)
    assert told.status == 200


async def test_with_keys_the_key_is_what_counts() -> None:
    told = await asked(KEYS, "llm.example.com", "https://other.example.com", method="POST")
    assert told.status == 200
    assert told.headers == {}


async def test_a_page_that_was_allowed_may_ask_and_read() -> None:
    told = await asked(FRIEND, "127.0.0.1:8000", "https://chat.example.com", method="POST")
    assert told.status == 200
    assert told.headers["access-control-allow-origin"] == "https://chat.example.com"
    assert told.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in told.headers
    assert (await asked(FRIEND, "127.0.0.1:8000", "https://evil.example.com")).status == 403
    assert (await asked(FRIEND, "127.0.0.1:8000")).status == 200


async def test_its_host_is_a_name_of_the_server_too() -> None:
    assert (await asked(FRIEND, "chat.example.com")).status == 200
    assert (await asked(FRIEND, "evil.example.com")).status == 403


async def test_with_keys_no_origin_is_refused_and_only_some_may_read() -> None:
    config = ServerConfig(keys=KEYS.keys, origins=FRIEND.origins)
    told = await asked(config, "h", "https://evil.example.com", method="POST")
    assert told.status == 200
    assert "access-control-allow-origin" not in told.headers


async def test_a_star_lets_every_page_in() -> None:
    star = ServerConfig(origins=("*",))
    told = await asked(star, "evil.example.com", "https://evil.example.com", method="POST")
    assert told.status == 200
    assert told.headers["access-control-allow-origin"] == "*"


async def test_a_browser_asks_beforehand_without_a_key() -> None:
    config = ServerConfig(keys=KEYS.keys, origins=("https://chat.example.com/",))
    headers = {
        "host": "llm.example.com",
        "origin": "https://chat.example.com",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-os",
        "access-control-request-private-network": "true",
    }
    told = await ask(Origins(hello, config), scope_of(method="OPTIONS", headers=headers))
    assert told.status == 200
    assert told.headers["access-control-allow-origin"] == "https://chat.example.com"
    assert "authorization" in told.headers["access-control-allow-headers"]
    assert "POST" in told.headers["access-control-allow-methods"]
    assert told.headers["access-control-allow-private-network"] == "true"


async def test_without_origins_nothing_is_added_to_an_answer() -> None:
    told = await asked(KEYS, "h")
    assert (told.headers, told.bodies) == ({}, [b"hello"])
