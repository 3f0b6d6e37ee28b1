"""Tiny real tokenizers, trained here: the kinds that a streaming decoder can stumble over."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. The end. Next, the fox.",
    "a    b\n\n    four spaces, a\ttab, and “curly” quotes — all of it; don't.",
    "สวัสดีครับ ยินดีต้อนรับ สวัสดีค่ะ",
    "안녕하세요 거북이를 묘사하십시오 안녕",
    "以遐为开头的词语有哪些？",  # noqa: RUF001
    "🔥👩‍👩‍👧‍👦🇫🇷 🔥🔥 👍🏽",
    "\ufffd? ABCDEFGHIJKLMNOPQRSTUVWXYZ abcdefghijklmnopqrstuvwxyz 0123456789",
]

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@cache
def byte_level(size: int = 340) -> Tokenizer:
    """As GPT-2, Llama 3, Qwen: the vocabulary is of bytes, and a token may end inside a letter."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer


@cache
def llama(*, prefix_space: bool = True) -> Tokenizer:
    """As Llama 2 and Mistral 7B: words begin with ▁, and letters it does not know are bytes."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(
        vocab_size=150, special_tokens=["<unk>", "</s>"], show_progress=False
    )
    trained.train_from_iterator(CORPUS[:2] * 3, trainer)
    model = json.loads(trained.to_str())["model"]
    vocab = {**model["vocab"], **{byte: len(model["vocab"]) + i for i, byte in enumerate(BYTES)}}
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", "▁")]
    undo: list[decoders.Decoder] = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if prefix_space:
        steps.insert(0, normalizers.Prepend("▁"))
        undo.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(undo)
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


@cache
def unigram(*, prefix_space: bool = True) -> Tokenizer:
    """As T5 and Gemma: pieces of text, found by their probability."""
    scheme = "always" if prefix_space else "never"
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    trainer = trainers.UnigramTrainer(
        vocab_size=300, unk_token="<unk>", special_tokens=["<unk>", "</s>"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer


def decoder(tokenizer: Tokenizer) -> Callable[[Sequence[int]], str]:
    """One-shot decoding, without control tokens."""
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True))


def token(tokenizer: Tokenizer, number: int) -> str:
    spelled = tokenizer.id_to_token(number)
    assert spelled is not None
    return spelled


def number(tokenizer: Tokenizer, spelled: str) -> int:
    found = tokenizer.token_to_id(spelled)
    assert found is not None
    return found
