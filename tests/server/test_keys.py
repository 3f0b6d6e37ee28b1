from __future__ import annotations

import os
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from bourn.errors import SettingsError
from bourn.server.config import ServerConfig
from bourn.server.keys import (
    OWNER,
    KeyRing,
    Keys,
    check_key,
    exposure,
    keys_from_environment,
    keys_from_file,
    owner_of,
)
from tests.support.served_app import Told, ask, hello, scope_of

MINE, YOURS = "sk-mine-1234", "sk-yours-5678"
TWO = ServerConfig(keys=frozenset({MINE, YOURS}))


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def asked(config: ServerConfig, path: str = "/v1/models", **headers: str) -> Told:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await ask(Keys(hello, config), scope_of(path, headers=named))


@pytest.mark.parametrize(
    "headers",
    [
        bearer(MINE),
        bearer(YOURS),
        {"authorization": f"bearer  {MINE} "},
        {"api-key": MINE},
        {"x-api-key": YOURS},
        {"authorization": "Basic dXNlcjpwdw==", "x-api-key": MINE},
    ],
)
async def test_each_key_opens_in_each_header_that_clients_send(headers: dict[str, str]) -> None:
    told = await ask(Keys(hello, TWO), scope_of(headers=headers))
    assert (told.status, told.bodies) == (200, [b"hello"])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer("sk-mine-123"),
        bearer(f"{MINE}x"),
        bearer(MINE.upper()),
        bearer("sk-mïne"),
        {"authorization": MINE},
        {"authorization": f"Basic {MINE}"},
        {"x-api-key": ""},
        {"cookie": f"key={MINE}"},
    ],
)
async def test_anything_else_is_a_401_that_clients_understand(headers: dict[str, str]) -> None:
    told = await ask(Keys(hello, TWO), scope_of(headers=headers))
    assert told.status == 401
    assert told.headers["www-authenticate"].startswith('Bearer realm="bourn"')
    assert told.error["code"] == "unauthorized"
    assert told.error["status"] == 401
    assert told.error["hint"]


async def test_a_wrong_key_is_told_apart_from_none_and_never_shown() -> None:
    none, wrong = await asked(TWO), await asked(TWO, Authorization="Bearer sk-guessed")
    assert none.error["message"] != wrong.error["message"]
    assert "invalid_token" in wrong.headers["www-authenticate"]
    assert "invalid_token" not in none.headers["www-authenticate"]
    assert "guessed" not in f"{wrong.error}{wrong.headers}"


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_whether_the_server_is_well_may_be_asked_by_everybody(path: str) -> None:
    assert (await asked(TWO, path)).status == 200


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/openapi.json", "/metrics", "/v1/streams/x", "/health/", "/healthy"]
)
async def test_everything_else_wants_a_key(path: str) -> None:
    assert (await asked(TWO, path)).status == 401
    assert (await asked(TWO, path, x_api_key=MINE)).status == 200


async def test_a_path_below_a_root_is_seen_as_the_routes_see_it() -> None:
    app = Keys(hello, TWO)
    assert (await ask(app, scope_of("/llm/health", root_path="/llm"))).status == 200
    assert (await ask(app, scope_of("/health/v1/models", root_path="/health"))).status == 401


async def test_without_keys_everybody_is_let_in_as_nobody() -> None:
    scope = scope_of(headers=bearer("anything"))
    assert (await ask(Keys(hello, ServerConfig()), scope)).status == 200
    assert scope[OWNER] == ""


async def test_the_routes_are_told_whose_request_it_is() -> None:
    owners = []
    for headers in (bearer(MINE), {"api-key": MINE}, bearer(YOURS)):
        scope = scope_of(headers=headers)
        await ask(Keys(hello, TWO), scope)
        owners.append(scope[OWNER])
    assert owners == [owner_of(MINE), owner_of(MINE), owner_of(YOURS)]
    assert len(set(owners)) == 2
    assert MINE not in "".join(owners)


def test_an_owner_is_the_same_in_every_run() -> None:
    assert owner_of(MINE) == "654cc6fa9dcef079"


METRICS = ServerConfig(keys=TWO.keys, metrics_key="sk-scraper")


