"""Chat templates by name, as Jinja text, for models that carry none.

llama.cpp knows templates by name too, but only without its Jinja engine; with it, which tools and
template variables need, any name but `chatml` is silently taken for the text of a template: the
whole prompt is then the word "llama3". So every name here stands for a text of our own, the same
for all engines. The beginning-of-text token is left to the template where a family has one, and is
there once: llama.cpp takes it off when its tokenizer adds it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from bourn.catalog.places import expanded
from bourn.errors import TemplateError

Around = tuple[str, str]
"""What is written before a message's text, and after it."""


@dataclass(frozen=True, slots=True)
class Turns:
    """How a family of models writes a conversation. `{bos}` and `{eos}` stand for the tokens.

    reply: what makes the model answer. folds: a system message goes into the next user turn.
    opening: what all begins with. preamble: written where there is no system message.
    """

    system: Around
    user: Around
    assistant: Around
    reply: str = ""
    folds: bool = False
    opening: str = ""
    preamble: str = ""

    def jinja(self) -> str:
        """The chat template that writes it so."""
        return "".join(
            (
                "{%- set ns = namespace(system='') -%}" if self.folds else "",
                _written(self.opening),
                _when(_NO_SYSTEM, _written(self.preamble)),
                "{%- for message in messages -%}",
                _when(
                    "message.role in ['system', 'developer']",
                    self._folded() if self.folds else _written(*self.system, content=_CONTENT),
                    "message.role == 'user'",
                    self._user(_CONTENT),
                    "message.role == 'assistant'",
                    _written(*self.assistant, content=_CONTENT),
                    "true",
                    "{{- raise_exception('this template has no role ' ~ message.role) -}}",
                ),
                "{%- endfor -%}",
                _when("ns.system", self._user("''")) if self.folds else "",
                _when("add_generation_prompt", _written(self.reply)),
            )
        )

    def _folded(self) -> str:
        before, after = map(_quoted, self.system)
        return "{%- set ns.system = ns.system ~ " + f"{before} ~ {_CONTENT} ~ {after}" + " -%}"

    def _user(self, content: str) -> str:
        if not self.folds:
            return _written(*self.user, content=content)
        return _written(*self.user, content=f"ns.system ~ {content}") + "{%- set ns.system = '' -%}"


_CONTENT = "(message.content or '')"
_NO_SYSTEM = "messages[0].role not in ['system', 'developer']"


def _when(*cases: str) -> str:
    """Jinja that gives what follows the first condition that holds; nothing for nothing."""
    pairs = list(zip(cases[::2], cases[1::2], strict=True))
    if not any(then for _, then in pairs):
        return ""
    words = ["if", *["elif"] * len(pairs)]
    chain = "".join(
        "{%- " + f"{word} {condition}" + " -%}" + then
        for word, (condition, then) in zip(words, pairs, strict=False)
    )
    return chain + "{%- endif -%}"


def _written(before: str, after: str = "", *, content: str = "") -> str:
    parts = [_quoted(before) if before else "", content, _quoted(after) if after else ""]
    said = " ~ ".join(filter(None, parts))
    return "{{- " + said + " -}}" if said else ""


