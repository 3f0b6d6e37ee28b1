from __future__ import annotations

import pytest

from bourn.cli.typed import Call, parse, unfinished

BLOCK = '"""'


@pytest.mark.parametrize(
    ("typed", "call"),
    [
        (":help", Call(":", "help")),
        ("/help", Call("/", "help")),
        (":Q ", Call(":", "q")),
        (":seed 7", Call(":", "seed", "7")),
        (":conf  stop = a b ", Call(":", "conf", "stop = a b")),
        (":system Be brief.\nAnd kind.", Call(":", "system", "Be brief.\nAnd kind.")),
        ("/etc/hosts is what?", Call("/", "etc/hosts", "is what?")),
        (":", Call(":", "")),
        (": help", Call(":", "", "help")),
        ("// comment", Call("/", "/", "comment")),
    ],
)
def test_what_begins_with_a_mark_is_a_command(typed: str, call: Call) -> None:
    assert parse(typed) == call


@pytest.mark.parametrize(
    ("typed", "question"),
    [
        ("", ""),
        ("  \n ", ""),
        ("Why? ", "Why?"),
        (" /etc/hosts is what?", "/etc/hosts is what?"),
        ("  :)", ":)"),
        ("    indented\n    code", "    indented\n    code"),
        ("see /etc", "see /etc"),
        (f"{BLOCK}one line{BLOCK}", "one line"),
        (f"{BLOCK}\na\n\n  b\n{BLOCK}", "a\n\n  b"),
        (f"{BLOCK}\n:help\n{BLOCK}\n", ":help"),
        (f"{BLOCK}\n  a\n{BLOCK}", "  a"),
        (f"{BLOCK}begun\nended{BLOCK}", "begun\nended"),
        (f"{BLOCK}\nnever ended", "never ended"),
        (f'{BLOCK}\ndef f():\n    """Doc."""\n{BLOCK}', 'def f():\n    """Doc."""'),
        (f"{BLOCK}A docstring.{BLOCK}\nimport os", f"{BLOCK}A docstring.{BLOCK}\nimport os"),
        (f"{BLOCK}{BLOCK}", ""),
        (f" {BLOCK}quoted", f" {BLOCK}quoted"),
    ],
)
def test_all_else_is_a_question(typed: str, question: str) -> None:
    assert parse(typed) == question


@pytest.mark.parametrize(
    "typed",
    [
        BLOCK,
        f"{BLOCK}\n",
        f"{BLOCK}\ntext",
        f"{BLOCK}text",
        f'{BLOCK}\n"""Doc."""',
        f"{BLOCK}\ntext {BLOCK}",
        f'{BLOCK}"',
    ],
)
def test_a_block_waits_for_its_end(typed: str) -> None:
    assert unfinished(typed)


@pytest.mark.parametrize(
    "typed",
    ["", "text", f"text {BLOCK}", f"{BLOCK}text{BLOCK}", f"{BLOCK}\ntext\n {BLOCK} ", ":help"],
)
def test_nothing_else_waits(typed: str) -> None:
    assert not unfinished(typed)
