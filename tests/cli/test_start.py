"""Beginning a talk: which settings it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bourn.chat import Chat
from bourn.cli import start
from bourn.conversations import Conversations

NOTHING: dict[str, Any] = {"model": None, "system": None, "cpu_only": None, "threads": None}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


def test_what_was_kept_is_no_flag_of_now() -> None:
    chat = Chat(None).ask("one").answered("two")
    Conversations().save("abc", chat, {"model": "m", "cpu_only": True})
    told = start.session(NOTHING | {"threads": 3}, None, go_on=True, keep=True).settings
    assert (told.model, told.cpu_only, told.threads) == ("m", True, 3)
    assert told.called_for == {"threads"}


def test_a_new_talk_has_what_flags_say() -> None:
    told = start.session(NOTHING | {"cpu_only": True}, None, go_on=False, keep=False).settings
    assert told.called_for == {"cpu_only"}
