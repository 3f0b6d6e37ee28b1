"""The user's settings: flags over `BOURN_*` variables over a configuration file over defaults.

It knows no terminal, no model and no engine, and it is cheap to import: TOML, JSON and the folders
of the platform are only asked for when there is something to read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self

from bourn.errors import InvalidRequest, SettingsError
from bourn.types import Sampling

PREFIX = "BOURN_"
CONFIG = "BOURN_CONFIG"
"""The variable that names another configuration file."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user wants where a request does not say. None means "not said".

    model: see the catalog. system: a system message before each chat.
    max_new_tokens: None is bourn's 1,024. stop: texts that end the answer.
    temperature … seed: as in `Sampling`. window: tokens of prompt and answer together, None the
    model's own. slots: requests served at once. threads: of the CPU.
    chat_template: a name or a file. llama_server: the user's own build. keep_alive: seconds that a
    local model stays loaded after its use, 0 not at all. dtype, device, quantization: of a
    checkpoint's weights. trust_remote_code: run Python code that comes with a checkpoint.
    compile: a checkpoint's model, which takes a while and makes it quicker then. api_key: for an
    endpoint.

    called_for: those that flags or arguments said, for this very model. What it cannot honour of
    these is refused; the others are standing wishes, for the models that they fit.
    """

    model: str = "smollm2"
    system: str | None = None
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    window: int | None = None
    slots: int | None = None
    threads: int | None = None
    cpu_only: bool = False
    chat_template: str | None = None
    llama_server: Path | None = None
    keep_alive: float | None = None
    dtype: str | None = None
    device: str | None = None
    quantization: str | None = None
    trust_remote_code: bool = False
    compile: bool = False
    api_key: str | None = field(default=None, repr=False)
    called_for: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @property
    def sampling(self) -> Sampling:
        """What was said about how tokens are drawn."""
        return Sampling(**{name: getattr(self, name) for name in _SAMPLING})

    @classmethod
    def load(
        cls,
        flags: Mapping[str, object],
        *,
        environ: Mapping[str, str] = os.environ,
        config_file: Path | None = None,
    ) -> Self:
        """The settings from everywhere, the nearest first: flags, environment, file, defaults.

        flags: by the names of the fields; None, or an empty `stop`, is "not said".
        config_file: None is $BOURN_CONFIG, or `config.toml` in the user's folder for bourn's.

        Raises:
            SettingsError: a value or a name is wrong, there or in the file; says where.
        """
        near = _from_flags(flags)
        said = _from_file(config_file, environ) | _from_environment(environ) | near
        called_for = frozenset(near)
        return cls(**said, called_for=called_for)  # type: ignore[arg-type]  # readers checked them


def given(flags: Mapping[str, object]) -> dict[str, object]:
    """Those flags that were said: None, or an empty `stop`, was not."""
    return {name: value for name, value in flags.items() if value not in (None, (), [])}


def read(name: str, text: str) -> object:
    """What the text of a setting means, as in a `BOURN_*` variable.

    Raises:
        SettingsError: there is no such setting, or it cannot be that.
    """
    _refuse_unknown((name,), f"`{name}={text}`")
    return _checked(name, text, name, as_text=True)


# -- where settings come from ----------------------------------------------------------------------


def _from_flags(flags: Mapping[str, object]) -> dict[str, object]:
    said = given(flags)
    _refuse_unknown(said, "the flags")
    return {name: _checked(name, value, flag(name)) for name, value in said.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    """An empty variable is "not said", as a shell has no other way to take one back."""
    said = {}
    for name in _READERS:
        key = variable(name)
        if text := environ.get(key):
            said[name] = _checked(name, text, key, as_text=True)
    return said


def _from_file(path: Path | None, environ: Mapping[str, str]) -> dict[str, object]:
    if path is None and environ.get(CONFIG):
        path = Path(environ[CONFIG])
    told = path is not None
    if path is None:
        path = default_config_file()
    if not told and not path.exists():
        return {}
    table = _toml(path)
    _refuse_unknown(table, str(path))
    return {
        name: _beside(path, name, _checked(name, value, f"`{name}` in {path}"))
        for name, value in table.items()
    }


def default_config_file() -> Path:
    """Where the configuration file is when nobody names another."""
    from platformdirs import user_config_path  # only where it is asked

    return user_config_path("bourn") / "config.toml"


def _toml(path: Path) -> dict[str, object]:
    import tomllib  # only where there is a file

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(
            f"{path} is not TOML: {error}", hint='lines are: name = "value"'
        ) from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8", hint="save it as UTF-8") from None
    except OSError as error:
        hint = f"write that file, or take {CONFIG} back"
        raise SettingsError(f"cannot read {path}: {error.strerror}", hint=hint) from None


def _beside(file: Path, name: str, value: object) -> object:
    """Relative paths in a file start from that file's folder."""
    if isinstance(value, Path):
        return file.parent.absolute() / value
    if name == "chat_template" and isinstance(value, str):
        near = file.parent.absolute() / value
        return str(near) if near.is_file() else value
    return value


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def flag(name: str) -> str:
    """The command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def _refuse_unknown(names: Iterable[str], where: str) -> None:
    from difflib import get_close_matches  # rarely needed

    for name in names:
        if name not in _READERS:
            near = get_close_matches(name, _READERS, 3)
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else f"there are: {', '.join(_READERS)}"
            )
            raise SettingsError(f"there is no setting `{name}`, said in {where}", hint=hint)


# -- what a value may be ---------------------------------------------------------------------------


class _Wrong(ValueError):
    """The value is wrong; the text says what would be right."""


def _checked(name: str, value: object, where: str, *, as_text: bool = False) -> object:
    try:
        return _READERS[name](name, _meaning(name, str(value)) if as_text else value)
    except _Wrong as wrong:
        shown = "of a wrong kind" if name == "api_key" else f"{value!r:.80}"
        raise SettingsError(f"{where} is {shown}", hint=f"give {wrong}") from None


def _meaning(name: str, text: str) -> object:
    """What a variable's text means."""
    read = _FROM_TEXT.get(_READERS[name], str)
    try:
        return read(text)
    except _Wrong:
        raise
    except ValueError:
        return text  # whose kind is then found to be wrong, which says what would be right


