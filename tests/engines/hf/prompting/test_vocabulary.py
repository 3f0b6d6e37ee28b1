from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import AddedToken, decoders

from bourn.engines.hf.prompting.vocabulary import Vocabulary, marks_of
from bourn.text.detokenize import ByteDetokenizer, Detokenizer
from tests.support import tiny_tokenizers as tiny

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEXTS = [
    "The quick brown fox. The end. Next, don't",
    "a    b",
    "  two spaces before",
    "สวัสดีครับ",
    "answer with 🔥👩‍👩‍👧‍👦🇫🇷 now",
    "prefix \ufffd after",
    "nul \0 and “quotes”\n\n\tend",
    "",
]


def byt5() -> PreTrainedTokenizerBase:
    """A slow one, made of Python alone: a token for each byte."""
    from transformers import ByT5Tokenizer

    return ByT5Tokenizer()


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "chatml": tiny.chatml,
    "llama3": tiny.llama3,
    "llama2": tiny.llama2,
    "spm": tiny.spm,
    "spm, no prefix": lambda: tiny.spm(prefix_space=False),
    "t5": tiny.t5,
    "byt5": byt5,
}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    return TOKENIZERS[str(request.param)]()


def number(tokenizer: PreTrainedTokenizerBase, name: str) -> int:
    found = tokenizer.get_vocab()[name]
    assert isinstance(found, int)
    return found


def stream(detokenizer: Detokenizer, ids: Sequence[int]) -> str:
    return "".join([*(detokenizer.feed((token,)) for token in ids), detokenizer.flush()])


def decoded(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    return str(
        tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    )


# -- text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_the_stream_is_what_the_tokenizer_decodes(
    tokenizer: PreTrainedTokenizerBase, text: str
) -> None:
    vocabulary = Vocabulary(tokenizer)
    ids = vocabulary.encode(text)
    assert stream(vocabulary.detokenizer(), ids) == decoded(tokenizer, ids)


