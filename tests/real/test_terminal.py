"""`bourn chat` with the real model, in a real pseudo-terminal and through a pipe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bourn.conversations import Conversations
from tests.support.terminal import CTRL_C, CTRL_D, Terminal

pytestmark = [
    pytest.mark.real,
    pytest.mark.terminal,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="the folders are those of Linux"),
]


def test_ask_stop_go_on_and_leave(smollm2: Path, tmp_path: Path) -> None:
    with Terminal(
        *("chat", str(smollm2), "--temperature", "0", "--cpu-only"), home=tmp_path, patience=60
    ) as terminal:
        terminal.wait_for_prompt()
        terminal.type("Tell me a long story about a lighthouse.\r")
        terminal.wait_until(
            lambda: len(terminal.text.partition("lighthouse.")[2].strip()) > 60, "a story"
        )
        terminal.type(CTRL_C)
        terminal.wait_for("(stopped; :continue goes on)")
        terminal.wait_for_prompt()
        terminal.type(":conf max_new_tokens=8\r")
        terminal.wait_for("max_new_tokens = 8")
        terminal.wait_for_prompt()
        terminal.type(":continue\r")
        terminal.wait_for("(cut by the limit of tokens; :continue goes on)")
        terminal.wait_for_prompt()
        terminal.type("What is the story about?\r")
        terminal.wait_for("tokens/s", times=3)
        terminal.wait_for_prompt()
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0
    store = Conversations(tmp_path / ".local/share/bourn/conversations.db")
    (entry,) = store.list()
    story, question = store.load(entry.id).turns
    assert entry.title == "Tell me a long story about a lighthouse."
    assert story.answer is not None
    assert len(story.answer.text) > 60
    assert question.answer is not None
    assert question.answer.text


def test_ten_turns_in_a_window_of_512_tokens(smollm2: Path, tmp_path: Path) -> None:
    questions = [f"What is the number {n}? Answer " + "briefly and " * 45 for n in range(10)]
    flags = ["--window", "512", "--max-new-tokens", "16", "--cpu-only"]
    done = subprocess.run(
        [sys.executable, "-m", "bourn", "chat", smollm2, "-s", "You are a pirate.", *flags],
        input="\n".join([*questions, ":history\n"]),
        capture_output=True,
        text=True,
        env=os.environ | {"HOME": str(tmp_path), "BOURN_KEEP": "0"},
        timeout=240,
        check=False,
    )
    told = done.stderr
    assert done.returncode == 0, told
    prompts = [int(tokens) for tokens in re.findall(r"· prompt (\d+) ", told)]
    assert len(prompts) == 10
    assert max(prompts) <= 512 - 16
    assert min(prompts[4:]) > 250, "as much is sent as fits"
    assert "no longer fit the window of 512 tokens and were left out" in told
    assert told.count("## You\n\nWhat is the number") == 10, "nothing is lost of what is shown"
    assert "## System\n\nYou are a pirate." in told