def _text(_: str, value: object) -> str:
    if not isinstance(value, str):
        raise _Wrong("a text")
    return value


def _texts(_: str, value: object) -> tuple[str, ...]:
    values = (value,) if isinstance(value, str) else value
    if not isinstance(values, list | tuple):
        raise _Wrong("a text, or a list of texts")
    if not all(isinstance(each, str) and each for each in values):
        raise _Wrong("texts that are not empty")
    return tuple(values)


def _count(_: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _Wrong("a whole number, 1 or more")
    return value


def _whole(name: str, value: object) -> object:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Wrong("a whole number")
    return _within(name, value)


def _number(name: str, value: object) -> object:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _Wrong("a number")
    return _within(name, value)


def _within(name: str, value: float) -> object:
    try:
        Sampling(**{name: value})  # type: ignore[arg-type]  # a whole number where it must be one
    except InvalidRequest as error:
        raise _Wrong(error.hint.removeprefix("give ")) from None
    return value


def _duration(_: str, value: object) -> float:
    """Seconds."""
    import math  # rarely needed
    import re

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(value), re.ASCII)
    if isinstance(value, str | int | float) and not isinstance(value, bool) and match:
        seconds = float(match[1]) * _UNITS[match[2]]
        if math.isfinite(seconds):
            return seconds
    raise _Wrong("seconds, or a time such as 90s, 5m or 1h; 0 is off")


def _one_of(*names: str) -> _Reader:
    def read(_: str, value: object) -> str:
        if value not in names:
            raise _Wrong(f"one of {', '.join(names)}")
        return str(value)

    return read


def _device(_: str, value: object) -> str:
    import re  # rarely needed

    if not isinstance(value, str) or not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value, re.ASCII):
        raise _Wrong("auto, cpu, cuda, mps, or one of several, as in cuda:1")
    return value


def _switch(_: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _Wrong("true or false")
    return value


def _path(_: str, value: object) -> Path:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise _Wrong("a path")
    return _expanded(value)


def _expanded(value: str | os.PathLike[str]) -> Path:
    try:
        return Path(value).expanduser()
    except RuntimeError:  # ~nobody
        raise _Wrong("a path; there is no such user") from None


def _switch_from_text(text: str) -> object:
    return _SWITCHES.get(text.strip().lower(), text)


def _texts_from_text(text: str) -> object:
    """A JSON list of texts, or one text as it is: `[INST]` is a text, `["a", "b"]` is a list."""
    if not text.startswith("["):
        return text
    import json  # only where there is JSON

    try:
        return json.loads(text)
    except ValueError:
        if text.startswith('["'):
            raise _Wrong("a JSON list of texts, or one text") from None
        return text


_Reader = Callable[[str, object], object]

_SAMPLING = tuple(each.name for each in fields(Sampling))

_READERS: Mapping[str, _Reader] = {
    "model": _text,
    "system": _text,
    "max_new_tokens": _count,
    "stop": _texts,
    **dict.fromkeys(_SAMPLING, _number),
    "top_k": _whole,
    "seed": _whole,
    "window": _count,
    "slots": _count,
    "threads": _count,
    "cpu_only": _switch,
    "chat_template": _text,
    "llama_server": _path,
    "keep_alive": _duration,
    "dtype": _one_of("auto", "float32", "bfloat16", "float16"),
    "device": _device,
    "quantization": _one_of("4bit", "8bit"),
    "trust_remote_code": _switch,
    "compile": _switch,
    "api_key": _text,
}

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}

_SWITCHES = {"1": True, "true": True, "yes": True, "on": True}
_SWITCHES |= {"0": False, "false": False, "no": False, "off": False}

_FROM_TEXT: Mapping[_Reader, Callable[[str], object]] = {
    _count: int,
    _whole: int,
    _number: float,
    _switch: _switch_from_text,
    _texts: _texts_from_text,
}
