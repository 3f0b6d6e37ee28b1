from __future__ import annotations

import json
import re

import pytest

from bourn.errors import SettingsError
from bourn.text.calls import Calls, Hermes, Part, calls_in, notation_of
from bourn.types import ToolDelta
from tests.text.cutting import sized
from tests.text.reading import Read, read

SIZES = [1, 2, 3, 5, 1000]

WELL_FORMED = [
    ('{"name": "f", "arguments": {"a": 1}}', [("f", '{"a": 1}')]),
    ('{"name":"f","arguments":{}}', [("f", "{}")]),
    ('\n {\n "name" : "f" ,\n "arguments" : { "a" : [ 1 ] }\n}\n ', [("f", '{ "a" : [ 1 ] }')]),
    ('{"arguments": {"a": 1}, "name": "f"}', [("f", '{"a": 1}')]),
    ('{"name": "f", "parameters": {"a": 1}}', [("f", '{"a": 1}')]),
    ('{"name": "f"}', [("f", "{}")]),
    ('{"name": "f",}', [("f", "{}")]),
    ('{"type": "function", "id": 7, "name": "f", "arguments": {}}', [("f", "{}")]),
    ('{"name": "f", "why": {"name": "g", "arguments": [",:}"]}, "arguments": {}}', [("f", "{}")]),
    (
        '{"name": "f", "arguments": {"name": "g", "arguments": {}}}',
        [("f", '{"name": "g", "arguments": {}}')],
    ),
    ('{"name": "f", "arguments": [1, {"b": 2}]}', [("f", '[1, {"b": 2}]')]),
    ('{"name": "f", "arguments": "{\\"a\\": 1}" }', [("f", '"{\\"a\\": 1}"')]),
    ('{"name": "f", "arguments": null}', [("f", "null")]),
    ('{"arguments": -1.5e3 , "name": "f"}', [("f", "-1.5e3")]),
    ('{"na\\u006de": "\\u0066 \\"x\\"", "arguments": {}}', [('f "x"', "{}")]),
    (
        '{"name": "f", "arguments": {"a": "}]{[\\"\\\\", "สวัสดี": "👩‍👩‍👧‍👦 \\ud83d\\ude00"}}',
        [("f", '{"a": "}]{[\\"\\\\", "สวัสดี": "👩‍👩‍👧‍👦 \\ud83d\\ude00"}')],
    ),
    (
        '{"name": "f", "arguments": {"a": 1}}\n{"name": "g", "arguments": {}}{"name": "f"}',
        [("f", '{"a": 1}'), ("g", "{}"), ("f", "{}")],
    ),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("text", "calls"), WELL_FORMED)
def test_calls_are_read_however_they_are_written(
    text: str, calls: list[tuple[str, str]], size: int
) -> None:
    stage = Hermes()
    assert read(stage, sized(text, size)) == Read("", calls)
    assert stage.whole == len(calls)


