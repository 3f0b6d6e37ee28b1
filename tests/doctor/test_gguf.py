"""A GGUF file against what llama.cpp makes of it. The files are headers with weights of zeros."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bourn.catalog import gguf as catalog
from bourn.doctor.finding import Finding, State
from bourn.doctor.gguf import GgufFile, end_of_turn, examine
from tests.support.gguf_writer import CHATML, write_gguf

NORMAL, CONTROL = 1, 3
TOKENS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|over|>", "a"]
TYPES = [CONTROL, CONTROL, CONTROL, CONTROL, CONTROL, NORMAL]


def examined(path: Path, *without: str, **told: Any) -> dict[str, Finding]:
    said = {"tokens": TOKENS, "token_type": TYPES, "bos_token_id": 0, "eos_token_id": 3}
    more: dict[str, Any] = {f"tokenizer.ggml.{name}": value for name, value in said.items()}
    more |= {name.replace("__", "."): value for name, value in told.items()}
    write_gguf(path, more, without=without)
    file = GgufFile(path, catalog.read(path))
    return {finding.check: finding for finding in examine(file)}


def test_a_healthy_one_is_healthy(tmp_path: Path) -> None:
    found = examined(tmp_path / "m.gguf")
    assert {each.state for each in found.values()} == {State.OK}
    assert found["window"].found == "2,048 tokens"
    assert found["end of turn"].found.startswith("answers end in <|im_end|> (3), where llama.cpp")


@pytest.mark.parametrize(
    ("told", "check", "state", "found"),
    [
        # llama.cpp knows this mark by its text, whatever the file says
        ({"eos_token_id": 1}, "end of turn", State.OK, "stops by its text"),
        # and this one it does not
        ({"chat_template": "<|over|>"}, "end of turn", State.BROKEN, "<|over|> (4), which is no"),
        ({"chat_template": "<|over|>", "eot_token_id": 4}, "end of turn", State.OK, "by eot_token"),
        ({"chat_template": "<|over|>", "eom_token_id": 4}, "end of turn", State.OK, "by eom_token"),
        (
            {"chat_template": "### End"},
            "end of turn",
            State.WARNING,
            "'### End', which is no token",
        ),
        # nothing closes an answer, and what begins the next turn ends nothing
        ({"chat_template": ""}, "end of turn", State.BROKEN, "<|im_start|> (2), which is no end"),
        ({"eos_token_id": 99}, "end tokens", State.BROKEN, "99 is beyond the vocabulary of 6"),
        ({"add_bos_token": True}, "beginning of text", State.OK, "<s>: added to each text"),
        ({"add_bos_token": False}, "beginning of text", State.OK, "<s>: not added"),
    ],
)
def test_where_it_ends_and_begins(
    tmp_path: Path, told: dict[str, Any], check: str, state: State, found: str
) -> None:
    more = {f"tokenizer__ggml__{name}": value for name, value in told.items()}
    if "chat_template" in told:
        del more["tokenizer__ggml__chat_template"]
        more["tokenizer__chat_template"] = CHATML.replace("<|im_end|>", told["chat_template"])
    finding = examined(tmp_path / "m.gguf", **more)[check]
    assert (finding.state, found in finding.found) == (state, True), finding
    assert finding.why or state is State.OK


@pytest.mark.parametrize(
    ("before", "added", "state"),
    [
        ("{{ bos_token }}", True, State.NOTE),
        ("{{ bos_token }}", False, State.OK),
        ("{{ bos_token }}{{ bos_token }}", False, State.BROKEN),
    ],
)
def test_a_template_that_begins_the_text(
    tmp_path: Path, before: str, *, added: bool, state: State
) -> None:
    template = before + CHATML
    more = {"tokenizer__chat_template": template, "tokenizer__ggml__add_bos_token": added}
    assert examined(tmp_path / "m.gguf", **more)["beginning of text"].state is state


@pytest.mark.parametrize(
    ("answer", "user", "end"),
    [
        ("'<|over|>'", "'<|im_start|>'", "<|over|>"),
        (
            "''",
            "'<|over|>'",
            "<|over|>",
        ),  # nothing closes an answer; what begins a question ends it
        ("''", "'Q: '", ""),  # an answer may well hold that
        ("'\n###\n'", "'Q: '", "###"),
        ("'' if loop.last else '.'", "'Q: '", ""),
    ],
)
def test_how_a_template_ends_an_answer(tmp_path: Path, answer: str, user: str, end: str) -> None:
    template = (
        "{% for message in messages %}{% if message.role == 'user' %}{{ USER }}"
        "{{ message.content }}{% else %}{{ message.content }}{{ ANSWER }}{% endif %}{% endfor %}"
    )
    told = template.replace("USER", user).replace("ANSWER", answer)
    more: dict[str, Any] = {
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": TYPES,
        "tokenizer.chat_template": told,
    }
    path = write_gguf(tmp_path / "m.gguf", more)
    file = GgufFile(path, catalog.read(path))
    assert file.turn_end == end
    assert (end_of_turn(file).state is State.NOTE) is (end == "")


def test_whether_it_adds_one_goes_by_the_kind_of_tokenizer_where_it_is_not_said(
    tmp_path: Path,
) -> None:
    found = examined(tmp_path / "spm.gguf", tokenizer__ggml__model="llama")
    assert "added to each" in found["beginning of text"].found
    found = examined(tmp_path / "bpe.gguf", tokenizer__ggml__model="gpt2")
    assert "not added" in found["beginning of text"].found


def test_no_template_and_one_proposed_by_its_vocabulary(tmp_path: Path) -> None:
    found = examined(tmp_path / "m.gguf", "tokenizer.chat_template", general__name="mystery")
    assert found["chat template"].state is State.WARNING
    assert "--chat-template chatml" in found["chat template"].mend
    assert found["end of turn"].state is State.SKIPPED
    assert found["beginning of text"].state is State.OK


def test_another_template_is_judged_in_place_of_its_own(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", without=["tokenizer.chat_template"])
    file = GgufFile(path, catalog.read(path), template=CHATML)
    assert next(iter(examine(file))).state is State.OK


def test_what_it_does_not_say(tmp_path: Path) -> None:
    found = examined(
        tmp_path / "m.gguf",
        *("llama.context_length", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.bos_token_id"),
        *("tokenizer.ggml.tokens", "tokenizer.ggml.token_type"),
    )
    assert found["window"].state is State.NOTE
    assert found["end tokens"].state is State.WARNING
    assert found["beginning of text"].state is State.OK


def test_settings_that_are_far_out(tmp_path: Path) -> None:
    usual = examined(tmp_path / "usual.gguf", general__sampling__temp=0.6)
    assert usual["sampling"].found == "temperature 0.6"
    wild = examined(tmp_path / "wild.gguf", general__sampling__temp=2.5)
    assert wild["sampling"].state is State.WARNING
    assert "temperature is 2.5" in wild["sampling"].found


def test_gpt_oss_goes_on_after_a_message(tmp_path: Path) -> None:
    tokens = ["<|start|>", "<|end|>", "<|return|>", "<|call|>"]
    path = write_gguf(tmp_path / "m.gguf", {"tokenizer.ggml.tokens": tokens})
    assert set(GgufFile(path, catalog.read(path)).ends) == {1, 2, 3}  # 1 is said by the header
    path = write_gguf(
        tmp_path / "n.gguf", {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.eos_token_id": 2}
    )
    assert set(GgufFile(path, catalog.read(path)).ends) == {2, 3}
