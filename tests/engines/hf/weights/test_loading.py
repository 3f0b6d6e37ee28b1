"""Folders into models: what is loaded, how, and what is told of what cannot be."""

from __future__ import annotations

import logging
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from bourn.catalog.templates import template
from bourn.engines.hf.weights.loading import load
from bourn.errors import LoadFailed, TemplateError
from tests.support import tiny_tokenizers
from tests.support.saved_models import SIZES, change, save, save_llama

IDS = torch.tensor([[5, 6, 7]])


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("saved") / "llama")


@pytest.fixture
def folder(llama: Path, tmp_path: Path) -> Path:
    """One that may be spoilt."""
    return Path(shutil.copytree(llama, tmp_path / "llama"))


def refused(folder: Path, **how: Any) -> LoadFailed:
    with pytest.raises(LoadFailed) as caught:
        load(folder, **how)
    assert caught.value.hint
    return caught.value


def config(folder: Path, **entries: object) -> None:
    change(folder / "config.json", **entries)


# -- what is loaded --------------------------------------------------------------------------------


def test_a_model_is_ready_to_generate(llama: Path) -> None:
    from transformers import LlamaForCausalLM

    loaded = load(llama)
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    with torch.no_grad():
        same = torch.equal(
            loaded.model(IDS).logits, LlamaForCausalLM.from_pretrained(llama).eval()(IDS).logits
        )
    assert same
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("the fox")) == "the fox"
    assert loaded.template is None
    assert loaded.tokenizer.chat_template == tiny_tokenizers.CHATML


def test_another_chat_template_by_name_or_file(llama: Path, tmp_path: Path) -> None:
    assert load(llama, chat_template="zephyr").template == template("zephyr")
    (tmp_path / "mine.jinja").write_text("{{ messages }}")
    assert load(llama, chat_template=str(tmp_path / "mine.jinja")).template == "{{ messages }}"


def test_an_unknown_template_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="no chat template `chatmk`"):
        load(tmp_path / "nothing", chat_template="chatmk")


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_the_kind_of_numbers_that_was_asked_for(llama: Path, name: str) -> None:
    assert load(llama, dtype=name, device="cpu").model.dtype is getattr(torch, name)


def test_numbers_are_as_they_are_stored(tmp_path: Path) -> None:
    half = save_llama(tmp_path / "half", dtype=torch.bfloat16)
    assert load(half, device="cpu").model.dtype is torch.bfloat16


def test_a_split_checkpoint(llama: Path, tmp_path: Path) -> None:
    load(llama).model.save_pretrained(tmp_path / "split", max_shard_size="20KB")
    shutil.copytree(llama, tmp_path / "split", dirs_exist_ok=True)
    (tmp_path / "split" / "model.safetensors").unlink()
    split = load(tmp_path / "split")
    with torch.no_grad():
        assert torch.equal(split.model(IDS).logits, load(llama).model(IDS).logits)


def test_one_that_reads_and_writes_apart(tmp_path: Path) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    tokenizer = tiny_tokenizers.t5()
    sizes = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 1, "num_heads": 4}
    made = T5Config(**sizes, vocab_size=len(tokenizer), decoder_start_token_id=0)
    folder = save(tmp_path / "t5", T5ForConditionalGeneration(made), tokenizer)
    assert type(load(folder).model) is T5ForConditionalGeneration


def test_one_that_sees_too_is_loaded_for_its_text(tmp_path: Path) -> None:
    from transformers import (
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
    )

    tokenizer = tiny_tokenizers.chatml()
    eye = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=8,
        patch_size=4,
    )
    text = LlamaConfig(**SIZES, vocab_size=len(tokenizer))
    model = LlavaForConditionalGeneration(
        LlavaConfig(text_config=text, vision_config=eye, image_token_index=3)
    )
    loaded = load(save(tmp_path / "llava", model, tokenizer))
    assert loaded.model(IDS).logits.shape == (1, 3, len(tokenizer))


