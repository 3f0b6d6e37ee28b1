from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tokenizers import Tokenizer, decoders, models

from bourn.text.detokenize import (
    ByteDetokenizer,
    ContextDetokenizer,
    Detokenizer,
    Utf8,
    byte_fallback,
    byte_level,
)
from tests.text import tiny
from tests.text.cutting import HARD

TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "byte level": tiny.byte_level,
    "llama": tiny.llama,
    "llama, no prefix": lambda: tiny.llama(prefix_space=False),
    "unigram": tiny.unigram,
    "unigram, no prefix": lambda: tiny.unigram(prefix_space=False),
}

TEXTS = [
    "The quick brown fox. The end. Next, don't",
    "a    b",
    "  two spaces before",
    "สวัสดีครับ",
    "안녕하세요 거북이를 묘사하십시오.",
    "answer with 🔥👩‍👩‍👧‍👦🇫🇷 now",
    "prefix \ufffd after",
    "\ufffd" * 40 + "🔥",
    "c.ⱯI and 以遐为开头的词语有哪些？",  # noqa: RUF001
    "nul \0 and “quotes”\n\n\tend",
    "🔥" * 40,
    "",
]


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    make = TOKENIZERS[str(request.param)]
    return make()


def stream(detokenizer: Detokenizer, ids: Sequence[int]) -> list[str]:
    return [*(detokenizer.feed([token]) for token in ids), detokenizer.flush()]


def token_bytes(tokenizer: Tokenizer, spell: Callable[[str], bytes]) -> Callable[[int], bytes]:
    return lambda token: spell(tiny.token(tokenizer, token))


