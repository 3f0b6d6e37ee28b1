"""Chat templates rendered as transformers and llama.cpp render them, by jinja2 alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Sandbox:
    """Renders as a tokenizer of transformers would. tokens: `bos_token` and its like."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = tokens
        self._jinja = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        self._jinja.filters["tojson"] = _as_json
        self._jinja.globals |= {"raise_exception": _refuse, "strftime_now": _now}

    def apply_chat_template(self, conversation: Any, **options: Any) -> str:
        """A text. Raises jinja's own errors, and whatever a template raises."""
        template = self._jinja.from_string(options.pop("chat_template"))
        return template.render(messages=conversation, tools=None, **self._tokens, **options)


class _Generation(Extension):
    """`{% generation %}` marks what a model is trained on, and writes nothing."""

    tags = {"generation"}  # noqa: RUF012  # as jinja wants it

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _as_json(value: object, indent: int | None = None, **_: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(why: str) -> NoReturn:
    raise TemplateError(why)


def _now(form: str) -> str:
    return datetime.now().strftime(form)  # the user's own time, as in transformers
