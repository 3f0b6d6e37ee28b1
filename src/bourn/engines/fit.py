"""Which settings each kind of model can honour, and the refusal of those that it cannot.

What is said for one model must be honoured: a flag, or an argument of `bourn.load`. What a variable
or the configuration file says is for the models that it fits, and passed over with the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    for name in sorted(settings.called_for):
        if (refusal := _refusal(source, settings, name)) is not None:
            raise refusal
    if type(source) in _HONOURED:
        device(settings)


def fitted(sources: Sequence[Source], settings: Settings) -> list[Settings]:
    """The settings for each of several models: what was said is for those that can honour it.

    Raises:
        SettingsError: none of them can; names the flag.
    """
    said = [settings.called_for for _ in sources]
    for name in sorted(settings.called_for):
        refusals = [_refusal(source, settings, name) for source in sources]
        if refusals[0] is not None and None not in refusals:
            raise refusals[0]
        pairs = zip(said, refusals, strict=True)
        said = [names - {name} if refusal else names for names, refusal in pairs]
    return [replace(settings, called_for=names) for names in said]


def _refusal(source: Source, settings: Settings, name: str) -> SettingsError | None:
    """Why a model of this kind cannot honour what was said for it, if it cannot."""
    kind = type(source)
    if kind not in _HONOURED or name not in _OF_LOADING or not getattr(settings, name):
        return None  # off is honoured everywhere
    if name not in _HONOURED[kind]:
        meant = [many for each, (_, many) in _KINDS.items() if name in _HONOURED[each]]
        return SettingsError(
            f"{flag(name)} is for {' and '.join(meant)}; this model is {_KINDS[kind][0]}",
            hint=f"leave {flag(name)} out",
        )
    if name == "device" and kind is Gguf and (wanted := device(settings)) not in {"auto", "cpu"}:
        return SettingsError(
            f"llama.cpp chooses its device by itself, so --device {wanted} is for checkpoints",
            hint="leave it out, or keep off the GPU with --cpu-only",
        )
    return None


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