# -- bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("text", HARD)
def test_no_piece_ends_in_half_a_character(text: str, size: int) -> None:
    utf8, data = Utf8(), text.encode()
    given = [utf8.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert "".join(given) == text
    assert utf8.flush() == ""
    assert text == "\ufffd" or "\ufffd" not in "".join(given)


def test_a_character_comes_with_its_last_byte() -> None:
    utf8 = Utf8()
    assert [utf8.feed(bytes([byte])) for byte in "🔥".encode()] == ["", "", "", "🔥"]


def test_an_invalid_byte_is_replaced_at_once() -> None:
    utf8 = Utf8()
    assert utf8.feed(b"a\xff") == "a\ufffd"
    assert utf8.feed(b"\xe4\xbd") == ""
    assert utf8.feed(b"b") == "\ufffdb"


def test_a_tail_cut_by_the_limit_becomes_one_replacement() -> None:
    utf8 = Utf8()
    assert utf8.feed("a🔥".encode()[:-1]) == "a"
    assert utf8.flush() == "\ufffd"
    assert utf8.flush() == ""


# -- ids, by their bytes ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_tokens_by_their_bytes(text: str) -> None:
    tokenizer = tiny.byte_level()
    ids = tokenizer.encode(text).ids
    given = stream(ByteDetokenizer(token_bytes(tokenizer, byte_level)), ids)
    assert "".join(given) == text == tiny.decoder(tokenizer)(ids)


@pytest.mark.parametrize("text", TEXTS)
def test_byte_fallback_tokens_by_their_bytes(text: str) -> None:
    tokenizer = tiny.llama(prefix_space=False)
    ids = tokenizer.encode(text).ids
    given = stream(ByteDetokenizer(token_bytes(tokenizer, byte_fallback)), ids)
    assert "".join(given) == text == tiny.decoder(tokenizer)(ids)


def test_by_their_bytes_the_added_first_space_stays() -> None:
    tokenizer = tiny.llama()
    ids = tokenizer.encode("fox").ids
    assert "".join(stream(ByteDetokenizer(token_bytes(tokenizer, byte_fallback)), ids)) == " fox"


def test_a_token_with_characters_of_its_own_is_written_as_it_is() -> None:
    assert byte_level("<|im end|>") == b"<|im end|>"
    assert byte_level("Ġfoo") == b" foo"
    assert byte_fallback("<0x0A>") == b"\n"
    assert byte_fallback("▁<0x0A>") == b" <0x0A>"


def test_by_their_bytes_a_prompt_cut_in_a_character_is_not_given() -> None:
    tokenizer = tiny.byte_level(300)
    spell = token_bytes(tokenizer, byte_level)
    ids = tokenizer.encode("Hello world 🌶!").ids
    inside = len(tokenizer.encode("Hello world ").ids) + 2
    detokenizer = ByteDetokenizer(spell, ids[:inside])
    assert "".join(stream(detokenizer, ids[inside:])) == "🌶!"
    after = ByteDetokenizer(spell, ids[: len(ids) - 1])
    assert "".join(stream(after, ids[-1:])) == "!"


def test_a_prompt_shorter_than_a_character() -> None:
    detokenizer = ByteDetokenizer(lambda token: bytes([token]), [0xF0, 0x9F])
    assert stream(detokenizer, [0x94, 0xA5]) == ["", "🔥", ""]


# -- ids, by their context -------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_the_pieces_are_the_decoded_whole(tokenizer: Tokenizer, text: str) -> None:
    decode, ids = tiny.decoder(tokenizer), tokenizer.encode(text).ids
    assert "".join(stream(ContextDetokenizer(decode), ids)) == decode(ids)
    assert "".join(stream(ContextDetokenizer(decode), [*ids, *ids])) == decode([*ids, *ids])


@pytest.mark.parametrize("text", TEXTS)
def test_after_a_prompt_only_what_is_new(tokenizer: Tokenizer, text: str) -> None:
    decode = tiny.decoder(tokenizer)
    prompt = tokenizer.encode("What does the fox say? the end").ids
    ids = tokenizer.encode(text).ids
    whole = decode([*prompt, *ids])
    given = stream(ContextDetokenizer(decode, prompt), ids)
    assert "".join(given) == whole.removeprefix(decode(prompt))


@pytest.mark.parametrize(("before", "inside"), [(0, 1), (0, 2), (0, 3), (20, 1), (20, 2), (20, 3)])
@pytest.mark.parametrize("kind", ["byte level", "llama"])
def test_a_prompt_cut_in_a_character(kind: str, before: int, inside: int) -> None:
    tokenizer = tiny.byte_level(257) if kind == "byte level" else tiny.llama()
    decode = tiny.decoder(tokenizer)
    prompt = "Hello world " + "거" * before
    ids = tokenizer.encode(prompt + "🌶 is \ufffd hot").ids
    end = len(tokenizer.encode(prompt).ids) + inside
    assert "".join(stream(ContextDetokenizer(decode, ids[:end]), ids[end:])) == "🌶 is \ufffd hot"


def test_a_prompt_cut_in_a_token_that_begins_before_the_character() -> None:
    tokenizer = tiny.byte_level(600)
    decode = tiny.decoder(tokenizer)
    ids = tokenizer.encode("fox 👍 ok").ids
    end = next(end for end in range(len(ids)) if decode(ids[:end]) == "fox \ufffd")
    assert byte_level(tiny.token(tokenizer, ids[end - 1])).startswith(b" \xf0")
    assert "".join(stream(ContextDetokenizer(decode, ids[:end]), ids[end:])) == "👍 ok"


@pytest.mark.parametrize("kind", ["byte level", "llama"])
def test_a_prompt_whose_last_character_is_never_finished(kind: str) -> None:
    tokenizer = tiny.byte_level(257) if kind == "byte level" else tiny.llama()
    decode = tiny.decoder(tokenizer)
    prompt = tokenizer.encode("거거🌶").ids[:-2]
    x = tokenizer.encode("fox").ids[-1]
    assert "".join(stream(ContextDetokenizer(decode, prompt), [x, x])) == decode([x]).strip() * 2


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_prompt_that_ends_in_a_real_replacement_character(
    tokenizer: Tokenizer, number: int
) -> None:
    decode = tiny.decoder(tokenizer)
    ids = tokenizer.encode("what is " + "\ufffd" * number + "? it is").ids
    end = len(tokenizer.encode("what is " + "\ufffd" * number).ids)
    assert "".join(stream(ContextDetokenizer(decode, ids[:end]), ids[end:])) == "? it is"


def test_a_character_comes_as_soon_as_it_is_certain() -> None:
    tokenizer = tiny.byte_level(257)
    ids = tokenizer.encode("สวัส").ids
    given = stream(ContextDetokenizer(tiny.decoder(tokenizer)), ids)
    assert given == ["", "", "ส", "", "", "ว", "", "", "ั", "", "", "ส", ""]


def test_text_without_spaces_streams(tokenizer: Tokenizer) -> None:
    """A 300-character run: no two pieces are further apart than a character has bytes."""
    ids = tokenizer.encode("aGVsbG8gd29ybGQ" * 20).ids
    given = stream(ContextDetokenizer(tiny.decoder(tokenizer)), ids)
    assert all(given[1:-1])


def test_a_real_replacement_character_does_not_stall() -> None:
    tokenizer = tiny.byte_level(257)
    ids = tokenizer.encode("prefix \ufffd after").ids
    given = stream(ContextDetokenizer(tiny.decoder(tokenizer)), ids)
    assert "".join(given[:11]) == "prefix \ufffd "


def test_held_for_three_tokens_and_no_longer() -> None:
    """With control tokens after it, nothing tells a real one from half a character."""
    tokenizer = tiny.byte_level()
    end = tiny.number(tokenizer, "<|end|>")
    ids = [*tokenizer.encode("\ufffd").ids[-1:], end, end, end, end]
    given = stream(ContextDetokenizer(tiny.decoder(tokenizer)), ids)
    assert given == ["", "", "", "\ufffd", "", ""]


def test_a_tail_cut_by_the_limit_is_what_decode_makes_of_it(tokenizer: Tokenizer) -> None:
    decode = tiny.decoder(tokenizer)
    ids = tokenizer.encode("fox 🌶").ids[:-1]
    given = stream(ContextDetokenizer(decode), ids)
    assert "".join(given) == decode(ids)
    assert "\ufffd" not in "".join(given[:-1])


def test_the_first_space_is_as_one_shot_decode_gives_it() -> None:
    for prefix_space, first in ((True, "fox"), (False, " fox")):
        tokenizer = tiny.llama(prefix_space=prefix_space)
        ids = tokenizer.encode("fox" if prefix_space else " fox").ids
        assert "".join(stream(ContextDetokenizer(tiny.decoder(tokenizer)), ids)) == first


def test_after_a_prompt_a_space_is_a_space() -> None:
    tokenizer = tiny.llama()
    decode = tiny.decoder(tokenizer)
    prompt, ids = tokenizer.encode("the").ids, tokenizer.encode("fox").ids
    assert "".join(stream(ContextDetokenizer(decode, prompt), ids)) == " fox"


@pytest.mark.parametrize("control", [1, 8, 30, 100])
def test_control_tokens_are_no_context(control: int) -> None:
    tokenizer = tiny.llama()
    decode = tiny.decoder(tokenizer)
    end = [tiny.number(tokenizer, "</s>")] * control
    the, fox = tokenizer.encode("the").ids, tokenizer.encode("fox").ids
    assert "".join(stream(ContextDetokenizer(decode), [*end, *the, *end, *fox])) == "the fox"
    assert "".join(stream(ContextDetokenizer(decode, [*the, *end]), fox)) == " fox"
    assert "".join(stream(ContextDetokenizer(decode, end), fox)) == "fox"


def test_a_vocabulary_of_words() -> None:
    vocabulary = {"the": 0, "fo": 1, "##x": 2, ".": 3, "[UNK]": 4}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    ids = [0, 1, 2, 0, 3]
    given = stream(ContextDetokenizer(tiny.decoder(tokenizer)), ids)
    assert given == ["the", " fo", "x", " the", " .", ""]


def test_bytes_that_are_no_text_neither_stall_nor_spoil_what_follows() -> None:
    tokenizer = tiny.llama()
    broken = tiny.number(tokenizer, "<0xFF>")
    ids = [*tokenizer.encode("the end").ids, *[broken] * 100, *tokenizer.encode("the fox 🔥").ids]
    given = stream(ContextDetokenizer(tiny.decoder(tokenizer)), ids)
    text = "".join(given)
    assert text.startswith("the end\ufffd")
    assert text.endswith("\ufffd the fox 🔥")


def test_work_is_linear_in_the_tokens(tokenizer: Tokenizer) -> None:
    """What is decoded, counted: a bounded window for each token, not the text so far."""
    decode, work = tiny.decoder(tokenizer), 0

    def counted(ids: Sequence[int]) -> str:
        nonlocal work
        work += len(ids)
        return decode(ids)

    ids = tokenizer.encode(" ".join(TEXTS) * 5).ids
    stream(ContextDetokenizer(counted), ids)
    assert work < 40 * len(ids)
