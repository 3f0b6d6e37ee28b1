"""What runs inside the child: llama.cpp's own HTTP server, from the package xllamacpp.

    python llamacpp_worker.py   (one line of JSON on stdin, see `Config`)

It ends when its stdin closes. Nothing of bourn is imported here, so that it starts at once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

NOTICE = "notice: "  # a line on stderr that a person should see
ALIAS = "m"  # repeated in each chunk, so it is short

_ITS_WORDS = 0.3  # seconds for what llama.cpp has to say of a failure, in a thread of its own


@dataclass(frozen=True, slots=True)
class Config:
    """What the server is told.

    host: the path of a unix socket; or an address, with `port`, and `key` as the secret.
    window: tokens for each of `slots`. threads: -1 is llama.cpp's own choice. cache_mib: of RAM for
    the prompts of earlier requests.
    """

    model: str
    host: str
    window: int
    slots: int
    threads: int
    port: int = 0
    key: str = ""
    cpu_only: bool = False
    chat_template: str = ""
    cache_mib: int = 256

    def batch(self, *, gpu: bool) -> int:
        """Tokens of a prompt to read at once.

        Others wait meanwhile, and a hang-up is seen between batches: on a processor 256 tokens took
        seconds. 64 are read about as fast there; a GPU wants more to be busy.
        """
        return 512 if gpu and not self.cpu_only else 64

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stdin = open(0, "rb", buffering=0)  # noqa: SIM115 (for life)
    line = stdin.readline()
    if not line:
        return  # whoever started us is gone
    config = Config(**json.loads(line))
    die_with(stdin.fileno())
    try:
        server = _serve(config)
    except Exception as error:  # noqa: BLE001 (these are the last words)
        time.sleep(_ITS_WORDS)
        sys.exit(f"{type(error).__name__}: {error}")
    stdin.read()
    del server
    os._exit(0)


def die_with(pipe: int) -> None:
    """Have the kernel end this process when the pipe closes.

    Loading holds the interpreter lock, so no thread of ours could notice. SIGIO, unless somebody
    handles it, ends a process; Windows has none, there the end of the pipe is seen after loading.
    """
    if sys.platform == "win32":
        return
    import fcntl  # not everywhere

    signal.signal(signal.SIGIO, signal.SIG_DFL)
    with suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([pipe], [], [], 0)[0]:  # it closed before it was watched
        os._exit(0)


def _serve(config: Config) -> object:
    """The server, its model loaded. While it is referenced it runs, in threads of its own."""
    import xllamacpp  # heavy, and only here

    devices = xllamacpp.get_device_info()
    if (told := _notice(devices, cpu_only=config.cpu_only)) is not None:
        print(NOTICE + told, file=sys.stderr, flush=True)  # noqa: T201 (this is how it is told)
    params = xllamacpp.CommonParams()
    params.model.path = config.model
    params.model_alias = {ALIAS}
    params.hostnames = [config.host]
    params.port = config.port
    params.api_keys = [config.key] if config.key else []
    params.n_parallel = config.slots
    params.n_ctx = config.window * config.slots
    params.kv_unified = False  # else one neighbour's answer takes another's room
    params.n_batch = params.n_ubatch = config.batch(gpu=_has_gpu(devices))
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config.threads
    params.cache_ram_mib = config.cache_mib
    params.chat_template = config.chat_template
    if config.cpu_only:
        params.n_gpu_layers = 0
    _quick_and_quiet(params)
    return xllamacpp.Server(params)


def _quick_and_quiet(params: Any) -> None:  # Any: xllamacpp has no types
    params.fit_params = False  # measuring whether it fits takes as long as loading
    params.warmup = False
    params.ui = False
    params.endpoint_slots = True
    params.cors_origins = ""
    params.cors_credentials = False
    params.verbosity = 2  # errors and warnings


def _has_gpu(devices: list[dict[str, Any]]) -> bool:
    return any("GPU" in str(device["type"]) for device in devices)


def _notice(
    devices: list[dict[str, Any]],
    *,
    cpu_only: bool,
    nodes: tuple[str, ...] = ("/dev/nvidia0", "/dev/kfd"),
) -> str | None:
    """A GPU that lies idle, in words. devices: what llama.cpp sees; nodes: what the system has."""
    there = next((node for node in nodes if Path(node).exists()), None)
    if cpu_only or there is None or _has_gpu(devices):
        return None
    return (
        f"a GPU is here ({there}), but this build of llama.cpp sees only the CPU; "
        "give a llama-server built for it with --llama-server PATH, or say --cpu-only"
    )


if __name__ == "__main__":
    main()
