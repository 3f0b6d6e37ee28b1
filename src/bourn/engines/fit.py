"""Which settings each kind of model can honour, and the refusal of those that it cannot.

What is said for one model must be honoured: a flag, or an argument of `bourn.load`. What a variable
or the configuration file says is for the models that it fits, and passed over with the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bourn.catalog import Checkpoint, Endpoint, Gguf, VllmServe
from bourn.errors import SettingsError
from bourn.settings import flag

if TYPE_CHECKING:
    from bourn.catalog import Source
    from bourn.settings import Settings

_LOCAL = frozenset({"window", "slots", "threads", "cpu_only", "chat_template", "device"})

_HONOURED: Mapping[type[Source], frozenset[str]] = {
    Gguf: _LOCAL | {"llama_server", "keep_alive"},
    Checkpoint: _LOCAL | {"dtype", "quantization", "trust_remote_code", "compile"},
    Endpoint: frozenset(),
    VllmServe: frozenset(),
}

_KINDS: Mapping[type[Source], tuple[str, str]] = {
    Gguf: ("a GGUF file", "GGUF files"),
    Checkpoint: ("a checkpoint", "checkpoints"),
    Endpoint: ("a server's", ""),
    VllmServe: ("for `vllm serve`", ""),
}


def check_fit(source: Source, settings: Settings) -> None:
    """See that what was said for this model can be honoured. A script honours anything.

    Raises:
        SettingsError: it cannot; names the flag.
    """
    kind = type(source)
    if kind not in _HONOURED:
        return
    for name in sorted(settings.called_for & _OF_LOADING - _HONOURED[kind]):
        if getattr(settings, name):  # off is honoured everywhere
            meant = [many for each, (_, many) in _KINDS.items() if name in _HONOURED[each]]
            raise SettingsError(
                f"{flag(name)} is for {' and '.join(meant)}; this model is {_KINDS[kind][0]}",
                hint=f"leave {flag(name)} out",
            )
    wanted = device(settings)
    if kind is Gguf and "device" in settings.called_for and wanted not in {"auto", "cpu"}:
        raise SettingsError(
            f"llama.cpp chooses its device by itself, so --device {wanted} is for checkpoints",
            hint="leave it out, or keep off the GPU with --cpu-only",
        )


_OF_LOADING = frozenset.union(*_HONOURED.values())


def device(settings: Settings) -> str:
    """Where to compute: `cpu_only` and `device` in one.

    Raises:
        SettingsError: they contradict each other, and neither goes before the other.
    """
    wanted = settings.device or "auto"
    if not settings.cpu_only or wanted == "cpu":
        return wanted
    called_for = settings.called_for & {"cpu_only", "device"}
    if wanted == "auto" or called_for == {"cpu_only"}:
        return "cpu"
    if called_for == {"device"}:
        return wanted
    raise SettingsError(
        f"--cpu-only and --device {wanted} contradict each other", hint="leave one of them out"
    )
