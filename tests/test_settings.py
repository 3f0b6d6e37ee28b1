"""Settings: which place wins, what is refused and how, and that the manual is true."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import Field, fields
from inspect import signature
from pathlib import Path

import pytest

from bourn.catalog.templates import NAMES
from bourn.cli.run import run
from bourn.errors import SettingsError
from bourn.settings import Settings, flag, read, variable
from bourn.types import DEFAULT_MAX_NEW_TOKENS, DEFAULT_SAMPLING, Sampling

SETTINGS = [field for field in fields(Settings) if field.name != "called_for"]
MANUAL = (Path(__file__).parents[1] / "docs" / "settings.md").read_text(encoding="utf-8")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text("")
    return path


def load(config: Path, environ: dict[str, str] | None = None, **flags: object) -> Settings:
    return Settings.load(flags, environ=environ or {}, config_file=config)


def refused(config: Path, environ: dict[str, str] | None = None, **flags: object) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        load(config, environ, **flags)
    return caught.value


def test_nothing_said_is_the_defaults(config: Path) -> None:
    assert load(config) == Settings()


def test_flags_go_before_variables_before_the_file(config: Path) -> None:
    config.write_text('model = "file"\nsystem = "file"\nseed = 1\ntop_k = 1')
    environ = {"BOURN_MODEL": "variable", "BOURN_SYSTEM": "variable", "BOURN_SEED": "2"}
    settings = load(config, environ, model="flag", system=None)
    assert (settings.model, settings.system) == ("flag", "variable")
    assert (settings.seed, settings.top_k) == (2, 1)


def test_zero_and_false_are_said(config: Path) -> None:
    config.write_text("temperature = 0.7\ncpu_only = true")
    settings = load(config, temperature=0, cpu_only=False)
    assert (settings.temperature, settings.cpu_only) == (0, False)


def test_an_empty_variable_and_a_stop_flag_never_given_say_nothing(config: Path) -> None:
    config.write_text('system = "file"\nstop = "file"')
    settings = load(config, {"BOURN_SYSTEM": ""}, stop=[])
    assert (settings.system, settings.stop) == ("file", ("file",))


def test_sampling_is_what_was_said_of_it(config: Path) -> None:
    config.write_text("min_p = 0.1")
    settings = load(config, {"BOURN_TOP_K": "0"}, seed=7)
    assert settings.sampling == Sampling(min_p=0.1, top_k=0, seed=7)


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ('["\\nUser:", "###"]', ("\nUser:", "###")),
        ("###", ("###",)),
        ("[INST]", ("[INST]",)),
        ("[", ("[",)),
        ("a,b", ("a,b",)),
    ],
)
def test_stop_in_a_variable(config: Path, text: str, stop: tuple[str, ...]) -> None:
    assert load(config, {"BOURN_STOP": text}).stop == stop


@pytest.mark.parametrize("text", ['["a"', "[1]", '["a", ""]', '["a", {}]'])
def test_a_list_of_stops_that_is_none_is_refused(config: Path, text: str) -> None:
    error = refused(config, {"BOURN_STOP": text})
    assert "BOURN_STOP" in str(error)
    assert "text" in error.hint


@pytest.mark.parametrize(
    ("key", "text", "hint"),
    [
        ("BOURN_TEMPERATURE", "hot", "a number"),
        ("BOURN_TEMPERATURE", "nan", "0 to 100"),
        ("BOURN_TOP_P", "1.5", "0 to 1"),
        ("BOURN_SEED", "1.5", "a whole number"),
        ("BOURN_SEED", "-1", "from 0"),
        ("BOURN_MAX_NEW_TOKENS", "0", "1 or more"),
        ("BOURN_WINDOW", "big", "a whole number"),
        ("BOURN_CPU_ONLY", "maybe", "true or false"),
        ("BOURN_LLAMA_SERVER", "~nobody-of-that-name/x", "a path"),
        ("BOURN_KEEP_ALIVE", "5 minutes", "5m"),
        ("BOURN_KEEP_ALIVE", "-1", "0 is off"),
        ("BOURN_DTYPE", "bf16", "one of auto, float32, bfloat16, float16"),
        ("BOURN_DEVICE", "gpu", "cuda:1"),
        ("BOURN_DEVICE", "cuda:x", "cuda:1"),
        ("BOURN_QUANTIZATION", "awq", "one of 4bit, 8bit"),
        ("BOURN_TRUST_REMOTE_CODE", "some", "true or false"),
    ],
)
def test_a_wrong_variable_is_named(config: Path, key: str, text: str, hint: str) -> None:
    error = refused(config, {key: text})
    assert key in str(error)
    assert text in str(error)
    assert hint in error.hint


@pytest.mark.parametrize("text", ["1", "TRUE", "yes", "on"])
def test_a_switch_in_a_variable(config: Path, text: str) -> None:
    assert load(config, {"BOURN_CPU_ONLY": text}).cpu_only is True


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5 m", 90), ("5m", 300), ("1h", 3600), ("0", 0), ("0m", 0)],
)
def test_a_time_is_seconds_or_has_a_unit(config: Path, text: str, seconds: float) -> None:
    assert load(config, {"BOURN_KEEP_ALIVE": text}).keep_alive == seconds
    config.write_text(f'keep_alive = "{text}"')
    assert load(config).keep_alive == seconds
    assert load(config, keep_alive=2).keep_alive == 2


@pytest.mark.parametrize(
    "line",
    [
        'temperature = "0.5"',
        "temperature = true",
        "top_k = 1.5",
        "model = 1",
        "stop = [1]",
        "stop = 1",
        'cpu_only = "yes"',
        "keep_alive = true",
        "keep_alive = nan",
        f'keep_alive = "{"9" * 400}"',
        "window = 0",
        'llama_server = ""',
        "min_p = 7",
        "system = ['a']",
        "dtype = 16",
        "device = 0",
    ],
)
def test_a_wrong_value_in_the_file_is_named(config: Path, line: str) -> None:
    config.write_text(line)
    error = refused(config)
    assert line.split(maxsplit=1)[0] in str(error)
    assert str(config) in str(error)
    assert error.hint.startswith("give ")


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:11", "mps"])
def test_devices(config: Path, device: str) -> None:
    assert load(config, {"BOURN_DEVICE": device}).device == device


def test_what_was_called_for_is_what_flags_said(config: Path) -> None:
    config.write_text('dtype = "float32"')
    settings = load(config, {"BOURN_SEED": "1"}, device="cpu", window=None, stop=[])
    assert (settings.dtype, settings.seed, settings.device) == ("float32", 1, "cpu")
    assert settings.called_for == {"device"}


def test_a_wrong_flag_is_named_as_a_flag(config: Path) -> None:
    assert str(refused(config, max_new_tokens=-5)) == "--max-new-tokens is -5"


def test_an_unknown_key_in_the_file_is_refused_with_its_like(config: Path) -> None:
    config.write_text("temprature = 1")
    error = refused(config)
    assert "temprature" in str(error)
    assert str(config) in str(error)
    assert "temperature" in error.hint


def test_an_unknown_key_like_no_other_lists_them(config: Path) -> None:
    config.write_text("[tool.things]\nx = 1")
    assert "max_new_tokens" in refused(config).hint


def test_an_unknown_flag_is_refused(config: Path) -> None:
    assert "windwo" in str(refused(config, windwo=1))


def test_broken_toml_is_told_with_its_line(config: Path) -> None:
    config.write_text('model = "a"\ntop_p 0.5')
    error = refused(config)
    assert str(config) in str(error)
    assert "line 2" in str(error)


def test_a_file_that_is_not_utf8_is_told(config: Path) -> None:
    config.write_bytes('system = "é"'.encode("latin-1"))
    assert "UTF-8" in str(refused(config))


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="gone"):
        Settings.load({}, environ={"BOURN_CONFIG": str(tmp_path / "gone.toml")})


def test_the_variable_names_the_file(config: Path) -> None:
    config.write_text("seed = 3")
    assert Settings.load({}, environ={"BOURN_CONFIG": str(config)}).seed == 3


def test_the_usual_file_need_not_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    assert Settings.load({}, environ={}) == Settings()
    usual = tmp_path / "bourn" / "config.toml"
    if sys.platform == "linux":
        usual.parent.mkdir()
        usual.write_text("seed = 4")
        assert Settings.load({}, environ={}).seed == 4


def test_paths_in_the_file_start_from_its_folder(config: Path) -> None:
    (config.parent / "mine.jinja").write_text("{{ messages }}")
    config.write_text('llama_server = "bin/llama-server"\nchat_template = "mine.jinja"')
    settings = load(config)
    assert settings.llama_server == config.parent / "bin" / "llama-server"
    assert settings.chat_template == str(config.parent / "mine.jinja")


def test_an_absolute_path_and_a_templates_name_stay_as_they_are(config: Path) -> None:
    config.write_text('llama_server = "/opt/llama-server"\nchat_template = "chatml"')
    settings = load(config)
    assert settings.llama_server == Path("/opt/llama-server")
    assert settings.chat_template == "chatml"


def test_paths_of_flags_start_from_where_the_user_is(config: Path) -> None:
    assert load(config, llama_server=Path("llama-server")).llama_server == Path("llama-server")


def test_a_key_is_never_shown(config: Path) -> None:
    secret = "sk-very-secret"
    assert secret not in repr(load(config, {"BOURN_API_KEY": secret}))
    config.write_text(f'api_key = ["{secret}"]')
    assert secret not in str(refused(config))


def test_importing_settings_is_light() -> None:
    heavy = ("pydantic", "httpx2", "asyncio", "tomllib", "platformdirs", "typer")
    script = f"import sys, bourn.settings; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


# -- the manual ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0.5", 0.5),
        ("top_k", "40", 40),
        ("stop", '["a", "b"]', ("a", "b")),
        ("stop", "[INST]", ("[INST]",)),
        ("cpu_only", "yes", True),
    ],
)
def test_the_text_of_one_setting_can_be_read(name: str, text: str, value: object) -> None:
    assert read(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("temperature", "hot", "temperature is 'hot'"),
        ("temprature", "1", "no setting `temprature`"),
    ],
)
def test_a_wrong_text_of_one_setting_is_told(name: str, text: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        read(name, text)


def manual_rows() -> dict[str, tuple[str, str, str]]:
    """flag, variable and default by setting, as the manual tells them."""
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|", MANUAL, re.MULTILINE)
    return {name: (flags, key, default) for name, flags, key, default in rows}


def test_the_manual_has_every_setting_in_order() -> None:
    assert list(manual_rows()) == [field.name for field in SETTINGS]


@pytest.mark.parametrize("field", SETTINGS, ids=lambda field: field.name)
def test_the_manual_tells_each_setting_truly(field: Field[object]) -> None:
    name = field.name
    flags, key, default = manual_rows()[name]
    assert key == f"`{variable(name)}`"
    assert flags == "none" or f"`{flag(name)}`" in flags
    value = getattr(Settings(), name)
    if value in (None, ()):
        assert default.startswith("none")
    else:
        assert default == f"`{str(value).lower()}`"


def test_the_manual_knows_which_flags_there_are() -> None:
    with_flags = {name for name, (flags, _, _) in manual_rows().items() if flags != "none"}
    assert with_flags == set(signature(run).parameters) & set(manual_rows())


def test_the_manual_tells_what_no_saying_means() -> None:
    rows = manual_rows()
    for name, value in DEFAULT_SAMPLING.given().items():
        assert rows[name][2] == f"none: {value:g}"
    assert rows["max_new_tokens"][2] == f"none: {DEFAULT_MAX_NEW_TOKENS:,}"


def test_the_manual_lists_the_templates() -> None:
    section = MANUAL.partition("## Chat templates")[2]
    assert re.findall(r"`([a-z][\w-]+)`", section) == list(NAMES)


def test_the_manuals_example_can_be_loaded(config: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", MANUAL, re.DOTALL)
    assert example
    config.write_text(example[1])
    assert load(config).stop == ("\nUser:",)