@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
async def test_the_metrics_have_a_key_of_their_own(path: str) -> None:
    assert (await asked(METRICS, path, Authorization="Bearer sk-scraper")).status == 200
    assert (await asked(METRICS, path, Authorization=f"Bearer {MINE}")).status == 401
    assert (await asked(METRICS, path)).status == 401


async def test_that_key_opens_nothing_else() -> None:
    assert (await asked(METRICS, Authorization="Bearer sk-scraper")).status == 401
    alone = ServerConfig(metrics_key="sk-scraper")
    assert (await asked(alone)).status == 200
    assert (await asked(alone, "/metrics")).status == 401


async def test_a_web_socket_without_a_key_is_closed_before_it_is_open() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        sent.append(message)

    await Keys(hello, TWO)({"type": "websocket", "path": "/ws", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_the_life_of_the_application_is_passed_on() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    await ask(Keys(app, TWO), {"type": "lifespan"})
    assert seen == [{"type": "lifespan"}]


def test_no_key_is_kept_or_shown() -> None:
    ring = KeyRing(TWO.keys)
    kept = repr([vars(Keys(hello, METRICS)), vars(ring), ring, TWO, METRICS])
    assert len(ring) == 2
    assert not [key for key in (MINE, YOURS, "sk-scraper") if key in kept]


def test_all_keys_are_compared_whichever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return one == other

    monkeypatch.setattr("bourn.server.keys.hmac.compare_digest", compare)
    ring = KeyRing([f"sk-{n}" for n in range(5)])
    counts = []
    for shown in ("sk-0", "sk-4", "sk-none"):
        compared.clear()
        ring.owner([shown])
        counts.append(len(set(compared)))
    assert counts == [5, 5, 5]


# -- where keys come from --------------------------------------------------------------------------


def test_keys_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"\xef\xbb\xbfsk-one\r\n\n  # for the web site\n  sk-two#2 \nsk-one\n")
    assert keys_from_file(path) == {"sk-one", "sk-two#2"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no key"),
        (b"# none yet\n\n", "holds no key"),
        (b"sk-one\nsk two-secret\n", "line 2"),
        ("sk-sécret\n".encode(), "line 1"),
        (b"sk-secret\xff\n", "no text in UTF-8"),
    ],
)
def test_a_file_that_is_no_good_is_an_error_that_shows_no_key(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=said) as raised:
        keys_from_file(path)
    assert "cret" not in f"{raised.value} {raised.value.hint} {raised.value.__cause__}"


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        keys_from_file(tmp_path / "keys")
    with pytest.raises(SettingsError, match="cannot be read"):
        keys_from_file(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="other systems have other permissions")
def test_a_file_that_everybody_may_read_is_worth_a_word(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("sk-one\n")
    path.chmod(0o644)
    said = exposure(path)
    assert said is not None
    assert f"chmod 600 {path}" in said
    path.chmod(0o640)
    assert exposure(path) is None


@pytest.mark.parametrize("said", ["sk-1,sk-2", "sk-1 sk-2", " sk-1 ,\n sk-2,, "])
def test_keys_of_the_environment(said: str) -> None:
    assert keys_from_environment({"BOURN_API_KEYS": said}) == {"sk-1", "sk-2"}


def test_no_keys_in_the_environment() -> None:
    assert keys_from_environment({"PATH": "/bin"}) == frozenset()


@pytest.mark.parametrize("said", ["", "  ", " , ,"])
def test_a_variable_that_is_set_and_empty_leaves_no_server_open(said: str) -> None:
    with pytest.raises(SettingsError, match="holds no key"):
        keys_from_environment({"BOURN_API_KEYS": said})


def test_a_key_that_no_header_can_carry() -> None:
    with pytest.raises(SettingsError, match="key 2 of BOURN_API_KEYS") as raised:
        keys_from_environment({"BOURN_API_KEYS": "sk-1,schlüssel"})
    assert "schl" not in f"{raised.value} {raised.value.hint}"
    with pytest.raises(SettingsError, match="--api-key cannot be sent"):
        check_key("", "--api-key")
    assert check_key("sk-1", "--api-key") == "sk-1"