# -- what is told meanwhile ------------------------------------------------------------------------


def test_progress_goes_from_nothing_to_all(llama: Path) -> None:
    seen: list[tuple[int, int, int]] = []
    load(llama, on_progress=lambda done, total: seen.append((done, total, threading.get_ident())))
    total = seen[0][1]
    assert total > 10
    assert seen == [(done, total, threading.get_ident()) for done in range(total + 1)]


@pytest.fixture
def heard(talkative: None) -> Iterator[StringIO]:
    """What somebody who listens to transformers hears."""
    said = StringIO()
    handler = logging.StreamHandler(said)
    logging.getLogger("transformers").addHandler(handler)
    yield said
    logging.getLogger("transformers").removeHandler(handler)


@pytest.fixture
def noisy(folder: Path) -> Path:
    """One of which transformers has something to say: a tensor too many."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    more = weights | {"of.no.use": torch.zeros(1)}
    save_file(more, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_nothing_of_transformers_is_shown(
    noisy: Path, heard: StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModelForCausalLM

    load(noisy)
    assert (heard.getvalue(), capfd.readouterr()) == ("", ("", ""))
    AutoModelForCausalLM.from_pretrained(noisy)  # as before
    assert "of.no.use" in heard.getvalue()
    assert "Loading weights" in capfd.readouterr().err


def test_it_is_shown_where_somebody_asks_for_it(
    noisy: Path, heard: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "warning")
    load(noisy)
    assert "of.no.use" in heard.getvalue()


def test_many_threads_may_load_at_once(llama: Path) -> None:
    done: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(
            lambda _: load(llama, on_progress=lambda n, _: done.append(n)), "abcd"
        )
    for other in others:
        assert torch.equal(first.model.lm_head.weight, other.model.lm_head.weight)
    assert sorted(done) == sorted(4 * list(range(max(done) + 1)))


# -- what is refused -------------------------------------------------------------------------------


def without(*names: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return spoil


def text(name: str, content: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).write_text(content)

    return spoil


def cut(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def without_vocabulary(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    change(folder / "tokenizer_config.json", tokenizer_class="GPT2Tokenizer", backend=None)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"


@pytest.mark.parametrize(
    ("spoil", "told", "hint"),
    [
        (without("config.json"), "it has no config.json", "save_pretrained"),
        (text("config.json", "{"), "config.json is damaged", "download"),
        (without("model.safetensors"), "has no weights", "download"),
        (pickled, "in pickled files only", "safetensors|convert"),
        (text("model.safetensors", "?" * 50), "model.safetensors is damaged", "download"),
        (cut, "model.safetensors is damaged", "download"),
        (text("model.safetensors", POINTER), "pointer of git-lfs", "git lfs pull"),
        (without("tokenizer.json", "tokenizer_config.json"), "no tokenizer", "tokenizer.json"),
        (text("tokenizer.json", "{"), "the tokenizer of .* cannot be loaded", "JSONDecodeError"),
        (without_vocabulary, "has no tokenizer", "tokenizer.json"),
    ],
)
def test_damaged_folders(spoil: Callable[[Path], None], told: str, hint: str, folder: Path) -> None:
    spoil(folder)
    error = refused(folder)
    assert re.search(told, str(error))
    assert str(folder) in str(error)
    assert re.search(hint, error.hint)


def test_a_shard_that_is_missing(folder: Path) -> None:
    load(folder).model.save_pretrained(folder, max_shard_size="20KB")
    missing = min(folder.glob("model-*.safetensors"))
    missing.unlink()
    assert f"lacks {missing.name}" in str(refused(folder))


def test_weights_that_lack_are_not_made_up(folder: Path) -> None:
    config(folder, num_hidden_layers=3)
    assert "lacks 9 of its weights: model.layers.2." in str(refused(folder))


def test_weights_of_other_shapes_are_not_made_up(folder: Path) -> None:
    config(folder, intermediate_size=80)
    assert "other shapes than its config.json says: model.layers.0.mlp" in str(refused(folder))


def test_an_architecture_that_this_transformers_does_not_know(folder: Path) -> None:
    config(folder, model_type="from_the_future")
    error = refused(folder)
    assert "does not know models of the type `from_the_future`" in str(error)
    assert "pip install -U transformers" in error.hint


def test_models_that_write_nothing(folder: Path) -> None:
    config(folder, architectures=["LlamaForSequenceClassification"])
    assert "a LlamaForSequenceClassification, which writes no text" in str(refused(folder))
    config(folder, architectures=None, model_type="clip_vision_model")
    assert "clip_vision_model) is no model that writes text" in str(refused(folder))


@pytest.mark.parametrize(
    ("method", "hint"),
    [("awq", "gptqmodel"), ("compressed-tensors", "compressed-tensors")],
)
def test_a_quantisation_whose_package_is_missing(method: str, hint: str, folder: Path) -> None:
    if find_spec(hint.replace("-", "_")):
        pytest.skip("it is installed here")
    config(folder, quantization_config={"quant_method": method, "bits": 4})
    error = refused(folder)
    assert "needs a package that is not here" in str(error)
    assert error.hint.startswith(f"pip install '{hint}")


@pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="it is installed here")
def test_quantising_without_its_package(llama: Path) -> None:
    for quantization in ("4bit", "8bit"):
        assert "pip install 'bitsandbytes" in refused(llama, quantization=quantization).hint


def test_what_is_quantised_already_is_not_quantised_again(folder: Path) -> None:
    config(folder, quantization_config={"quant_method": "awq"})
    error = refused(folder, quantization="4bit")
    assert "is quantised already (awq)" in str(error)
    assert "--quantization" in error.hint


def test_packages_that_are_missing(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert refused(llama).hint == "pip install 'bourn[hf]'"


def test_a_device_that_is_not_here(llama: Path) -> None:
    for device in ("cuda:63", *([] if torch.backends.mps.is_available() else ["mps"])):
        error = refused(llama, device=device)
        assert f"there is no device {device}" in str(error)
        assert "--device cpu" in error.hint


# -- code that comes with a checkpoint -------------------------------------------------------------

CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
Path(__file__).with_name("ran").touch()
class OwnConfig(LlamaConfig):
    model_type = "own"
class Own(LlamaForCausalLM):
    config_class = OwnConfig
"""


