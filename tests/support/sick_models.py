"""Small made models, each with one thing wrong; and the healthy one that they are made of.

All are real: transformers loads them in a moment, and asked anything they say "hi", then what ends
a turn, then the same for ever unless something ends it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bourn.engines.hf.weights.quiet import quietly
from tests.support import tiny_tokenizers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WINDOW = 512


def healthy(folder: Path) -> Path:
    """As Qwen and SmolLM are: nothing is wrong with it."""
    return written(folder, "chatml")


def written(folder: Path, tokens: str, says: str | None = None) -> Path:
    """A model with the tokenizer of that name (see `tiny_tokenizers`), all files agreeing.

    says: another text than "hi" and its end.
    """
    folder.mkdir(parents=True)
    for name, content in _made(tokens, says).items():
        (folder / name).write_bytes(content)
    return folder


def rigged(vocabulary: int, says: Sequence[int]) -> LlamaForCausalLM:
    """A tiny Llama that goes from each of these tokens to the next, and from the last to the first.

    From any other token it goes to the first. Each is to be there once.
    """
    width = -(-vocabulary // 8) * 8
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=WINDOW,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    following = dict(zip(says, (*says[1:], says[0]), strict=True))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(vocabulary, width))
        head = torch.zeros(vocabulary, width)
        for token in range(vocabulary):
            head[following.get(token, says[0]), token] = 1.0
        model.lm_head.weight.copy_(head)
    return model


@cache
def _made(tokens: str, text: str | None) -> Mapping[str, bytes]:
    """The files of such a model, by their names."""
    tokenizer: PreTrainedTokenizerBase = getattr(tiny_tokenizers, tokens)()
    end = tokenizer.eos_token_id
    says = tokenizer(text or "\nhi", add_special_tokens=False).input_ids
    says += [end] * (text is None)
    tokenizer.model_max_length = WINDOW
    with TemporaryDirectory() as folder, quietly():
        tokenizer.save_pretrained(folder)
        rigged(len(tokenizer), says).save_pretrained(folder)
        here = Path(folder)
        edit(here, "config.json", eos_token_id=end)
        edit(here, "generation_config.json", eos_token_id=end)
        return {file.name: file.read_bytes() for file in here.iterdir()}


def edit(folder: Path, name: str, /, **fields: Any) -> Path:
    """Fields of a JSON file set, or taken out by None."""
    file = folder / name
    told = (json.loads(file.read_text()) if file.exists() else {}) | fields
    file.write_text(json.dumps({name: each for name, each in told.items() if each is not None}))
    return folder


def templated(folder: Path, template: str | None) -> Path:
    """With this chat template, or with none."""
    file = folder / "chat_template.jinja"
    file.unlink() if template is None else file.write_text(template)
    return folder


def id_of(folder: Path, token: str) -> int:
    """A special token's id."""
    told = json.loads((folder / "tokenizer.json").read_text())
    ids: dict[str, int] = {each["content"]: each["id"] for each in told["added_tokens"]}
    return ids[token]


# -- where it ends and begins ----------------------------------------------------------------------


def ends_elsewhere(folder: Path) -> Path:
    """Its generation config names an end token, but not the one that its template writes."""
    healthy(folder)
    return edit(folder, "generation_config.json", eos_token_id=id_of(folder, "<|endoftext|>"))


def ends_nowhere(folder: Path) -> Path:
    """Its generation config names no end token at all."""
    return edit(healthy(folder), "generation_config.json", eos_token_id=None)


def ends_by_its_tokenizer_alone(folder: Path) -> Path:
    """Without a template, and with an end token that its generation config does not know."""
    return templated(ends_elsewhere(folder), None)


def ends_for_nobody(folder: Path) -> Path:
    """Without a template, and with no end token but the tokenizer's."""
    return templated(ends_nowhere(folder), None)


def has_no_end(folder: Path) -> Path:
    """Nobody names an end token, and no mark ends a turn."""
    edit(healthy(folder), "generation_config.json", eos_token_id=None)
    edit(folder, "tokenizer_config.json", eos_token=None)
    edit(folder, "config.json", eos_token_id=None)
    says = "{% for message in messages %}{{ message.role + ': ' + message.content + '\n' }}"
    return templated(folder, says + "{% endfor %}")


def ends_beyond(folder: Path) -> Path:
    """Its end token was taken from a larger vocabulary."""
    return edit(healthy(folder), "config.json", eos_token_id=151645)


