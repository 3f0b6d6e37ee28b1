"""The documentation as a page, made here: it needs no script and no other host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from bourn.wire.answers import json_text

_STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 54em; margin: 2em auto; padding: 0 1em; }
code, td:first-child { font-family: monospace; }
h2 { border-top: 1px solid; padding-top: .5em; }
td, th { text-align: left; vertical-align: top; padding: .1em 1em .1em 0; }
"""


def page(api: Mapping[str, Any]) -> str:
    """An OpenAPI description for people."""
    title = escape(f"{api['info']['title']} {api['info']['version']}")
    routes = "".join(
        _route(f"{method.upper()} {path}", route, api)
        for path, methods in api["paths"].items()
        for method, route in methods.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style><h1>{title}</h1>"
        f'<p>For programs: <a href="openapi.json">openapi.json</a></p>{routes}</html>'
    )


def _route(name: str, route: Mapping[str, Any], api: Mapping[str, Any]) -> str:
    says = escape(route.get("description", ""))
    rows = [
        (parameter["name"], parameter["schema"], parameter.get("description", ""))
        for parameter in route.get("parameters", ())
    ]
    content = route.get("requestBody", {}).get("content", {})
    for body in content.values():
        rows += _fields(_named(body["schema"], api))
    table = "".join(f"<tr>{_cells(*row)}</tr>" for row in rows)
    answers = "".join(
        f"<tr><td>{escape(status)}<td>{escape(answer['description'])}"
        for status, answer in route["responses"].items()
    )
    return (
        f"<h2><code>{escape(name)}</code></h2><p>{says}</p>"
        f"<table>{table}</table><table>{answers}</table>"
    )


def _named(schema: Mapping[str, Any], api: Mapping[str, Any]) -> Mapping[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Mapping[str, Any] = api["components"]["schemas"].get(name, schema)
    return found


def _fields(
    schema: Mapping[str, Any], before: str = ""
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    for name, field in schema.get("properties", {}).items():
        yield before + name, field, field.get("description", "")
        if field.get("additionalProperties") is False:
            yield from _fields(field, f"{before}{name}.")


def _cells(name: str, schema: Mapping[str, Any], says: str) -> str:
    return f"<td>{escape(name)}<td>{escape(_kind(schema))}<td>{escape(says)}"


def _kind(schema: Mapping[str, Any]) -> str:
    """The type in a word or two; null goes without saying."""
    if "enum" in schema:
        return " or ".join(json_text(value) for value in schema["enum"] if value is not None)
    if "anyOf" in schema:
        kinds = dict.fromkeys(map(_kind, schema["anyOf"]))
        return " or ".join(kind for kind in kinds if kind)
    kinds = schema.get("type", [])
    listed = [kinds] if isinstance(kinds, str) else kinds
    return " or ".join(kind for kind in listed if kind != "null")