@pytest.fixture
def own(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One of an architecture of its own, whose code leaves a file where it was run."""
    import transformers.dynamic_module_utils as theirs

    monkeypatch.setattr(theirs, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (folder / "modeling_own.py").write_text(CODE)
    names = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.Own"}
    config(folder, model_type="own", auto_map=names)
    return folder


def test_code_of_its_own_is_not_run(own: Path, tmp_path: Path) -> None:
    error = refused(own)
    assert "Python code of its own" in str(error)
    assert "--trust-remote-code" in error.hint
    assert not list(tmp_path.rglob("ran"))


def test_code_of_its_own_is_run_where_somebody_trusts_it(own: Path, tmp_path: Path) -> None:
    assert type(load(own, trust_remote_code=True).model).__name__ == "Own"
    assert list(tmp_path.rglob("ran"))


def test_code_beside_an_architecture_that_is_known_is_left_alone(own: Path, tmp_path: Path) -> None:
    config(own, model_type="llama")
    assert type(load(own).model).__name__ == "LlamaForCausalLM"
    assert not list(tmp_path.rglob("ran"))


def test_a_tokenizer_of_its_own_is_not_run(folder: Path) -> None:
    own = {"AutoTokenizer": ["tokenization_own.Own", None]}
    change(folder / "tokenizer_config.json", auto_map=own, tokenizer_class="Own")
    (folder / "tokenization_own.py").write_text("raise SystemExit")
    error = refused(folder)
    assert "the tokenizer of" in str(error)
    assert "--trust-remote-code" in error.hint
