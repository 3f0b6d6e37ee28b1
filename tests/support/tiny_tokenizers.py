"""Tiny real tokenizers of transformers, each as a well-known family of models has it.

Made here in a few milliseconds, always the same, with fewer than 500 tokens. Each call gives a new
one, which may be changed, and saved with `save_pretrained`. Two kinds of vocabulary are beneath:
bytes that are merged (`chatml`, `llama3` and those after their kind), and SentencePiece's pieces of
text with a token for each byte that they lack (`spm`, `gemma`, `mistral`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.text import tiny

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Most models of today; the marker of a turn's end has a newline after it."""

LLAMA3 = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}"
    "{{ message.content | trim + '<|eot_id|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)
"""It writes the beginning-of-text token itself, and trims what is said."""

GEMMA = (
    "{{ bos_token }}"
    "{% if messages[0].role == 'system' %}"
    "{{ raise_exception('System role not supported') }}"
    "{% endif %}"
    "{% for message in messages %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}"
    "{% endif %}"
    "{% set role = 'model' if message.role == 'assistant' else message.role %}"
    "{{ '<start_of_turn>' + role + '\n' + message.content | trim + '<end_of_turn>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
"""No system message, user and assistant by turns, and a name of its own for the assistant."""

MISTRAL = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant') }}"
    "{% endif %}"
    "{% if message.role == 'user' %}"
    "{{ '[INST] ' + message.content + ' [/INST]' }}"
    "{% else %}"
    "{{ ' ' + message.content + eos_token }}"
    "{% endif %}"
    "{% endfor %}"
)
"""By turns; an answer ends in the end-of-text token, and nothing asks for one."""

TOOLS = (
    "{% if tools %}"
    "{{ '<|im_start|>system\n# Tools\n<tools>' }}"
    "{% for tool in tools %}{{ '\n' + tool | tojson }}{% endfor %}"
    "{{ '\n</tools>\nFor each call, write JSON in its tags:\n<tool_call>\n' }}"
    '{{ \'{"name": <name>, "arguments": <arguments>}\n</tool_call><|im_end|>\n\' }}'
    "{% endif %}"
    "{% for message in messages %}"
    "{% if message.role == 'tool' %}"
    "{{ '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response>' }}"
    "{% else %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content }}"
    "{% for call in message.tool_calls or [] %}"
    '{{ \'\n<tool_call>\n{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{{ (call.function.arguments | tojson) + '}\n</tool_call>' }}"
    "{% endfor %}"
    "{% endif %}"
    "{{ '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}"
    "{{ '<think>\n\n</think>\n\n' }}"
    "{% endif %}"
    "{% endif %}"
)
"""Calls as JSON in tags, as Hermes and Qwen write them; `enable_thinking` switches thinking off."""

THINKING = CHATML.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")
"""The model is made to think: the prompt ends inside its reasoning."""

TWO_TOKENS = (
    "{% for message in messages %}"
    "{{ '<<' + message.role + '>>' + message.content + '<</turn>>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<<assistant>>' }}{% endif %}"
)
"""Its marks are plain text, for which there is no token."""


def chatml() -> PreTrainedTokenizerBase:
    """As Qwen 2 and SmolLM: bytes merged, no beginning-of-text token, `<|im_end|>` ends a turn.

    Its tags for reasoning and calls are tokens, but no special ones: they stay in the text.
    """
    return _wrapped(_byte_level(), CHATML, eos="<|im_end|>", pad="<|endoftext|>")


def llama3() -> PreTrainedTokenizerBase:
    """As Llama 3: both the template and the tokenizer write `<|begin_of_text|>`.

    The tokenizer's own end is `<|end_of_text|>`; that a turn ends in `<|eot_id|>`, only the
    template tells.
    """
    marks = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>")
    backend = _merged((*marks, "<|eot_id|>", "<|python_tag|>", "<|reserved_special_token_0|>"))
    _begin_with(backend, "<|begin_of_text|>")
    return _wrapped(backend, LLAMA3, bos="<|begin_of_text|>", eos="<|end_of_text|>")


def spm(*, prefix_space: bool = True, template: str | None = None) -> PreTrainedTokenizerBase:
    """As Llama 2: SentencePiece, a token for each byte, `<s>` before all; no template of its own.

    prefix_space: whether a space is put before a text and taken off again, so that its first word
    is like any other.
    """
    backend = _pieces(("<s>", "</s>"), prefix_space=prefix_space)
    _begin_with(backend, "<s>")
    return _wrapped(backend, template, bos="<s>", eos="</s>", unk="<unk>")


def gemma() -> PreTrainedTokenizerBase:
    """As Gemma 2: SentencePiece without a space before; the template refuses a system message."""
    backend = _pieces(
        ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"), prefix_space=False
    )
    _begin_with(backend, "<bos>")
    return _wrapped(backend, GEMMA, bos="<bos>", eos="<eos>", pad="<pad>", unk="<unk>")


