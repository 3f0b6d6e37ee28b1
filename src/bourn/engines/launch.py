"""How a llama.cpp server is started: bourn's own, in the worker module, or one of the user's.

It knows the flags and the environment; the process itself is the supervisor's, the wire the
engine's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from bourn.engines import llamacpp_worker
from bourn.engines.leash import leashed
from bourn.engines.llamacpp_worker import ALIAS, Config
from bourn.errors import LoadFailed

_WORKER = (sys.executable, "-P", llamacpp_worker.__file__)
"""By its path, since `-m` imports the packages around it, which takes as long as all the rest.
-P: neither what lies beside it nor in the current folder is taken for a module."""

_SPIN = "1000"
"""Rounds that an OpenMP thread waits busily for the others. By default it is as good as for ever,
which takes most of the speed when anything else wants a core: 3 tokens a second instead of 40."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run, in what environment, and what to write to its stdin. No secrets in `command`."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    feed: bytes = b""


def launch(config: Config, server: Path | None = None) -> Launch:
    """Start `server`, a llama-server of the user's own, or the one that bourn brings.

    Raises:
        LoadFailed: `server` does not run at all.
    """
    env = environment(os.environ)
    if server is None:
        return Launch(_WORKER, env, config.line())
    if config.key:
        env["LLAMA_API_KEY"] = config.key
    arguments = server_arguments(config, flags_of(server))
    return Launch(leashed((str(server), *arguments)), env)


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Ours, and how OpenMP is to wait, unless the user has set anything of OpenMP."""
    if any(name.startswith(("OMP_", "GOMP_")) for name in ours):
        return dict(ours)
    return {**ours, "GOMP_SPINCOUNT": _SPIN}


def flags_of(server: Path) -> frozenset[str]:
    """The flags that a llama-server knows, by its own help: they come and go with versions.

    Raises:
        LoadFailed: it does not run, or is something else.
    """
    try:
        told = subprocess.run(  # noqa: S603 (the user's own choice)
            [server, "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LoadFailed(f"{server} does not run: {error}", hint="is the path right?") from error
    text = (told.stdout + told.stderr).decode(errors="replace")
    flags = frozenset(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", text))
    if not {"--host", "--ctx-size"} <= flags:
        last = text.strip().rpartition("\n")[2]
        raise LoadFailed(f"{server} is no llama-server: {last}", hint="is the path right?")
    return flags


def server_arguments(config: Config, known: frozenset[str]) -> list[str]:
    """The arguments that tell a llama-server what the worker tells its own."""
    total, batch = config.window * config.slots, str(config.batch(gpu=True))
    arguments = [*("--host", config.host), *("--model", config.model), *("--alias", ALIAS)]
    arguments += ["--ctx-size", str(total), "--parallel", str(config.slots)]
    arguments += ["--batch-size", batch, "--ubatch-size", batch]
    if config.port:
        arguments += ["--port", str(config.port)]
    if config.threads > 0:
        arguments += ["--threads", str(config.threads)]
    if config.cpu_only:
        arguments += ["--n-gpu-layers", "0"]
    if config.chat_template:
        arguments += ["--chat-template", config.chat_template]
    return arguments + _where_known(_optional(config), known)


def _optional(config: Config) -> Sequence[Sequence[str]]:
    return (
        ("--jinja",),
        ("--no-kv-unified",),
        ("--cache-ram", str(config.cache_mib)),
        ("--no-webui",),
        ("--no-warmup",),
        ("--slots",),
        ("--fit", "off"),
    )


def _where_known(groups: Sequence[Sequence[str]], known: frozenset[str]) -> list[str]:
    return [word for group in groups if group[0] in known for word in group]


def usable_cores() -> int:
    """Physical cores that this process may use, -1 where that cannot be told.

    The second thread of a core only gets in the way of the first; a container's quota of processor
    time is kept as well.
    """
    if sys.platform != "linux":
        return -1  # llama.cpp knows better, as on processors with two kinds of cores
    cores = {_siblings(cpu) for cpu in os.sched_getaffinity(0)}
    return min(len(cores), _quota() or len(cores))


def _siblings(cpu: int) -> str:
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return topology.read_text()
    except OSError:
        return str(cpu)


def _quota(limits: Path = Path("/sys/fs/cgroup/cpu.max")) -> int | None:
    """Processors' worth of time that the container may use; None for no limit."""
    try:
        quota, period = limits.read_text().split()
        return max(1, ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # none told, or "max"
        return None
