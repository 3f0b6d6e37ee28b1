"""A text in the user's own editor."""

from __future__ import annotations

import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bourn.errors import InvalidRequest


def editor_of(environ: Mapping[str, str]) -> str | None:
    """The command that the user has chosen."""
    return environ.get("VISUAL") or environ.get("EDITOR") or None


def edit(text: str, editor: str) -> str:
    """The text as the user leaves it.

    Raises:
        InvalidRequest: the editor does not run, or ended as one does that fails.
    """
    with tempfile.TemporaryDirectory(prefix="bourn-") as folder:
        path = Path(folder) / "question.md"
        path.write_text(f"{text}\n", encoding="utf-8", errors="replace")
        # Ctrl-C is the editor's; a handler, unlike SIG_IGN, is not inherited by it
        before = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            command = [*shlex.split(editor), str(path)]
            status = subprocess.run(command, check=False).returncode  # noqa: S603 (the user's own)
        except (OSError, ValueError) as error:
            raise InvalidRequest(
                f"cannot run {editor}: {error}", hint="see $VISUAL and $EDITOR, or say :edit TEXT"
            ) from None
        finally:
            signal.signal(signal.SIGINT, before)
        if status:
            raise InvalidRequest(f"{editor} ended with status {status}", hint="nothing was asked")
        return path.read_text(encoding="utf-8", errors="replace").rstrip()
