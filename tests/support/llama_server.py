"""llama.cpp's own server as somebody else might run it: `python llama_server.py MODEL SOCKET`.

Nothing of bourn's child is in it. It ends when its stdin is closed, so that no test leaves it.
"""

from __future__ import annotations

import sys

import xllamacpp


def main(model: str, socket: str) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = [socket]
    params.n_parallel = 2
    params.n_ctx = 2048
    params.kv_unified = False
    params.n_batch = params.n_ubatch = 256
    params.warmup = False
    params.ui = False
    params.endpoint_slots = True
    server = xllamacpp.Server(params)
    print("ready", flush=True)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main(*sys.argv[1:])