NO_CALLS = [
    "get_weather\n<arg_key>city</arg_key>",
    "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>",
    '[{"name": "f", "arguments": {}}]',
    '"name"',
    "}",
    "{}",
    "{]",
    '{"name": "f"]',
    '{"name"}',
    '{"name", "f"}',
    '{,"name": "f"}',
    "{name: 'f', arguments: {}}",
    '{1: "f"}',
    '{"name": 1, "arguments": {}}',
    '{"name": "", "arguments": {}}',
    '{"name": null}',
    '{"name": "f" "g", "arguments": {}}',
    '{"name": "f": "g"}',
    '{"name": "f", "name": "g"}',
    '{"name": "f", "arguments": }',
    '{"name": "f", "arguments": one}',
    '{"name": "f", "arguments": a {}}',
    '{"name": "f", "more": nothing, "arguments": {}}',
    '{"arguments": {"a": 1}}',
    '{"arguments": {}, "parameters": {}, "name": "f"}',
    '{"arguments": {} {}, "name": "f"}',
    '{"arguments": {} x, "name": "f"}',
    '{"arguments": {"a": 1}, "name": "f',
    '{"name": "get_weat',
    '{"name": "f", "argum',
    '{"name": "f", "arguments": nul',
    '{"name": "f", "arguments": "a</',
    "{",
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", NO_CALLS)
def test_what_is_no_call_comes_back_as_it_was(text: str, size: int) -> None:
    stage = Hermes()
    text = f"\n{text}\n"
    assert read(stage, sized(text, size)) == Read(text, [])
    assert stage.whole == 0


BROKEN_OFF = [
    ('{"name": "f", "arguments": {"a": "</', "", '{"a": "</', 0),
    ('{"name": "f", "arguments": {"a": 1', "", '{"a": 1', 0),
    ('{"name": "f", "arguments": {"a": 1]', "", '{"a": 1]', 0),
    ('{"name": "f", "arguments": {a: 1}}', "", "{a: 1}", 0),
    ('{"name": "f", "arguments": {"a": "two\nlines"}}', "", '{"a": "two\nlines"}', 0),
    ('{"name": "f", "arguments": {"a": NaN}}', "", '{"a": NaN}', 0),
    ('{"arguments": {a: 1}, "name": "f"}', "", "{a: 1}", 0),
    ('{"name": "f", "arguments": {"a": 1}', "", '{"a": 1}', 1),
    ('{"name": "f", "arguments": {}} }', " }", "{}", 1),
    ('{"name": "f", "arguments": {}}, {"name": "g"}', ', {"name": "g"}', "{}", 1),
    ('{"name": "f", "arguments": {}} and so on {"a": "b', " and so on {" + '"a": "b', "{}", 1),
    ('{"name": "f", "arguments": {} oops}', " oops}", "{}", 1),
    ('{"name": "f", "arguments": {}, "x": y, "z": 1}', ' "x": y, "z": 1}', "{}", 1),
    ('{"name": "f", "arguments": {}, "x', ' "x', "{}", 1),
    ('{"name": "f", "arguments": {}, "parameters": {"a": 1}}', ' "parameters": {"a": 1}}', "{}", 1),
    ('{"name": "f", "arguments": {}, "name": "g"}', ' "name": "g"}', "{}", 1),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("text", "rest", "arguments", "whole"), BROKEN_OFF)
def test_what_went_out_as_a_call_stays_and_the_rest_is_text(
    text: str, rest: str, arguments: str, whole: int, size: int
) -> None:
    stage = Hermes()
    assert read(stage, sized(text, size)) == Read(rest, [("f", arguments)])
    assert stage.whole == whole


def test_arguments_stream_as_they_come() -> None:
    stage = Hermes(lambda: "call_1")
    steps = [
        stage.feed(text) for text in ('{"name": "f", "arg', 'uments": {"a', '": [1, ', "2]}", "}")
    ]
    assert steps == [
        [],
        [Part(tool=ToolDelta(0, "call_1", "f", '{"a'))],
        [Part(tool=ToolDelta(0, arguments='": [1, '))],
        [Part(tool=ToolDelta(0, arguments="2]}"))],
        [],
    ]
    assert stage.end() == []


def test_arguments_wait_for_the_name_and_then_come_at_once() -> None:
    stage = Hermes(lambda: "call_1")
    assert stage.feed('{"arguments": {"a": 1}, "name": "f') == []
    assert stage.feed('"}') == [Part(tool=ToolDelta(0, "call_1", "f", '{"a": 1}'))]


def test_a_new_block_begins_anew() -> None:
    stage = Hermes()
    parts = [*stage.feed('{"name": "f", "arguments": {"a": "'), *stage.end()]
    parts += [*stage.feed("\nno call"), *stage.end()]
    parts += [*stage.feed('\n{"name": "g"}'), *stage.end()]
    assert [part.text for part in parts if part.text] == ["\nno call"]
    tools = [part.tool for part in parts if part.tool]
    assert [(tool.index, tool.name, tool.arguments) for tool in tools] == [
        (0, "f", '{"a": "'),
        (1, "g", "{}"),
    ]
    assert stage.whole == 1


def test_each_call_has_an_id_of_its_own() -> None:
    stage = Hermes()
    tools = [part.tool for part in stage.feed('{"name": "f"}' * 50) if part.tool]
    ids = {tool.id for tool in tools}
    assert len(ids) == 50
    assert all(re.fullmatch(r"call_[0-9a-f]{24}", str(id_)) for id_ in ids)
    assert [tool.index for tool in tools] == list(range(50))


@pytest.mark.parametrize("size", [1, 7, 10**7])
def test_work_is_linear_in_the_text(size: int) -> None:
    values = [{"a{": ["\\", '"', " " * 50, n]} for n in range(500)]
    text = json.dumps({"arguments": values, "name": "f"}) + " " * 20_000
    text += json.dumps({"name": "g", "arguments": values})
    stage = Hermes()
    assert read(stage, sized(text, size)).calls == [
        ("f", json.dumps(values)),
        ("g", json.dumps(values)),
    ]
    assert stage.whole == 2


@pytest.mark.parametrize("calls", [None, "hermes"])
def test_without_a_notation_all_is_text(calls: str | None) -> None:
    stage: Calls = calls_in(calls)
    text = '{"name": "f"}'
    assert read(stage, sized(text, 3)) == (
        Read(text, []) if calls is None else Read("", [("f", "{}")])
    )
    assert stage.whole == (calls is not None)


def test_an_unknown_notation_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(SettingsError, match="'apollo'") as caught:
        calls_in("apollo")
    assert "hermes" in caught.value.hint


@pytest.mark.parametrize(
    ("template", "notation"),
    [
        ('<tool_call>\\n{{ \'{"name": <name>, "arguments": <json>}\' }}\\n</tool_call>', "hermes"),
        ("<tool_call>\\n{{ call.name }}{{ call.arguments | tojson }}</tool_call>", "hermes"),
        ("<tool_call>\\n<function={{ call.name }}>\\n<parameter=x>{{ call.arguments }}", None),
        ("<tool_call>{{ call.name }}<arg_key>{{ call.arguments }}</arg_key>", None),
        ("[TOOL_CALLS]{{ arguments }}", None),
        ("<tool_call>", None),
        ("", None),
    ],
)
def test_a_template_tells_the_notation(template: str, notation: str | None) -> None:
    assert notation_of(template) == notation
