"""Who is let in to the page, and as whom; and what browsers are told of it."""

from __future__ import annotations

import logging
import re
import time
from types import SimpleNamespace

import pytest
from starlette.types import Receive, Scope, Send

from bourn.server.config import ServerConfig
from bourn.server.keys import OWNER, owner_of
from bourn.web.logins import LOGGED_IN, Logins
from bourn.web.visitors import LOGIN_COOKIE, VISITOR_COOKIE, Visitors, owner_of_request
from tests.support.served_app import Told, ask, scope_of

MINE, YOURS = "sk-mine-1234", "sk-yours-5678"
TWO = ServerConfig(keys=frozenset({MINE, YOURS}))
NO_KEYS = ServerConfig()
HTML = {"accept": "text/html,*/*"}
HOST = {"host": "localhost:8000"}


async def whose(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that says whose request it is."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope[OWNER].encode()})


async def looked(
    config: ServerConfig,
    path: str = "/",
    *parts: bytes,
    method: str = "GET",
    cookie: str = "",
    query: str = "",
    **headers: str,
) -> Told:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    told = HOST | given | ({"cookie": cookie} if cookie else {})
    scope = scope_of(path, method=method, headers=told, query_string=query.encode())
    return await ask(Visitors(whose, config, patience=0), scope, *parts)


async def logged_in(key: str, target: str = "", **headers: str) -> Told:
    form = f"key={key}&next={target}".encode()
    return await looked(TWO, "/login", form, method="POST", **headers)


async def cookie_of(key: str) -> str:
    told = await logged_in(key)
    return told.headers["set-cookie"].partition(";")[0]


# -- with keys -------------------------------------------------------------------------------------


async def test_who_looks_is_sent_to_the_login_and_back() -> None:
    told = await looked(TWO, query="c=abc", **HTML)
    assert (told.status, told.headers["location"]) == (303, "/login?next=/%3Fc%3Dabc")
    form = await looked(TWO, "/login", query="next=/%3Fc%3Dabc")
    assert form.status == 200
    assert b'name="next" type="hidden" value="/?c=abc"' in form.bodies[0]
    done = await logged_in(MINE, "/%3Fc%3Dabc")
    assert (done.status, done.headers["location"]) == (303, "/?c=abc")


@pytest.mark.parametrize(
    ("path", "method", "headers"),
    [
        ("/", "GET", {}),
        ("/config", "GET", {"accept": "application/json"}),
        ("/gradio_api/queue/join", "POST", HTML),
        ("/gradio_api/heartbeat/x", "GET", {"accept": "text/event-stream"}),
        ("/assets/index.js", "GET", {"accept": "*/*"}),
        ("/conversations/x.md", "GET", {"accept": "*/*"}),
        ("/login/", "GET", {}),
        ("/Login", "GET", {}),
    ],
)
async def test_all_else_wants_a_login(path: str, method: str, headers: dict[str, str]) -> None:
    told = await looked(TWO, path, method=method, **headers)
    assert told.status == 401
    assert told.error["message"] == "log in first"


async def test_each_key_opens_the_page_as_its_owner() -> None:
    for key in (MINE, YOURS):
        told = await looked(TWO, cookie=await cookie_of(key))
        assert (told.status, told.bodies) == (200, [owner_of(key).encode()])


async def test_the_cookie_is_hidden_from_scripts_and_from_other_sites() -> None:
    cookie = (await logged_in(MINE)).headers["set-cookie"]
    assert {"Path=/", "HttpOnly", "SameSite=Lax", f"Max-Age={LOGGED_IN}"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert MINE not in cookie


@pytest.mark.parametrize(
    "headers",
    [
        {"x_forwarded_proto": "https"},
        {"origin": "https://llm.example.org", "host": "llm.example.org"},
    ],
)
async def test_over_https_the_cookie_never_goes_anywhere_else(headers: dict[str, str]) -> None:
    assert "; Secure" in (await logged_in(MINE, **headers)).headers["set-cookie"]


@pytest.mark.parametrize("key", ["", "sk-guessed", MINE[:-1], f"{MINE}x", "%00", "%FF", "\x80"])
async def test_a_wrong_key_is_told_so_and_nothing_is_given(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = await logged_in(key, "/%3Fc%3D%22%3E%3Cscript%3E")
    assert told.status == 401
    assert "set-cookie" not in told.headers
    page = told.bodies[0].decode()
    assert 'role="alert"' in page
    assert 'aria-invalid="true"' in page
    assert "<script" not in page
    assert "wrong key" in caplog.text
    assert not key or key not in page + caplog.text


async def test_a_wrong_key_takes_its_time_and_a_right_one_none() -> None:
    async def seconds(key: str, patience: float) -> float:
        began = time.monotonic()
        scope = scope_of("/login", method="POST", headers=HOST)
        await ask(Visitors(whose, TWO, patience=patience), scope, f"key={key}".encode())
        return time.monotonic() - began

    assert await seconds("sk-guessed", 0.3) >= 0.3
    assert await seconds(MINE, 20) < 10


async def test_no_key_is_written_down(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await looked(TWO, cookie=await cookie_of(MINE))
    await logged_in("sk-guessed")
    assert not [key for key in (MINE, YOURS, "sk-guessed") if key in caplog.text]


@pytest.mark.parametrize("target", ["//evil.example.com", "https://evil.example.com", "/%5Cevil"])
async def test_no_login_leads_to_another_host(target: str) -> None:
    form = await looked(TWO, "/login", query=f"next={target}")
    assert b'name="next" type="hidden" value="/"' in form.bodies[0]
    assert (await logged_in(MINE, target)).headers["location"] == "/"


async def test_who_is_logged_in_need_not_do_it_again() -> None:
    told = await looked(TWO, "/login", cookie=await cookie_of(MINE), query="next=/x")
    assert (told.status, told.headers["location"]) == (303, "/x")


async def test_a_logout_takes_the_cookie_away() -> None:
    told = await looked(TWO, "/logout", method="POST", cookie=await cookie_of(MINE))
    assert (told.status, told.headers["location"]) == (303, "/login")
    assert told.headers["set-cookie"].startswith(f"{LOGIN_COOKIE}=; Max-Age=0; Path=/")


async def test_a_link_logs_nobody_out() -> None:
    told = await looked(TWO, "/logout", cookie=await cookie_of(MINE))
    assert (told.status, told.headers["location"]) == (303, "/")
    assert "set-cookie" not in told.headers


async def test_a_login_form_has_an_end() -> None:
    told = await looked(TWO, "/login", b"key=" + b"x" * 20_000, method="POST")
    assert told.status == 413


async def test_another_pages_form_logs_nobody_in() -> None:
    told = await logged_in(MINE, origin="http://evil.example.com")
    assert told.status == 403
    assert "set-cookie" not in told.headers


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_the_page_takes_no_key_but_by_the_login(scheme: str) -> None:
    assert (await looked(TWO, authorization=f"{scheme} {MINE}", x_api_key=MINE)).status == 401


def test_no_key_is_kept() -> None:
    door = Visitors(whose, TWO)._door
    logins = Logins(TWO.keys)
    kept = repr([vars(door), vars(logins), vars(logins._ring)])
    assert not [key for key in (MINE, YOURS) if key in kept]


# -- without keys ----------------------------------------------------------------------------------


async def test_each_browser_is_a_visitor_of_its_own_and_stays_it() -> None:
    first, other = await looked(NO_KEYS), await looked(NO_KEYS)
    cookie = first.headers["set-cookie"].partition(";")[0]
    again = await looked(NO_KEYS, cookie=cookie)
    assert again.bodies == first.bodies != other.bodies
    assert again.headers["set-cookie"].startswith(cookie)  # which lasts a year from now
    assert "set-cookie" not in (await looked(NO_KEYS, "/config", cookie=cookie)).headers


async def test_a_visitor_is_nobody_who_has_a_key_and_not_the_terminal() -> None:
    told = await looked(NO_KEYS)
    owner = told.bodies[0].decode()
    assert re.fullmatch("v[0-9a-f]{32}", owner)
    assert owner not in told.headers["set-cookie"]


@pytest.mark.parametrize("value", ["", "x", "a" * 44, "v" * 42, "é" * 43, owner_of(MINE)])
async def test_what_is_no_visitors_cookie_is_replaced(value: str) -> None:
    told = await looked(NO_KEYS, cookie=f"{VISITOR_COOKIE}={value}")
    assert re.match(f"{VISITOR_COOKIE}=[\\w-]{{43}};", told.headers["set-cookie"])


async def test_without_keys_there_is_nothing_to_log_in_to() -> None:
    for path in ("/login", "/logout"):
        told = await looked(NO_KEYS, path)
        assert (told.status, told.headers["location"]) == (303, "/")


# -- other pages, and what goes out ----------------------------------------------------------------

ELSEWHERE = [
    {"origin": "http://evil.example.com"},
    {"origin": "null"},
    {"origin": "http://localhost:3000"},
    {"origin": "http://localhost:8000", "sec_fetch_site": "same-site"},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site", "sec_fetch_mode": "cors"},
]


@pytest.mark.parametrize("config", [NO_KEYS, TWO], ids=["no keys", "keys"])
@pytest.mark.parametrize("headers", ELSEWHERE)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_other_pages_get_nothing(
    config: ServerConfig, headers: dict[str, str], method: str
) -> None:
    cookie = await cookie_of(MINE)
    told = await looked(config, "/gradio_api/queue/join", method=method, cookie=cookie, **headers)
    assert told.status == 403
    assert "access-control-allow-origin" not in told.headers
    assert "set-cookie" not in told.headers


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://localhost:8000"},
        {"origin": "http://LOCALHOST:8000"},
        {"origin": "https://behind.a.proxy:8443", "sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"},
    ],
)
async def test_its_own_page_is_no_other(headers: dict[str, str]) -> None:
    cookie = await cookie_of(MINE)
    told = await looked(TWO, "/x", method="POST", cookie=cookie, **headers)
    assert told.status == 200


async def test_a_link_from_elsewhere_may_lead_here_but_log_nobody_out() -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    cookie = await cookie_of(MINE)
    assert (await looked(TWO, cookie=cookie, **link)).status == 200
    for path in ("/logout", "/x"):
        refused = await looked(TWO, path, method="POST", cookie=cookie, **link)
        assert refused.status == 403


@pytest.mark.parametrize("path", ["/", "/login", "/config", "/gradio_api/upload"])
@pytest.mark.parametrize("config", [NO_KEYS, TWO], ids=["no keys", "keys"])
async def test_every_answer_bounds_what_a_browser_may_do(config: ServerConfig, path: str) -> None:
    told = await looked(config, path)
    policy = told.headers["content-security-policy"]
    rules = dict(rule.partition(" ")[::2] for rule in policy.split("; "))
    assert rules["default-src"] in {"'self'", "'none'"}
    assert rules["frame-ancestors"] == "'none'"
    assert {rules["form-action"], rules["base-uri"]} == {"'self'"}
    allowed = {"'self'", "'none'", "'unsafe-inline'", "'unsafe-eval'", "data:", "blob:"}
    assert {each for rule in rules.values() for each in rule.split()} <= allowed
    for seen in ("img-src", "media-src"):  # or an answer's picture could be `/logout`
        assert "'self'" not in rules.get(seen, rules["default-src"])
    assert told.headers["referrer-policy"] == "same-origin"
    assert told.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["upload", "upload_progress", "deep_link", "proxy=http://127.0.0.1:1/", "vibe-code/"]
)
async def test_what_a_chat_has_no_use_for_is_closed(path: str) -> None:
    assert (await looked(NO_KEYS, f"/gradio_api/{path}", method="POST")).status == 404


async def test_a_request_tells_whose_it_is() -> None:
    inner = SimpleNamespace(scope={OWNER: "v1"})
    assert owner_of_request(inner) == "v1"
    assert owner_of_request(SimpleNamespace(request=inner)) == "v1"
    for scope in ({}, {OWNER: ""}):
        with pytest.raises(LookupError):
            owner_of_request(SimpleNamespace(scope=scope))


async def test_a_web_socket_is_closed() -> None:
    sent = []

    async def receive() -> dict[str, str]:
        raise AssertionError("nothing is read")

    async def send(message: object) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/", "headers": []}
    await Visitors(whose, NO_KEYS)(scope, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