@pytest.mark.parametrize("text", TEXTS)
def test_after_a_prompt_only_what_is_new(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    vocabulary = Vocabulary(tokenizer)
    prompt, ids = vocabulary.encode_raw("What does the fox say?"), vocabulary.encode(text)
    whole = decoded(tokenizer, [*prompt, *ids])
    given = stream(vocabulary.detokenizer(prompt), ids)
    assert given == whole.removeprefix(decoded(tokenizer, prompt))


def test_the_first_space_of_all_is_taken_off_and_no_other() -> None:
    tokenizer = tiny.spm()
    vocabulary = Vocabulary(tokenizer)
    begin, fox = number(tokenizer, "<s>"), vocabulary.encode("fox")
    assert vocabulary.token(fox[0]).startswith(" ")
    assert stream(vocabulary.detokenizer([begin]), [*fox, *fox]) == "fox fox"
    assert stream(vocabulary.detokenizer([begin, *fox, begin]), fox) == " fox"


def test_where_no_space_is_put_before_a_text_none_is_taken_off() -> None:
    vocabulary = Vocabulary(tiny.spm(prefix_space=False))
    assert stream(vocabulary.detokenizer(), vocabulary.encode(" fox")) == " fox"


def test_words_are_set_apart_by_their_decoder() -> None:
    tokenizer = tiny.bert()
    vocabulary = Vocabulary(tokenizer)
    prompt, ids = vocabulary.encode("the fox"), vocabulary.encode("jumps over the dog.")
    assert stream(vocabulary.detokenizer(prompt), ids) == " jumps over the dog."
    assert [vocabulary.token(token) for token in ids[:2]] == [" jump", "s"]


@pytest.mark.parametrize("inside", [1, 2])
@pytest.mark.parametrize("kind", ["chatml", "spm", "spm, no prefix", "byt5"])
def test_a_prompt_that_ends_inside_a_character(kind: str, inside: int) -> None:
    vocabulary = Vocabulary(TOKENIZERS[kind]())
    ids = vocabulary.encode("Hello world 🌶 is hot")
    end = len(vocabulary.encode("Hello world ")) + inside
    assert stream(vocabulary.detokenizer(ids[:end]), ids[end:]) == "🌶 is hot"


@pytest.mark.parametrize("kind", ["chatml", "spm"])
def test_a_character_that_the_prompt_leaves_unfinished_for_ever_is_not_the_answers(
    kind: str,
) -> None:
    vocabulary = Vocabulary(TOKENIZERS[kind]())
    prompt = vocabulary.encode("the 🌶")[:-1]
    x = vocabulary.encode("x")[-1:]
    assert stream(vocabulary.detokenizer(prompt), x) == "x"
    assert stream(vocabulary.detokenizer(prompt), []) == ""


def test_a_character_that_the_limit_cuts_off_is_one_replacement() -> None:
    for kind in ("chatml", "spm"):
        vocabulary = Vocabulary(TOKENIZERS[kind]())
        assert stream(vocabulary.detokenizer(), vocabulary.encode("x🌶")[:-1]) == "x\ufffd"


def test_bytes_are_used_where_tokens_stand_for_their_own() -> None:
    for kind in ("chatml", "llama3", "spm, no prefix"):
        assert isinstance(Vocabulary(TOKENIZERS[kind]()).detokenizer(), ByteDetokenizer)


def test_a_character_comes_with_its_last_byte() -> None:
    vocabulary = Vocabulary(tiny.spm())
    detokenizer = vocabulary.detokenizer()
    given = [detokenizer.feed((token,)) for token in vocabulary.encode("x🌶")]
    assert given[-4:] == ["", "", "", "🌶"]


# -- control tokens --------------------------------------------------------------------------------


def test_control_tokens_vanish(tokenizer: PreTrainedTokenizerBase) -> None:
    vocabulary = Vocabulary(tokenizer)
    word = vocabulary.encode("fox")
    ids = [token for special in tokenizer.all_special_ids for token in (special, *word)]
    assert stream(vocabulary.detokenizer(word), ids) == decoded(tokenizer, [*word, *ids])[3:]
    assert stream(vocabulary.detokenizer(word), tokenizer.all_special_ids) == ""


def test_special_tokens_without_a_role_vanish_too() -> None:
    tokenizer = tiny.llama3()
    vocabulary = Vocabulary(tokenizer)
    ids = vocabulary.encode("a<|eot_id|><|reserved_special_token_0|>b")
    assert stream(vocabulary.detokenizer(), ids) == "ab"


@pytest.mark.parametrize(
    "name", ["<unused7>", "<|reserved_12|>", "[unused3]", "<|reserved token 5|>"]
)
def test_free_rows_vanish_though_nobody_says_that_they_are_special(name: str) -> None:
    tokenizer = tiny.chatml()
    tokenizer.add_tokens([AddedToken(name, special=False)])
    vocabulary = Vocabulary(tokenizer)
    assert stream(vocabulary.detokenizer(), vocabulary.encode(f"a{name}b")) == "ab"


def test_ids_that_are_no_tokens_vanish() -> None:
    vocabulary = Vocabulary(tiny.chatml())
    assert stream(vocabulary.detokenizer([vocabulary.size]), [vocabulary.size + 1, -1]) == ""
    assert vocabulary.token(vocabulary.size) == ""
    assert vocabulary.token_bytes(-1) == b""


def test_added_tokens_that_are_not_special_stay() -> None:
    vocabulary = Vocabulary(tiny.chatml())
    ids = vocabulary.encode("<think>Why?</think>Because.<|im_end|>")
    assert stream(vocabulary.detokenizer(), ids) == "<think>Why?</think>Because."


def test_control_tokens_that_marks_are_made_of_stay() -> None:
    tokenizer = tiny.chatml()
    special = ["<|channel>", "<channel|>", "<|turn>"]
    tokenizer.add_tokens([AddedToken(text, special=True) for text in special])
    marks = marks_of("<|channel>thought\n<channel|>")
    vocabulary = Vocabulary(tokenizer, marks=marks)
    ids = vocabulary.encode("<|channel>thought\nWhy?<channel|>So.<|turn><|im_end|>")
    given = stream(vocabulary.detokenizer(), ids)
    assert given == "<|channel>thought\nWhy?<channel|>So."


@pytest.mark.parametrize(
    ("template", "some"),
    [
        (tiny.TOOLS, {"<think>", "</think>", "<tool_call>", "</tool_call>"}),
        ("[TOOL_CALLS] [THINK]", {"[TOOL_CALLS]", "[THINK]", "[/THINK]"}),
        ("<|channel|>", {"<|channel|>", "<|message|>", "<|start|>", "<|end|>"}),
        (tiny.CHATML, set()),
        (None, set()),
    ],
)
def test_the_marks_are_those_of_the_templates_family(template: str | None, some: set[str]) -> None:
    marks = marks_of(template)
    assert marks >= some
    assert bool(marks) == bool(some)


def test_a_mark_is_seen_as_its_text_where_words_begin_with_a_bar() -> None:
    tokenizer = tiny.spm()
    tokenizer.add_tokens([AddedToken("<calls▁begin>", special=True)])
    vocabulary = Vocabulary(tokenizer, marks=["<calls▁begin>"])
    ids = [number(tokenizer, "<calls▁begin>")]
    assert stream(vocabulary.detokenizer(vocabulary.encode("fox")), ids) == "<calls▁begin>"


# -- single tokens ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["chatml", "spm", "t5"])
def test_tokens_joined_are_the_text(kind: str) -> None:
    vocabulary = Vocabulary(TOKENIZERS[kind]())
    text = "the fox 🔥 end" if kind != "t5" else "the fox end"
    ids = vocabulary.encode(text)
    assert b"".join(map(vocabulary.token_bytes, ids)).decode().lstrip() == text


def test_parts_of_a_character_are_written_out() -> None:
    vocabulary = Vocabulary(tiny.spm())
    ids = vocabulary.encode("🔥")[-4:]
    assert [vocabulary.token(token) for token in ids] == ["\\xf0", "\\x9f", "\\x94", "\\xa5"]
    assert b"".join(map(vocabulary.token_bytes, ids)) == "🔥".encode()


def test_text_and_a_part_of_a_character_in_one_token() -> None:
    vocabulary = Vocabulary(tiny.chatml())
    mixed = [
        token
        for token in range(vocabulary.size)
        if vocabulary.token_bytes(token)[:1] == b" " and "\\x" in vocabulary.token(token)
    ]
    assert mixed
    token = vocabulary.token(mixed[0])
    assert token.startswith(" \\x")


def test_control_tokens_have_their_names() -> None:
    tokenizer = tiny.llama3()
    vocabulary = Vocabulary(tokenizer)
    end = number(tokenizer, "<|eot_id|>")
    assert vocabulary.token(end) == "<|eot_id|>"
    assert vocabulary.token_bytes(end) == b"<|eot_id|>"


def test_a_byte_keeps_its_value_where_tokens_depend_on_each_other() -> None:
    tokenizer = tiny.spm()
    steps = [decoders.ByteFallback(), decoders.Metaspace()]
    tokenizer.backend_tokenizer.decoder = decoders.Sequence(steps)
    vocabulary = Vocabulary(tokenizer)
    ids = vocabulary.encode("🔥")[-4:]
    assert b"".join(map(vocabulary.token_bytes, ids)) == "🔥".encode()
    assert not isinstance(vocabulary.detokenizer(), ByteDetokenizer)


# -- encoding --------------------------------------------------------------------------------------


def test_nothing_is_added_to_a_rendered_text(tokenizer: PreTrainedTokenizerBase) -> None:
    vocabulary = Vocabulary(tokenizer)
    assert vocabulary.encode("the fox") == tokenizer.encode("the fox", add_special_tokens=False)


@pytest.mark.parametrize(
    ("kind", "begin"), [("llama3", "<|begin_of_text|>"), ("llama2", "<s>"), ("spm", "<s>")]
)
def test_a_raw_prompt_begins_once(kind: str, begin: str) -> None:
    tokenizer = TOKENIZERS[kind]()
    vocabulary = Vocabulary(tokenizer)
    one = number(tokenizer, begin)
    assert vocabulary.encode_raw("the fox") == tokenizer.encode("the fox")
    for text in ("the fox", f"{begin}the fox", ""):
        ids = vocabulary.encode_raw(text)
        assert ids[0] == one
        assert ids.count(one) == 1


def test_a_raw_prompt_does_not_end() -> None:
    for tokenizer in (tiny.t5(), tiny.bert(), byt5()):
        vocabulary = Vocabulary(tokenizer)
        whole = tokenizer.encode("the fox")
        assert vocabulary.encode_raw("the fox") == whole[:-1]
        assert whole[-1] == tokenizer.eos_token_id


def test_an_encoder_reads_a_whole_text() -> None:
    tokenizer = tiny.t5()
    vocabulary = Vocabulary(tokenizer, closes=True)
    assert vocabulary.encode_raw("the fox") == tokenizer.encode("the fox")
    assert vocabulary.encode("the fox") == tokenizer.encode("the fox")[:-1]


def test_an_end_that_a_setting_adds_is_left_out() -> None:
    tokenizer = tiny.chatml()
    tokenizer.add_eos_token = True
    assert tokenizer.encode("fox")[-1] == tokenizer.eos_token_id
    vocabulary = Vocabulary(tokenizer)
    assert tokenizer.eos_token_id not in vocabulary.encode_raw("fox")


def test_a_truncation_saved_with_the_tokenizer_cuts_no_prompt() -> None:
    for own in (True, False):
        tokenizer = tiny.chatml()
        tokenizer.backend_tokenizer.enable_truncation(4)
        tokenizer.backend_tokenizer.enable_padding(length=64)
        vocabulary = Vocabulary(tokenizer, own=own)
        assert len(vocabulary.encode("The quick brown fox")) > 4
        assert len(vocabulary.encode("T")) == 1


def test_a_tokenizer_that_others_use_is_left_as_it_is() -> None:
    tokenizer = tiny.chatml()
    tokenizer.backend_tokenizer.enable_truncation(4)
    Vocabulary(tokenizer)
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 4


def test_the_size_is_above_all_ids() -> None:
    tokenizer = tiny.llama3()
    assert Vocabulary(tokenizer).size == len(tokenizer)
    assert max(tokenizer.get_vocab().values()) == Vocabulary(tokenizer).size - 1


# -- unusual tokenizers ----------------------------------------------------------------------------


class Shouting:
    """A decoder in Python, as some tokenizers have one."""

    def decode(self, tokens: list[str]) -> str:
        return "".join(self.decode_chain(tokens))

    def decode_chain(self, tokens: list[str]) -> list[str]:
        return [token.replace("Ġ", " ").upper() for token in tokens]


def test_a_decoder_in_python_is_used_as_it_is() -> None:
    tokenizer = tiny.chatml()
    tokenizer.backend_tokenizer.decoder = decoders.Decoder.custom(Shouting())
    vocabulary = Vocabulary(tokenizer)
    ids = vocabulary.encode("the fox")
    assert stream(vocabulary.detokenizer(), ids) == "THE FOX"
    assert vocabulary.token(ids[-1]).isupper()


def test_a_vocabulary_that_lacks_common_letters() -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE({"x": 0, "y": 1}, []))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<e>")
    vocabulary = Vocabulary(tokenizer)
    assert vocabulary.before == ()
    assert vocabulary.encode_raw("xay") == [0, 1]
    assert stream(vocabulary.detokenizer(), [0, 1, 2]) == "x y"