def _quoted(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    for token in ("bos", "eos"):
        quoted = quoted.replace("{" + token + "}", f"\" ~ ({token}_token or '') ~ \"")
    return quoted


def _marked(before: str, after: str, *, opening: str = "") -> Turns:
    """A family that marks each turn in the same way; ROLE stands for the role."""
    system, user, reply = (before.replace("ROLE", role) for role in ("system", "user", "assistant"))
    return Turns((system, after), (user, after), (reply, after), reply, opening=opening)


def _mistral(
    user: Around, space: str, system: Around = ("", "\n\n"), *, folds: bool = True
) -> Turns:
    """Mistral's families, in which the model answers after the user's closing mark."""
    return Turns(system, user, (space, "</s>"), folds=folds, opening="{bos}")


_MISTRAL_V3 = _mistral(("[INST] ", "[/INST]"), " ")

FAMILIES: Mapping[str, Turns] = {
    "alpaca": Turns(
        ("", "\n\n"),
        ("### Instruction:\n", "\n\n"),
        ("### Response:\n", "\n\n"),
        "### Response:\n",
        opening="{bos}",
        preamble="Below is an instruction that describes a task. Write a response that "
        "appropriately completes the request.\n\n",
    ),
    "chatglm4": _marked("<|ROLE|>\n", "", opening="[gMASK]<sop>"),
    "chatml": _marked("<|im_start|>ROLE\n", "<|im_end|>\n"),
    "command-r": Turns(
        ("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        opening="{bos}",
    ),
    "deepseek": Turns(
        ("", ""),
        ("### Instruction:\n", "\n"),
        ("### Response:\n", "\n<|EOT|>\n"),
        "### Response:\n",
        opening="{bos}",
    ),
    "deepseek2": Turns(
        ("", "\n\n"),
        ("User: ", "\n\n"),
        ("Assistant: ", "{eos}"),
        "Assistant:",
        opening="{bos}",
    ),
    "deepseek3": Turns(
        ("", ""),
        ("<\uff5cUser\uff5c>", ""),
        ("<\uff5cAssistant\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
        "<\uff5cAssistant\uff5c>",
        opening="{bos}",
    ),
    "exaone3": Turns(
        ("[|system|]", "[|endofturn|]\n"),
        ("[|user|]", "\n"),
        ("[|assistant|]", "[|endofturn|]\n"),
        "[|assistant|]",
    ),
    "gemma": Turns(
        ("", "\n\n"),
        ("<start_of_turn>user\n", "<end_of_turn>\n"),
        ("<start_of_turn>model\n", "<end_of_turn>\n"),
        "<start_of_turn>model\n",
        folds=True,
        opening="{bos}",
    ),
    "granite": _marked("<|start_of_role|>ROLE<|end_of_role|>", "<|end_of_text|>\n"),
    "llama2": Turns(
        ("<<SYS>>\n", "\n<</SYS>>\n\n"),
        ("[INST] ", " [/INST]"),
        (" ", " </s><s>"),
        folds=True,
        opening="{bos}",
    ),
    "llama3": _marked(
        "<|start_header_id|>ROLE<|end_header_id|>\n\n", "<|eot_id|>", opening="{bos}"
    ),
    "llama4": _marked("<|header_start|>ROLE<|header_end|>\n\n", "<|eot|>", opening="{bos}"),
    "mistral": _MISTRAL_V3,
    "mistral-v1": _mistral((" [INST] ", " [/INST]"), " "),
    "mistral-v3": _MISTRAL_V3,
    "mistral-v3-tekken": _mistral(("[INST]", "[/INST]"), ""),
    "mistral-v7": _mistral(
        ("[INST] ", "[/INST]"), " ", ("[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"), folds=False
    ),
    "mistral-v7-tekken": _mistral(
        ("[INST]", "[/INST]"), "", ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"), folds=False
    ),
    "openchat": Turns(
        ("", "<|end_of_turn|>"),
        ("GPT4 Correct User: ", "<|end_of_turn|>"),
        ("GPT4 Correct Assistant: ", "<|end_of_turn|>"),
        "GPT4 Correct Assistant:",
        opening="{bos}",
    ),
    "phi3": _marked("<|ROLE|>\n", "<|end|>\n"),
    "phi4": _marked("<|im_start|>ROLE<|im_sep|>", "<|im_end|>"),
    "vicuna": Turns(
        ("", " "),
        ("USER: ", " "),
        ("ASSISTANT: ", "</s>"),
        "ASSISTANT:",
        opening="{bos}",
        preamble="A chat between a curious user and an artificial intelligence assistant. The "
        "assistant gives helpful, detailed, and polite answers to the user's questions. ",
    ),
    "zephyr": _marked("<|ROLE|>\n", "{eos}\n"),
}

NAMES: tuple[str, ...] = tuple(FAMILIES)
"""What `--chat-template` takes besides a file."""


def template(name_or_file: str) -> str:
    """The Jinja text that a name or a file stands for; Jinja text itself stays as it is.

    Raises:
        TemplateError: there is no such name and no such file, or the file cannot be used.
    """
    if name_or_file in FAMILIES:
        return FAMILIES[name_or_file].jinja()
    if "{{" in name_or_file or "{%" in name_or_file:
        return name_or_file
    if path := _existing(name_or_file):
        return _from_file(path)
    near = get_close_matches(name_or_file.lower(), NAMES, 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"a file, or of: {', '.join(NAMES)}"
    raise TemplateError(f"there is no chat template `{name_or_file}`", hint=hint)


def _existing(name: str) -> Path | None:
    path = expanded(name)
    try:
        return path if name and path.exists() else None
    except OSError:  # longer than a name can be
        return None


def _from_file(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise TemplateError(f"{path} is not text in UTF-8", hint="give a Jinja file") from None
    except OSError as error:
        raise TemplateError(f"cannot read {path}: {error.strerror}") from None
    if "{{" not in text and "{%" not in text:
        raise TemplateError(f"{path} is no chat template", hint="it has no Jinja in it: {{ … }}")
    return text


_CALLED: tuple[tuple[str, str], ...] = (
    ("qwen", "chatml"),
    ("smollm", "chatml"),
    ("hermes", "chatml"),
    ("llama-3", "llama3"),
    ("llama 3", "llama3"),
    ("llama4", "llama4"),
    ("llama-2", "llama2"),
    ("llama 2", "llama2"),
    ("mistral", "mistral"),
    ("mixtral", "mistral-v1"),
    ("gemma", "gemma"),
    ("phi3", "phi3"),
    ("phi-3", "phi3"),
    ("phi-4", "phi4"),
    ("alpaca", "alpaca"),
    ("vicuna", "vicuna"),
    ("zephyr", "zephyr"),
    ("openchat", "openchat"),
    ("granite", "granite"),
    ("chatglm", "chatglm4"),
    ("exaone", "exaone3"),
    ("command-r", "command-r"),
    ("deepseek2", "deepseek3"),
    ("deepseek", "deepseek"),
)


def proposal(name: str, architecture: str) -> str | None:
    """A guess at the template of a model that carries none, by what it is called."""
    called = (name.lower(), architecture.lower())
    guesses = (family for word in called for part, family in _CALLED if part in word)
    return next(guesses, None)
