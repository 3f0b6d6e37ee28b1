"""What `docs/serving.md` says of flags, routes, fields, headers, numbers and limits is so."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as families
from typer.testing import CliRunner

from bourn.cli.app import app_for
from bourn.cli.web import PORT
from bourn.engines import SERVING_SLOTS
from bourn.engines.scripted import Script
from bourn.hub import ABANDONED
from bourn.journal.shelf import Limits as Kept
from bourn.server.config import ServerConfig
from bourn.server.life import KEEP_ALIVE
from bourn.server.limits import Limits
from bourn.server.wishes import DIRECTIVES, KNOWN
from bourn.web.logins import LOGGED_IN
from tests.support.scripted_site import CHAT, HI, site

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "serving.md").read_text("utf-8")

FOREIGN = {"--format", "--rm", "--env-file", "--stop-timeout"}
"""Flags of podman."""

CONFIG = ServerConfig()
KEPT = Kept()
MIB = 2**20
BODY = inspect.signature(Limits).parameters


def named(pattern: str, text: str = TEXT) -> set[str]:
    return set(re.findall(pattern, text))


def section(title: str) -> str:
    """What stands below it. Without a title: all."""
    if not title:
        return TEXT
    found = re.search(rf"(?ms)^## {title}\n(.*?)(?=^## |\Z)", TEXT)
    assert found is not None
    return found[1]


def flags_of(command: str) -> set[str]:
    told = CliRunner().invoke(app_for([command]), [command, "--help"], terminal_width=200)
    return named(r"(?m)^ +(?:-\w, )?(--[a-z][a-z-]+)", told.output) - {"--help"}


def test_its_flags_are_those_of_the_command() -> None:
    flags = flags_of("serve")
    assert flags
    assert named(r"(?<![\w-])--[a-z][a-z-]+") - FOREIGN - {"--help"} == flags | {"--no-browser"}


def test_the_page_has_the_flags_of_the_server_and_one_of_its_own() -> None:
    assert flags_of("web") - flags_of("serve") == {"--no-browser"}
    safety = {"--host", "--api-key", "--api-key-file", "--insecure", "--conversations"}
    assert safety < flags_of("web")


async def test_its_routes_are_those_that_there_are() -> None:
    async with site() as server:
        paths = (await server.ask("/openapi.json")).json["paths"]
        assert (await server.ask("/docs")).told.status == 200
    routes = {f"{method.upper()} {path}" for path in paths for method in paths[path]}
    told = named(r"`((?:GET|POST|DELETE) /[^`]+)`", section("Routes"))
    assert told - {"GET /docs"} == routes - {"GET /v1/models/{id}"}


def test_its_wishes_are_those_that_are_known() -> None:
    wishes = section("What a request may wish")
    assert named(r"(?m)^\| `(\w+)`", wishes) == set(KNOWN)
    assert named(r"`([a-z]+-[a-z-]+)`:", wishes) == set(DIRECTIVES)


async def test_its_headers_are_sent() -> None:
    whole = {"stream": True, "stream_options": {"include_usage": True}}
    async with site(Script(["x"] * 100, delay=60), slots=1, queue_limit=0) as busy:
        running = busy.begin(CHAT, HI)
        while not busy.engine.running:
            await asyncio.sleep(0.001)
        refused = await busy.ask(CHAT, HI)
        running.hang_up()
    async with site() as server:
        streamed = await server.ask(CHAT, HI | whole)
    sent = streamed.told.headers | refused.told.headers
    names = named(r"(?m)^\| (`.*?`) \|", section("Routes"))
    told = {name for row in names for name in re.findall(r"`([\w-]+)(?:: [^`]*)?`", row)}
    assert len(told) == 7
    assert {name.lower() for name in told} <= sent.keys()


async def test_its_metrics_are_those_of_the_page() -> None:
    async with site() as server:
        await server.ask(CHAT, HI)
        page = (await server.ask("/metrics")).text
    there = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in families(page)
    }
    told = {re.sub("_bucket$", "", name) for name in named(r"bourn:[a-z0-9_]+")}
    assert told == {name for name in there if name.startswith("bourn:")}


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("Flags", f"| `--host`, `--port` | `{CONFIG.host}`, `{CONFIG.port}` |"),
        ("Flags", f"| `--slots` | {SERVING_SLOTS} |"),
        ("Flags", f"| `--drain` | {CONFIG.drain:g} s |"),
        ("Flags", f"| `--queue-limit` | {CONFIG.queue_limit} |"),
        ("Routes", f"a silence of {CONFIG.ping:g} s"),
        ("Routes", f"waits up to {CONFIG.hold:g} s for the first event"),
        ("What a request may wish", f"seconds, {ABANDONED:g} at most"),
        ("What a request may wish", f"for {ABANDONED:g} s after the last has left"),
        ("What is kept", f"At most {KEPT.count:,} answers and {KEPT.bytes // MIB} MiB are kept"),
        ("What is kept", f"of one key {KEPT.owner_count} and {KEPT.owner_bytes // MIB} MiB"),
        ("What is kept", f"for {KEPT.age:,.0f} s after their end"),
        ("The page", f"at http://127.0.0.1:{PORT}"),
        ("The page", f"once in {LOGGED_IN // 86400} days"),
        ("Limits", f"{CONFIG.largest_body // MIB} MiB, else a 413"),
        ("Limits", f"has {BODY['patience'].default:g} s to come"),
        ("Limits", f"at {BODY['pace'].default // 1024} KiB/s"),
        ("Behind nginx", f"client_max_body_size {CONFIG.largest_body // MIB}m;"),
        ("Behind nginx", f"idle ones open for {KEEP_ALIVE} s"),
        ("Behind nginx", f"within {CONFIG.hold:g} s, then a comment at least every"),
    ],
)
def test_its_numbers_are_those_in_force(where: str, told: str) -> None:
    assert told in " ".join(section(where).split())


def test_the_image_has_the_model_that_make_installs() -> None:
    package = re.search(r"(?m)^MODEL_PACKAGE := (\S+)$", (ROOT / "Makefile").read_text("utf-8"))
    assert package is not None
    assert package[1] in (ROOT / "Containerfile").read_text("utf-8")