def test_no_decoder_at_all() -> None:
    tokenizer = tiny.bert()
    tokenizer.backend_tokenizer.decoder = None
    vocabulary = Vocabulary(tokenizer)
    ids = vocabulary.encode("the fox")
    assert stream(vocabulary.detokenizer(), ids) == "the fox"


def test_a_class_with_ways_of_its_own_is_asked_itself() -> None:
    from transformers import PreTrainedTokenizerFast

    class Own(PreTrainedTokenizerFast):  # type: ignore[misc]  # transformers has no types
        def _decode(self, token_ids: Any, **options: Any) -> str:
            return str(super()._decode(token_ids, **options)).replace("fox", "hen")

    tokenizer = Own(tokenizer_object=tiny.chatml().backend_tokenizer)
    vocabulary = Vocabulary(tokenizer)
    assert stream(vocabulary.detokenizer(), vocabulary.encode("the fox ends")) == "the hen ends"


def test_an_added_token_with_letters_that_stand_for_no_byte() -> None:
    tokenizer = tiny.chatml()
    added = ["é und ä", "\uff5cx▁y\uff5c"]
    tokenizer.add_tokens([AddedToken(text, special=False) for text in added])
    vocabulary = Vocabulary(tokenizer)
    text = f"[{''.join(added)}]"
    assert stream(vocabulary.detokenizer(), vocabulary.encode(text)) == text


