"""`bourn web`: the chat page, and the server under it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Annotated

from typer import Option

from bourn.cli import options, serving
from bourn.cli.serve import run
from bourn.cli.serving import DEFAULTS

PORT = 7860
DRAIN = 3.0  # seconds: who ends it looks at the page

NoBrowser = Annotated[bool, Option("--no-browser", help="Open no browser, say the address only.")]


def web(
    models: serving.Models = None,
    port: serving.Port = PORT,
    host: serving.Host = DEFAULTS.host,
    keys: serving.ApiKey = None,
    api_key_file: serving.ApiKeyFile = None,
    insecure: serving.Insecure = False,
    conversations: serving.Conversations = None,
    example: serving.Example = None,
    no_browser: NoBrowser = False,
    slots: serving.Slots = None,
    window: options.Window = None,
    dtype: options.Dtype = None,
    device: options.Device = None,
    quantization: options.Quantization = None,
    chat_template: options.ChatTemplate = None,
    threads: options.Threads = None,
    cpu_only: options.CpuOnly = None,
    llama_server: options.LlamaServer = None,
    trust_remote_code: options.TrustRemoteCode = None,
    keep_alive: serving.KeepAlive = None,
    drain: serving.Drain = None,
    verbose: serving.Verbose = False,
) -> None:
    """Chat with models in a browser.

    It is `bourn serve --web` with a browser opened: the API is there, too, at the same address.
    """
    said = {"web": True, **locals(), "drain": DRAIN if drain is None else drain}
    run(said, begun=_nothing if no_browser or not has_display() else _open)


def has_display(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether a browser could be shown: not on a machine that one is logged in to from afar."""
    if platform in {"darwin", "win32"}:
        return "SSH_CONNECTION" not in environ
    return bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def here(url: str) -> str:
    """The address for a browser on this machine: that of all addresses is none."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _open(url: str) -> None:
    import threading
    import webbrowser

    # some browsers come back only when they are closed
    threading.Thread(target=webbrowser.open, args=[here(url)], daemon=True).start()


def _nothing(url: str) -> None:
    """The address is said anyway."""