def ends_in_text(folder: Path) -> Path:
    """What ends a turn is several tokens."""
    written(folder, "two_token_marker", "hi[end]")
    return templated(folder, tiny_tokenizers.TWO_TOKENS.replace("<</turn>>", "[end]"))


def begins_twice(folder: Path) -> Path:
    """Both the template and the tokenizer write the beginning-of-text token."""
    return written(folder, "mistral")


def begins_twice_alone(folder: Path) -> Path:
    """The template writes it twice."""
    return templated(begins_twice(folder), "{{ bos_token }}" + tiny_tokenizers.MISTRAL)


def begins_nowhere(folder: Path) -> Path:
    """The tokenizer writes it before each text, the template does not."""
    return templated(begins_twice(folder), tiny_tokenizers.MISTRAL.replace("{{ bos_token }}", ""))


def pads_with_end(folder: Path) -> Path:
    return edit(healthy(folder), "tokenizer_config.json", pad_token="<|im_end|>")


# -- its template ----------------------------------------------------------------------------------


def has_no_template(folder: Path) -> Path:
    return templated(healthy(folder), None)


def never_asks(folder: Path) -> Path:
    """The template has no generation prompt."""
    asks = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    return templated(healthy(folder), tiny_tokenizers.CHATML.replace(asks, ""))


def refuses_system(folder: Path) -> Path:
    return written(folder, "gemma")


def drops_system(folder: Path) -> Path:
    """A system message is passed over in silence."""
    spoken = "{% if message.role != 'system' %}" + _TURN + "{% endif %}"
    return templated(healthy(folder), tiny_tokenizers.CHATML.replace(_TURN, spoken))


_TURN = "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"


def takes_one_turn(folder: Path) -> Path:
    refuses = "{% if messages | length > 1 %}{{ raise_exception('one at a time') }}{% endif %}"
    return templated(healthy(folder), refuses + tiny_tokenizers.CHATML)


def is_no_jinja(folder: Path) -> Path:
    return templated(healthy(folder), tiny_tokenizers.CHATML + "{% endfor %}")


def leaves_question_out(folder: Path) -> Path:
    return templated(healthy(folder), "<|im_start|>user\n<|im_end|>\n")


# -- its settings ----------------------------------------------------------------------------------


def cuts_short(folder: Path) -> Path:
    """A `max_length` that counts the prompt too."""
    return edit(healthy(folder), "generation_config.json", max_length=20)


def cuts_in_two_ways(folder: Path) -> Path:
    return edit(healthy(folder), "generation_config.json", max_length=200, max_new_tokens=100)


def draws_at_zero(folder: Path) -> Path:
    """Temperature 0 and yet to be drawn: transformers refuses that."""
    return edit(healthy(folder), "generation_config.json", do_sample=True, temperature=0.0)


def draws_wildly(folder: Path) -> Path:
    wild = {"do_sample": True, "temperature": 1.9, "top_p": 0.01, "repetition_penalty": 1.8}
    return edit(healthy(folder), "generation_config.json", **wild)


# -- its weights and positions ---------------------------------------------------------------------


def knows_more_than_it_has(folder: Path) -> Path:
    """A token was added to the tokenizer, and no row to the embeddings."""
    told = json.loads((healthy(folder) / "tokenizer.json").read_text())
    newest = {**told["added_tokens"][-1], "id": 327, "content": "<|new|>"}
    return edit(folder, "tokenizer.json", added_tokens=[*told["added_tokens"], newest])


def says_another_size(folder: Path) -> Path:
    return edit(healthy(folder), "config.json", vocab_size=4000)


def has_a_short_window(folder: Path) -> Path:
    """The tokenizer allows more than the model can hold."""
    return edit(healthy(folder), "tokenizer_config.json", model_max_length=4 * WINDOW)


def stretches_by_batch(folder: Path) -> Path:
    """Rotary positions that depend on the longest row of a batch."""
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    return edit(healthy(folder), "config.json", rope_parameters=rope)


# -- its files -------------------------------------------------------------------------------------


def is_pickled(folder: Path) -> Path:
    """Pickles only, as before safetensors. (It is none: nothing here opens it.)"""
    (healthy(folder) / "model.safetensors").rename(folder / "pytorch_model.bin")
    return folder


def is_pickled_too(folder: Path) -> Path:
    (healthy(folder) / "training_args.bin").write_bytes(b"\x80")
    return folder


def is_cut_short(folder: Path) -> Path:
    """The download broke off."""
    weights = healthy(folder) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    return folder


def brings_code(folder: Path) -> Path:
    own = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.Own"}
    return edit(healthy(folder), "config.json", auto_map=own)