# -- work and threads ------------------------------------------------------------------------------


class Counted(Sequence[int]):
    """A prompt that counts how often it is looked at."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = ids
        self.looks = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return self._ids[at]

    def __reversed__(self) -> Iterator[int]:
        return (self[at] for at in range(len(self) - 1, -1, -1))


@pytest.mark.parametrize("kind", ["chatml", "spm", "t5"])
def test_of_a_long_prompt_only_the_end_is_looked_at(kind: str) -> None:
    vocabulary = Vocabulary(TOKENIZERS[kind]())
    prompt = Counted(vocabulary.encode("the fox") * 1000)
    assert stream(vocabulary.detokenizer(prompt), vocabulary.encode("end")).endswith("end")
    assert prompt.looks <= 40


@pytest.mark.parametrize("kind", ["chatml", "spm", "t5", "byt5"])
def test_eight_threads_at_once(kind: str) -> None:
    """A ninth truncates with the same tokenizer meanwhile, as its owner may."""
    tokenizer = TOKENIZERS[kind]()
    vocabulary = Vocabulary(tokenizer)
    texts = [f"The quick brown fox {n} " * 20 for n in range(8)]
    wanted = [vocabulary.encode(text) for text in texts]
    over = threading.Event()

    def disturb() -> None:
        while not over.is_set():
            tokenizer("a quick fox", truncation=True, max_length=3)

    def work(n: int) -> bool:
        return all(
            vocabulary.encode(texts[n]) == wanted[n]
            and stream(vocabulary.detokenizer(), wanted[n][:40])
            == decoded(tokenizer, wanted[n][:40])
            for _ in range(5)
        )

    with ThreadPoolExecutor(9) as threads:
        disturbing = threads.submit(disturb) if tokenizer.is_fast else None
        try:
            assert all(threads.map(work, range(8)))
        finally:
            over.set()
        if disturbing is not None:
            disturbing.result(10)
