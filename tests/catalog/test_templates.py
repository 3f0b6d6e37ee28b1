"""Chat templates by name: what they write, in Jinja's own engine and in llama.cpp's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from jinja2.exceptions import TemplateError as JinjaError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bourn.catalog.places import bundled
from bourn.catalog.templates import FAMILIES, NAMES, proposal, template
from bourn.errors import TemplateError

Chat = Sequence[tuple[str, str | None]]

TALK: Chat = (("system", "S1"), ("user", "U1"), ("assistant", "A1"), ("user", "U2"))

WRITTEN = {
    "alpaca": "<s>S1\n\n### Instruction:\nU1\n\n### Response:\nA1\n\n### Instruction:\nU2\n\n"
    "### Response:\n",
    "chatml": "<|im_start|>system\nS1<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n"
    "<|im_start|>assistant\nA1<|im_end|>\n<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n",
    "gemma": "<s><start_of_turn>user\nS1\n\nU1<end_of_turn>\n"
    "<start_of_turn>model\nA1<end_of_turn>\n<start_of_turn>user\nU2<end_of_turn>\n<start_of_turn>model\n",
    "llama2": "<s>[INST] <<SYS>>\nS1\n<</SYS>>\n\nU1 [/INST] A1 </s><s>[INST] U2 [/INST]",
    "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nS1<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nU1<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nU2<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral": "<s>[INST] S1\n\nU1[/INST] A1</s>[INST] U2[/INST]",
    "mistral-v1": "<s> [INST] S1\n\nU1 [/INST] A1</s> [INST] U2 [/INST]",
    "mistral-v7": "<s>[SYSTEM_PROMPT] S1[/SYSTEM_PROMPT][INST] U1[/INST] A1</s>[INST] U2[/INST]",
    "phi4": "<|im_start|>system<|im_sep|>S1<|im_end|><|im_start|>user<|im_sep|>U1<|im_end|>"
    "<|im_start|>assistant<|im_sep|>A1<|im_end|><|im_start|>user<|im_sep|>U2<|im_end|>"
    "<|im_start|>assistant<|im_sep|>",
    "vicuna": "<s>S1 USER: U1 ASSISTANT: A1</s>USER: U2 ASSISTANT:",
    "zephyr": "<|system|>\nS1</s>\n<|user|>\nU1</s>\n<|assistant|>\nA1</s>\n<|user|>\nU2</s>\n"
    "<|assistant|>\n",
}


def refuse(message: str) -> None:
    raise JinjaError(message)


def rendered(name: str, chat: Chat = TALK, *, reply: bool = True, bos: str | None = "<s>") -> str:
    engine = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    engine.globals["raise_exception"] = refuse
    return engine.from_string(template(name)).render(
        messages=[{"role": role, "content": content} for role, content in chat],
        add_generation_prompt=reply,
        bos_token=bos,
        eos_token="</s>",
    )


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_template_writes(name: str) -> None:
    assert rendered(name) == WRITTEN[name]


@pytest.mark.parametrize("name", NAMES)
def test_each_turn_is_written_once_and_in_order(name: str) -> None:
    written = rendered(name)
    places = [written.index(word) for word in ("S1", "U1", "A1", "U2")]
    assert places == sorted(places)
    assert all(written.count(word) == 1 for word in ("S1", "U1", "U2"))
    assert written.endswith(FAMILIES[name].reply)


@pytest.mark.parametrize("name", NAMES)
def test_the_beginning_of_text_is_there_at_most_once(name: str) -> None:
    written = rendered(name, [("user", "U1")])
    assert written.count("<s>") == FAMILIES[name].opening.count("{bos}")
    assert written.startswith("<s>") == bool(written.count("<s>"))
    assert "None" not in rendered(name, [("user", "U1")], bos=None)


@pytest.mark.parametrize("name", NAMES)
def test_whitespace_and_odd_characters_stay(name: str) -> None:
    odd = "  a\n\n{{ 'b' }} \"c\" \\n 🔥 {eos} "
    assert odd in rendered(name, [("user", odd)])


@pytest.mark.parametrize("name", NAMES)
def test_a_system_message_alone_is_not_lost(name: str) -> None:
    assert "S1" in rendered(name, [("system", "S1")])


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_without_text_is_not_the_word_none(name: str) -> None:
    assert "None" not in rendered(name, [("user", "U1"), ("assistant", None), ("user", "U2")])


@pytest.mark.parametrize("name", NAMES)
def test_a_role_that_a_family_has_not_is_refused(name: str) -> None:
    with pytest.raises(JinjaError, match="no role tool"):
        rendered(name, [("user", "U1"), ("tool", "22")])


def test_a_developers_message_is_a_systems() -> None:
    chat = [("developer", "S1"), *TALK[1:]]
    assert rendered("chatml", chat) == WRITTEN["chatml"]


def test_without_reply_nothing_is_asked_for() -> None:
    assert rendered("chatml", reply=False) + "<|im_start|>assistant\n" == WRITTEN["chatml"]


def test_a_preamble_stands_in_for_a_system_message() -> None:
    assert rendered("alpaca", [("user", "U1")]).startswith("<s>Below is an instruction")


def test_a_file_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("{% for m in messages %}{{ m.content }}{% endfor %}", encoding="utf-8")
    assert template(str(file)) == file.read_text(encoding="utf-8")


def test_jinja_text_is_taken() -> None:
    assert template("{{ messages }}") == "{{ messages }}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("chatlm", "chatml"), ("llama-3", "llama3"), ("zzz", "vicuna"), ("", "gemma")],
)
def test_an_unknown_name_is_told_with_its_like(name: str, hint: str) -> None:
    with pytest.raises(TemplateError, match="no chat template") as caught:
        template(name)
    assert hint in caught.value.hint


def test_a_name_longer_than_a_file_can_have() -> None:
    with pytest.raises(TemplateError):
        template("a" * 5000)


@pytest.mark.parametrize("raw", [b"\xff\xfe{{", b"words"])
def test_a_file_that_is_no_template(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "no.jinja"
    file.write_bytes(raw)
    with pytest.raises(TemplateError, match=r"no\.jinja"):
        template(str(file))


def test_a_folder_is_no_template(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="cannot read"):
        template(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "architecture", "family"),
    [
        ("Qwen 7B Chat", "qwen", "chatml"),
        ("Gemma 3 270M", "gemma3", "gemma"),
        ("Meta Llama 3 8B", "llama", "llama3"),
        ("tiny", "phi3", "phi3"),
        ("unheard of", "llama", None),
    ],
)
def test_proposals(name: str, architecture: str, family: str | None) -> None:
    assert proposal(name, architecture) == family
    assert family is None or family in NAMES


LLAMACPP = """
import json, os, sys, xllamacpp, httpx2
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.chat_template = sys.argv[1], [sys.argv[2]], sys.argv[3]
params.n_parallel, params.n_ctx, params.n_batch, params.n_ubatch = 1, 256, 64, 64
params.warmup, params.ui, params.cache_ram_mib = False, False, 0
server = xllamacpp.Server(params)
with httpx2.Client(transport=httpx2.HTTPTransport(uds=sys.argv[2])) as client:
    answer = client.post("http://x/apply-template", json={"messages": json.loads(sys.argv[4])})
print(answer.json()["prompt"], end="", flush=True)
os._exit(0)
"""


@pytest.mark.real
@pytest.mark.parametrize("name", ["alpaca", "gemma"])
def test_llamacpp_writes_the_same(name: str, tmp_path: Path) -> None:
    messages = json.dumps([{"role": role, "content": content} for role, content in TALK])
    arguments = [str(bundled()), str(tmp_path / "s.sock"), template(name), messages]
    command = [sys.executable, "-c", LLAMACPP, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == rendered(name, bos="<|im_start|>")