def mistral() -> PreTrainedTokenizerBase:
    """As Mistral 7B: SentencePiece; the roles must alternate, `</s>` ends a turn."""
    backend = _pieces(("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"), prefix_space=True)
    _begin_with(backend, "<s>")
    return _wrapped(backend, MISTRAL, bos="<s>", eos="</s>", unk="<unk>")


def llama2() -> PreTrainedTokenizerBase:
    """As Llama 2 was first converted: the normalizer puts a space before each text.

    Its template leaves the beginning-of-text token to the tokenizer.
    """
    backend = Tokenizer.from_str(tiny.llama().to_str())
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    _begin_with(backend, "<s>")
    template = MISTRAL.replace("{{ bos_token }}", "")
    return _wrapped(backend, template, bos="<s>", eos="</s>", unk="<unk>")


def t5() -> PreTrainedTokenizerBase:
    """As T5: pieces by their probability, no bytes, and `</s>` put after each text."""
    backend = Tokenizer.from_str(tiny.unigram().to_str())
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>",
        pair="$A </s> $B </s>",
        special_tokens=[("</s>", tiny.number(backend, "</s>"))],
    )
    return _wrapped(backend, None, eos="</s>", unk="<unk>")


def bert() -> PreTrainedTokenizerBase:
    """As BERT: words and their ends, put between `[CLS]` and `[SEP]`."""
    words = ["the", "fox", "jump", "##s", "##ing", "over", "dog", "a", "b", ".", ",", "'", "!"]
    vocabulary = {word: n for n, word in enumerate(["[UNK]", "[CLS]", "[SEP]", *words])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    return _wrapped(backend, None, bos="[CLS]", eos="[SEP]", unk="[UNK]")


def thinking() -> PreTrainedTokenizerBase:
    """As DeepSeek-R1's distillates: the generation prompt ends in `<think>` and a newline."""
    return _wrapped(_byte_level(), THINKING, eos="<|im_end|>", pad="<|endoftext|>")


def tools() -> PreTrainedTokenizerBase:
    """As Qwen 3: a template that shows tools, and reads `enable_thinking`."""
    return _wrapped(_byte_level(), TOOLS, eos="<|im_end|>", pad="<|endoftext|>")


def two_token_marker() -> PreTrainedTokenizerBase:
    """What ends a turn, `<</turn>>`, is several tokens; the tokenizer's end is `<|endoftext|>`."""
    return _wrapped(_merged(("<|endoftext|>",)), TWO_TOKENS, eos="<|endoftext|>")


def no_template() -> PreTrainedTokenizerBase:
    """As GPT-2: a base model, which cannot chat; one token begins, ends, and pads."""
    return _wrapped(_merged(("<|endoftext|>",)), None, bos="<|endoftext|>", eos="<|endoftext|>")


def _wrapped(
    backend: Tokenizer,
    template: str | None,
    *,
    eos: str,
    bos: str | None = None,
    pad: str | None = None,
    unk: str | None = None,
) -> PreTrainedTokenizerBase:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=bos,
        eos_token=eos,
        pad_token=pad,
        unk_token=unk,
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def _byte_level() -> Tokenizer:
    """Bytes, with ChatML's marks, and tags for reasoning and calls that are not special."""
    backend = _merged(("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tags = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    backend.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    return backend


def _merged(special: tuple[str, ...]) -> Tokenizer:
    """A vocabulary of bytes, a few of them merged, and then these special tokens."""
    backend = Tokenizer.from_str(_merged_alone())
    backend.add_special_tokens(list(special))
    return backend


@cache
def _merged_alone() -> str:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(tiny.CORPUS * 3, trainer)
    return backend.to_str()


def _pieces(special: tuple[str, ...], *, prefix_space: bool) -> Tokenizer:
    """SentencePiece's pieces and bytes, as transformers writes them since Llama's second form."""
    backend = Tokenizer.from_str(_pieces_alone())
    undo: list[decoders.Decoder] = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if prefix_space:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        undo.append(decoders.Strip(" ", 1, 0))
    else:
        backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence(undo)
    backend.add_special_tokens(["<unk>", *special])
    return backend


@cache
def _pieces_alone() -> str:
    trained = tiny.llama(prefix_space=False)
    backend = Tokenizer.from_str(trained.to_str())
    backend.normalizer = None
    return backend.to_str()


def _begin_with(backend: Tokenizer, bos: str) -> None:
    """The tokenizer adds this before each text."""
    backend.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A",
        pair=f"{bos} $A {bos} $B",
        special_tokens=[(bos, tiny.number(backend, bos))],
    )
