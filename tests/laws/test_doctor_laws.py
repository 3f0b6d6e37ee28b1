"""Laws of the doctor: whatever it is given, each check is done, and says something."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bourn.doctor import chat, checkpoint, defaults, endpoint
from bourn.doctor.chat import Chat
from bourn.doctor.finding import FAILED, CannotTell, Finding, State, run
from bourn.doctor.folder import Folder
from bourn.doctor.jinja import Sandbox
from bourn.doctor.raw import Exchange
from tests.support.openai_server import chunk, usage

ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, False, 0, 1, -1, 7, 2**70, 0.0, 0.5, 2.0, 1e30, -1e300),
        *(float("nan"), float("inf"), "", "dynamic", "{{ x }}", [], [[]], [1, 2], ["a"], [None]),
        *({}, {"content": "a", "id": 9}, [{"content": "a", "id": 9}], [["a", 0.5]], {"a": {}}),
    ]
)
NAMES = st.sampled_from(
    """
    auto_map text_config vocab_size max_position_embeddings n_positions rope_scaling rope_parameters
    rope_type type factor original_max_position_embeddings model_max_length eos_token_id do_sample
    temperature top_p min_p repetition_penalty max_length max_new_tokens chat_template model vocab
    added_tokens content id
    """.split()  # noqa: SIM905 (names, in lines)
)
FILES = st.dictionaries(NAMES, ODD | st.dictionaries(NAMES, ODD, max_size=3), max_size=6)

READERS = {
    **defaults.CHECKS,
    "code": checkpoint.code,
    "vocabulary": checkpoint.vocabulary,
}
"""The checks that read files alone, and ask no tokenizer."""


class Files(Folder):
    """Without a tokenizer, which takes its time to fail."""

    @property
    def tokenizer(self) -> Any:
        raise CannotTell("there is none")


def all_told(found: list[Finding]) -> None:
    for finding in found:
        assert finding.found
        assert not finding.found.startswith(FAILED), finding
        assert finding.why or finding.state in (State.OK, State.SKIPPED)


@given(config=FILES, generation=FILES, tokenizer_config=FILES, tokenizer=FILES)
@settings(max_examples=100, deadline=None)  # files take their time
def test_any_json_in_a_folder(**files: Any) -> None:
    names = {"generation": "generation_config"}
    with TemporaryDirectory() as folder:
        here = Path(folder)
        for name, told in files.items():
            (here / f"{names.get(name, name)}.json").write_text(json.dumps(told))
        header = json.dumps({"a.embed_tokens.weight": {"shape": [3, 2], "data_offsets": [0, 0]}})
        raw = len(header).to_bytes(8, "little") + header.encode()
        (here / "model.safetensors").write_bytes(raw)
        all_told(list(run(READERS, Files(here))))


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_for_weights(raw: bytes) -> None:
    with TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "config.json").write_text("{}")
        (here / "model.safetensors").write_bytes(raw)
        all_told(list(run({"files": checkpoint.files}, Folder(here))))


@settings(deadline=None)  # the first one imports jinja2
@given(st.text() | st.lists(st.sampled_from(["{{", "}}", "{%", "%}", "messages", "[0]"])))
def test_any_text_for_a_template(text: str | list[str]) -> None:
    written = Chat("".join(text), lambda: Sandbox({}))
    all_told(list(run(chat.CHECKS, written)))


FRAMES = st.sampled_from(
    [
        *(
            chunk("a"),
            chunk(finish="stop"),
            usage(1, 2),
            {},
            {"choices": None},
            {"choices": [None]},
        ),
        *({"choices": [{"delta": None}]}, {"choices": [{"delta": {"role": 3}}]}, {"usage": []}),
        *({"error": {}}, {"error": "no"}, {"choices": [3]}, {"choices": {"a": 1}}),
    ]
)


@given(st.lists(st.binary(max_size=20) | FRAMES.map(lambda told: json.dumps(told).encode())))
def test_any_answer_of_a_server(parts: list[bytes]) -> None:
    body = b"".join(b"data: " + part + b"\n\n" for part in parts)
    all_told(list(run(endpoint.CHECKS, endpoint.Probed(Exchange(200, "text/plain", body)))))
