"""The engine for `vllm:org/name`: vLLM's own server in a child process."""

from __future__ import annotations

import os
from pathlib import Path

from bourn.engines.dialects import VLLM
from bourn.engines.launch import Launch
from bourn.engines.leash import leashed
from bourn.engines.served import Served


class Vllm(Served):
    """A model on vLLM. `command`: where vllm is; it finds, loads and places the model itself.

    Its own variables (`VLLM_*`, `CUDA_VISIBLE_DEVICES`, `HF_HOME`) are passed on. For its flags,
    run `vllm serve` yourself, and name it by its URL.
    """

    def __init__(self, model: str, command: Path) -> None:
        super().__init__(model=model, dialect=VLLM, name="vllm")
        self._model = model
        self._command = command

    def _launch(self) -> Launch:
        command = [str(self._command), "serve", self._model]
        if self._berth.path is not None:
            command += ["--uds", str(self._berth.path)]
        else:
            command += ["--host", self._berth.host, "--port", str(self._berth.port)]
        return Launch(leashed(command), {**os.environ, "VLLM_API_KEY": self._berth.key})
