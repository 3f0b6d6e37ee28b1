"""The engine for GGUF files: llama.cpp's own HTTP server in a child process.

Here is what is special about that server: where its model is, how it is started, what it must not
be asked since it would drop it silently. The rest is `Served`'s.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path

from bourn.engines.base import ModelInfo
from bourn.engines.dialects import LLAMACPP
from bourn.engines.launch import Launch, launch, usable_cores
from bourn.engines.life import Life
from bourn.engines.llamacpp_checks import check_request
from bourn.engines.llamacpp_worker import ALIAS, NOTICE, Config
from bourn.engines.resident import Sharing
from bourn.engines.served import Served
from bourn.errors import InvalidRequest, LoadFailed, ModelNotFound, TemplateError
from bourn.types import Request, Sampling

DEFAULT_WINDOW = 4096
"""Tokens, where nobody says. The KV cache is filled with zeros at load, so each costs time too."""

NAME = "llama.cpp"

_TELLING = ("CUDA_", "DYLD_", "GGML_", "GOMP_", "HIP_", "LD_", "LLAMA_", "OMP_", "ROCR_")
"""Beginnings of environment variables that change what a server is, or how fast."""


class LlamaCpp(Served):
    """A GGUF model on llama.cpp. The process is started by `spawn`, or by `start`.

    model: a GGUF file, the first where it is split. window: tokens of prompt and answer together,
    for each slot; None takes the model's own, `train_window`, 4,096 at most. slots: requests at
    once. threads: None takes the physical cores that may be used. cpu_only: leaves a GPU alone.
    chat_template: Jinja text, instead of the model's own. llama_server: the user's own build.
    defaults: the model's own sampling settings. has_template: whether the model carries one.
    sharing: whether other programs may use the process; None keeps it to us.

    Raises:
        ModelNotFound: there is no such file.
        LoadFailed: it is no GGUF file, or there is no such llama-server.
        TemplateError: the template is no Jinja text.
        SettingsError: it is to be kept for others, and there is no place for it.
    """

    def __init__(  # noqa: PLR0913 (all but the first are by name)
        self,
        model: Path,
        *,
        window: int | None = None,
        slots: int = 1,
        threads: int | None = None,
        cpu_only: bool = False,
        chat_template: str | None = None,
        llama_server: Path | None = None,
        defaults: Sampling = Sampling(),  # noqa: B008 (frozen)
        train_window: int | None = None,
        has_template: bool = True,
        name: str | None = None,
        sharing: Sharing | None = None,
    ) -> None:
        model = model.absolute()
        _check_model(model)
        _check_template(chat_template)
        self._title = name or model.stem
        self._server = _found(llama_server)
        self._defaults = defaults
        self._templated = has_template or chat_template is not None
        config = Config(
            model=str(model),
            host="",
            window=window or min(train_window or DEFAULT_WINDOW, DEFAULT_WINDOW),
            slots=slots,
            threads=threads or usable_cores(),
            cpu_only=cpu_only,
            chat_template=chat_template or "",
        )
        super().__init__(
            model=ALIAS,
            dialect=LLAMACPP,
            name=self._server.name if self._server else NAME,
            resident=sharing.resident(_facts(config, self._server)) if sharing else None,
        )
        berth = self._berth
        self._config = replace(config, host=berth.host, port=berth.port, key=berth.key)

    def __repr__(self) -> str:
        return f"LlamaCpp({self._config.model!r})"

    def _launch(self) -> Launch:
        return launch(self._config, self._server)

    async def _find_out(self, life: Life) -> ModelInfo:
        told = await super()._find_out(life)
        said = (line.removeprefix(NOTICE) for line in life.last_words if line.startswith(NOTICE))
        return replace(
            told,
            name=self._title,
            engine=NAME,
            defaults=self._defaults.over(told.defaults),
            chat_template=self._templated,
            notice=next(said, ""),
        )

    def _check(self, request: Request, info: ModelInfo) -> None:
        super()._check(request, info)
        check_request(request, takes_tools="tools" in info.honours)
        if missing := LLAMACPP.sampling.keys() - request.sampling.given().keys():
            raise InvalidRequest(  # it would take defaults of its own, and never tell its seed
                f"the sampling is not resolved: {', '.join(sorted(missing))}",
                hint="ask through a Hub, which lays the defaults under a request",
            )


def _check_model(model: Path) -> None:
    try:
        with model.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError as error:
        raise ModelNotFound(f"there is no file {model}", hint="is the path right?") from error
    except OSError as error:
        raise LoadFailed(f"{model} cannot be read: {error.strerror}") from error
    if magic != b"GGUF":
        raise LoadFailed(
            f"{model} is no GGUF file",
            hint="it may be half downloaded, or a pointer of Git LFS instead of the file",
        )


def _check_template(text: str | None) -> None:
    if text is not None and "{" not in text:
        raise TemplateError(  # llama.cpp would send these words in place of every prompt
            f"{text!r:.60} is no chat template", hint="give the text of a Jinja template"
        )


def _found(server: Path | None) -> Path | None:
    if server is None:
        return None
    found = shutil.which(server)
    if found is None:
        raise LoadFailed(f"there is no program {server}", hint="is the path of llama-server right?")
    return Path(found).absolute()


def _facts(config: Config, server: Path | None) -> object:
    """All that makes a process what it is, wherever it listens."""
    from bourn import __version__

    files = [Path(config.model), server or Path(sys.executable)]
    stamps = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    telling = {name: text for name, text in os.environ.items() if name.startswith(_TELLING)}
    return [__version__, sys.prefix, asdict(config), stamps, telling]
