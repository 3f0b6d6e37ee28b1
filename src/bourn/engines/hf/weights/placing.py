"""Where a checkpoint's weights go, and as what kind of numbers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from bourn.engines.hf.weights.folder import Folder
from bourn.errors import LoadFailed

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig


@dataclass(frozen=True, slots=True)
class Placing:
    """How to load.

    dtype: float32, bfloat16, float16; auto is the checkpoint's own, but see `_quick`.
    device: cpu, cuda, cuda:1, mps; auto is the GPU where there is one, all of them where there are
        several (which nobody has tried yet), else the CPU.
    quantization: 4bit or 8bit, by bitsandbytes while loading; None leaves the weights as they are.
    """

    dtype: str
    device: str
    quantization: str | None
    folder: Folder

    @classmethod
    def of(cls, dtype: str, device: str, quantization: str | None, folder: Folder) -> Self:
        """These wishes, once they are known to be possible here.

        Raises:
            LoadFailed: there is no such device, or the weights are quantised already.
        """
        if quantization and folder.quantised:
            raise LoadFailed(
                f"{folder.name} is quantised already ({folder.quantised})",
                hint="leave --quantization out",
            )
        return cls(dtype, _device(device), quantization, folder)

    def arguments(self, config: PreTrainedConfig) -> dict[str, Any]:
        """What `from_pretrained` takes for it."""
        told: dict[str, Any] = {"dtype": self._dtype(config)}
        if self.device == "auto":
            told["device_map"] = "auto"
        elif self.device != "cpu" or self.quantization:
            told["device_map"] = {"": self.device}
        if self.quantization:
            told["quantization_config"] = self._bitsandbytes()
        return told

    def _dtype(self, config: PreTrainedConfig) -> torch.dtype | str:
        import torch

        if self.dtype != "auto":
            return getattr(torch, self.dtype)  # type: ignore[no-any-return]  # one of three
        if self.device != "cpu" or self.folder.quantised:
            return "auto"
        own = config.dtype or self.folder.stored
        return _quick() if own in (torch.float16, "float16", "F16") else "auto"

    def _bitsandbytes(self) -> Any:
        import torch
        from transformers import BitsAndBytesConfig

        theirs = logging.getLogger("bitsandbytes")
        if theirs.level == logging.NOTSET:
            theirs.setLevel(logging.ERROR)  # it warns of a cast at each layer of each token
        if self.quantization == "8bit":
            return BitsAndBytesConfig(load_in_8bit=True)
        computed = torch.bfloat16 if self.dtype == "auto" else getattr(torch, self.dtype)
        return BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=computed
        )


def _device(wanted: str) -> str:
    """Which one is meant here; `auto` where it is several.

    Raises:
        LoadFailed: there is no such device.
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    has_mps = torch.backends.mps.is_available()
    kind, _, number = wanted.partition(":")
    if kind == "auto" and not gpus:
        return "mps" if has_mps else "cpu"
    if kind == "auto":
        return "cuda:0" if gpus == 1 else "auto"
    if (kind == "cuda" and int(number or 0) >= gpus) or (kind == "mps" and not has_mps):
        there = f"torch {torch.__version__} sees {gpus or 'no'} CUDA device{'s' * (gpus != 1)} here"
        raise LoadFailed(
            f"there is no device {wanted}: {there}",
            hint="--device cpu, or another build of torch: https://pytorch.org/get-started",
        )
    return "cuda:0" if wanted == "cuda" else wanted


def _quick() -> torch.dtype | str:
    """What a CPU computes float16 weights in, where nobody says.

    Few CPUs compute in float16, and the others take four to nine times as long for a prompt in it
    as in float32. bfloat16 takes no more memory; float32 is what is left, for twice the memory.
    """
    import torch

    if _supported("fp16"):
        return "auto"
    return torch.bfloat16 if _supported("bf16") else torch.float32


def _supported(kind: str) -> bool:
    import torch

    asked = getattr(torch.ops.mkldnn, f"_is_mkldnn_{kind}_supported", None)
    return asked is not None and bool(asked())
