"""A checkpoint's folder into a model and its tokenizer. Knows no request, no terminal, no network.

Weights are read as safetensors only, since pickled ones run code while they are read, and Python
code that comes with a checkpoint is left alone unless somebody asks for it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bourn.catalog.packages import check_installed
from bourn.catalog.templates import template
from bourn.engines import OnProgress
from bourn.engines.hf.weights.faults import told_plainly
from bourn.engines.hf.weights.folder import Folder
from bourn.engines.hf.weights.placing import Placing
from bourn.engines.hf.weights.quiet import quietly
from bourn.engines.launch import environment
from bourn.errors import LoadFailed

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

_LOADING = threading.Lock()
"""transformers imports its parts as they are wanted, and has one hook for progress: one by one."""


class Loaded(NamedTuple):
    """A model that is ready, its tokenizer, and a chat template in place of the model's own.

    own: nobody else uses them.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    template: str | None = None
    own: bool = False


def load(  # noqa: PLR0913 (all but the first are by name)
    folder: Path,
    *,
    dtype: str = "auto",
    device: str = "auto",
    quantization: str | None = None,
    chat_template: str | None = None,
    trust_remote_code: bool = False,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> Loaded:
    """Load what is in a folder. Safe from many threads, which then wait for each other.

    dtype, device, quantization: see `Placing`. chat_template: a name, a file, or Jinja text; None
    leaves the model its own. trust_remote_code: run the Python code in the folder. threads: of the
    CPU, for all of torch in this process; None leaves them as they are. on_progress: told how
    many of how many weights are there.

    Raises:
        LoadFailed: a package or a file is missing or damaged, or memory is short; with what to do.
        TemplateError: there is no such chat template.
    """
    text = None if chat_template is None else template(chat_template)
    check_installed()
    _share_cores()
    here = Folder.read(folder)
    with _LOADING, told_plainly(here.name), quietly(on_progress):
        here.check(code=trust_remote_code)
        placing = Placing.of(dtype, device, quantization, here)
        if threads is not None:
            _compute_in(threads)
        model, tokenizer = _read(here, placing, code=trust_remote_code)
    return Loaded(model.eval().requires_grad_(requires_grad=False), tokenizer, text, own=True)


def _share_cores() -> None:
    """Let torch's threads wait as llama.cpp's do (`launch`); they read it when they are loaded."""
    if "torch" not in sys.modules:
        os.environ.update(environment(os.environ))


def _compute_in(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _read(
    here: Folder, placing: Placing, *, code: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from transformers import AutoConfig, AutoTokenizer

    asked: dict[str, Any] = {"local_files_only": True, "trust_remote_code": code}
    config = AutoConfig.from_pretrained(here.path, **asked)
    with told_plainly(f"the tokenizer of {here.name}"):
        tokenizer = AutoTokenizer.from_pretrained(here.path, **asked)
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise here.without_tokenizer()
    model, told = _head(here, config, code=code).from_pretrained(
        here.path,
        config=config,
        use_safetensors=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # and told of, to be refused below
        **placing.arguments(config),
        **asked,
    )
    _check_complete(here, told)
    return model, tokenizer


def _head(here: Folder, config: PreTrainedConfig, *, code: bool) -> Any:  # none of it is typed
    """The class of transformers that makes this model write text.

    Models that see or hear come as what writes about it: with text alone they are language models.

    Raises:
        LoadFailed: it has none.
    """
    import transformers

    for name in _HEADS_BOTH_WAYS if config.is_encoder_decoder else _HEADS:
        head: Any = getattr(transformers, name, None)  # some are younger than others
        if head and (type(config) in head._model_mapping or (code and name in here.code)):
            return head
    raise LoadFailed(
        f"{here.name} ({config.model_type}) is no model that writes text",
        hint="take one that was made for generating text",
    )


_HEADS = ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModelForMultimodalLM")
_HEADS_BOTH_WAYS = ("AutoModelForSeq2SeqLM", *_HEADS[1:])


def _check_complete(here: Folder, told: Mapping[str, Any]) -> None:
    """See that nothing lacks: transformers would fill it up with random numbers.

    Raises:
        LoadFailed: something lacks.
    """
    if missing := sorted(told["missing_keys"]):
        raise LoadFailed(
            f"{here.name} lacks {len(missing)} of its weights: {_first(missing)}",
            hint="download it again; a part of a model, such as a classifier, cannot write text",
        )
    if others := sorted(name for name, *_ in told["mismatched_keys"]):
        raise LoadFailed(
            f"{here.name} has weights of other shapes than its config.json says: {_first(others)}",
            hint="config.json and weights are not of the same model: download it again",
        )


def _first(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", …" if names[3:] else "")
