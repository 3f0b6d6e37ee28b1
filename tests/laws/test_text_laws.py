"""Laws of the text filters: however the input is cut, the same comes out, and it is the right one.

The right one is told by an oracle that sees the whole text at once and is as plain as can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from bourn.text.channels import FAMILIES, Channels
from bourn.text.detokenize import (
    ByteDetokenizer,
    ContextDetokenizer,
    Detokenizer,
    Utf8,
    byte_fallback,
    byte_level,
)
from bourn.text.matcher import Matcher
from bourn.text.pipeline import Pipeline
from bourn.text.span import Span
from bourn.text.stops import StopStrings
from bourn.types import Channel, Delta, Piece, TokenLogprob
from tests.text import tiny
from tests.text.cutting import ANSWER, HARD, answer, cut, joined, run

law = settings(deadline=None, max_examples=60)  # a busy machine is no counterexample
often = settings(deadline=None, max_examples=150)

ALPHABETS = st.sampled_from(["ab", "ab", "ab<>/k"])
WORDS = st.one_of(st.text("ab<>/k", max_size=4), st.sampled_from(HARD))
HARD_TEXTS = st.lists(WORDS, max_size=20).map("".join)
TEXTS = st.one_of(ALPHABETS.flatmap(lambda letters: st.text(letters, max_size=40)), HARD_TEXTS)


class Case(NamedTuple):
    stops: tuple[str, ...]
    text: str


@st.composite
def overlapping(draw: st.DrawFn) -> Case:
    """Few letters and much text, so that stops overlap with themselves and with each other."""
    letters = draw(ALPHABETS)
    stops = draw(st.lists(st.text(letters, min_size=2, max_size=6), min_size=1, max_size=3))
    return Case(tuple(stops), draw(st.text(letters, min_size=15, max_size=40)))


@st.composite
def hard(draw: st.DrawFn) -> Case:
    """Letters of all kinds; a stop is any stretch of the text, or something else, or not there."""
    text = draw(HARD_TEXTS)
    places = draw(st.lists(st.tuples(st.integers(0, len(text)), st.integers(1, 6)), max_size=3))
    stops = [text[at : at + size] for at, size in places] + draw(st.lists(WORDS, max_size=2))
    return Case(tuple(filter(None, stops)), text)


CASES = st.one_of(overlapping(), hard())
STOPS = CASES.map(lambda case: case.stops)
CHANNELS = st.sampled_from(Channel)


def marks_of(family: str) -> list[str]:
    return sorted({mark for s in FAMILIES[family].sections.values() for mark in s.marks})


def marked(family: str) -> st.SearchStrategy[str]:
    """Text in which this family's marks are common, whole and in part, and newlines beside them."""
    marks = marks_of(family)
    parts = [part for mark in marks for part in (mark[:-1], mark[1:], mark[:2])]
    bits = st.one_of(
        st.sampled_from(marks),
        st.sampled_from([*marks, *parts]),
        st.sampled_from(["\n", "\n\n", "a", "b\n"]),
        st.sampled_from(HARD),
    )
    return st.lists(bits, min_size=4, max_size=12).map("".join)


# -- matcher and stop strings ----------------------------------------------------------------------


class Match(NamedTuple):
    start: int
    end: int


def first_match(patterns: tuple[str, ...], text: str) -> Match | None:
    """The earliest end, and of these the earliest start."""
    found = [
        (end, end - len(pattern))
        for pattern in patterns
        for end in range(len(pattern), len(text) + 1)
        if text.startswith(pattern, end - len(pattern))
    ]
    return Match(min(found)[1], min(found)[0]) if found else None


def beginning(patterns: tuple[str, ...], text: str) -> str:
    """The longest end of the text that is the beginning of a pattern, and not all of it."""
    ends = (text[at:] for at in range(len(text)))
    return next((e for e in ends if any(p != e and p.startswith(e) for p in patterns)), "")


@often
@given(CASES, st.data())
def test_the_matcher_finds_what_a_search_of_the_whole_finds(
    case: Case, data: st.DataObject
) -> None:
    patterns, text = case
    matcher, clear, found = Matcher(patterns), [""], []
    for piece in data.draw(cut(text)):
        at = 0
        while at < len(piece):
            reading = matcher.read(piece, at)
            at = reading.end
            clear[-1] += reading.clear
            if reading.found is not None:
                found.append(reading.found)
                clear.append("")
    clear[-1] += matcher.flush()
    rest = text
    for between, pattern in zip(clear, [*found, None], strict=True):
        match = first_match(patterns, rest)
        assert (rest[match.start : match.end] if match else None) == pattern
        assert between == (rest[: match.start] if match else rest)
        rest = rest[match.end :] if match else ""


@often
@given(CASES, st.data())
def test_stops_give_the_text_before_the_first_match(case: Case, data: st.DataObject) -> None:
    stops, text = case
    stage = StopStrings(stops)
    match = first_match(stops, text)
    kept = text[: match.start] if match else text
    assert run(stage, answer(*data.draw(cut(text)))) == joined(answer(kept))
    assert stage.matched == (text[match.start : match.end] if match else None)


@often
@given(CASES, st.data())
def test_stops_hold_a_true_beginning_and_nothing_more(case: Case, data: st.DataObject) -> None:
    stops, text = case
    if match := first_match(stops, text):
        text = text[: match.end - 1]
    stage, so_far, sent = StopStrings(stops), "", ""
    for piece in data.draw(cut(text)):
        so_far += piece
        sent += "".join(span.text for span in stage.feed(Span(ANSWER, piece)))
        assert stage.held == beginning(stops, so_far)
        assert sent + stage.held == so_far


@law
@given(STOPS, st.lists(st.tuples(CHANNELS, TEXTS)), st.data())
def test_stops_see_the_answer_and_let_the_rest_pass(
    stops: tuple[str, ...], spans: list[tuple[Channel, str]], data: st.DataObject
) -> None:
    whole = [Span(channel, text) for channel, text in spans]
    stage, cut_stage = StopStrings(stops), StopStrings(stops)
    out = run(stage, whole)
    cuts = [Span(c, piece) for c, text in spans for piece in data.draw(cut(text))]
    assert run(cut_stage, cuts) == out
    assert cut_stage.matched == stage.matched
    said = "".join(span.text for span in out if span.channel is ANSWER)
    wanted = "".join(text for channel, text in spans if channel is ANSWER)
    match = first_match(stops, wanted)
    assert said == (wanted[: match.start] if match else wanted)


# -- channels --------------------------------------------------------------------------------------


class Block(NamedTuple):
    channel: Channel | None
    begin: int
    end: int
    marked_before: bool
    marked_after: bool


def blocks(family: str, text: str, opened: Channel) -> Iterator[Block]:
    """The stretches between marks."""
    sections, name, at, before = FAMILIES[family].sections, str(opened), 0, opened is not ANSWER
    while True:
        section = sections[name]
        match = first_match(tuple(section.marks), text[at:])
        if match is None:
            yield Block(section.channel, at, len(text), before, marked_after=False)
            return
        yield Block(section.channel, at, at + match.start, before, marked_after=True)
        name = section.marks[text[at + match.start : at + match.end]]
        at, before = at + match.end, True


class Letter(NamedTuple):
    """`place` None: it was not in the text."""

    channel: Channel
    text: str
    place: int | None


def labelled(family: str, text: str, opened: Channel = ANSWER) -> list[Letter]:
    """What the channels should make of the whole text, letter by letter."""
    out: list[Letter] = []
    spoken: set[Channel] = set()
    for channel, block_begin, block_end, before, after in blocks(family, text, opened):
        begin, end = block_begin, block_end
        while before and begin < end and text[begin] == "\n":
            begin += 1
        paragraphs = channel is ANSWER and (ANSWER in spoken or text[begin:end].strip("\n"))
        while after and not paragraphs and begin < end and text[end - 1] == "\n":
            end -= 1
        if channel is None or begin == end:
            continue
        if before and channel in spoken and channel is not ANSWER:
            out.append(Letter(channel, "\n", None))
        spoken.add(channel)
        out += [Letter(channel, text[at], at) for at in range(begin, end)]
    return out


def openings(family: str) -> st.SearchStrategy[Channel]:
    return st.sampled_from([c for c in Channel if c in FAMILIES[family].sections])


@often
@given(st.sampled_from(sorted(FAMILIES)), st.data())
def test_channels_tell_what_the_whole_text_tells(family: str, data: st.DataObject) -> None:
    text, opened = data.draw(marked(family)), data.draw(openings(family))
    right = joined([Span(letter.channel, letter.text) for letter in labelled(family, text, opened)])
    assert run(Channels(family, opened=opened), answer(*data.draw(cut(text)))) == right


@law
@given(st.sampled_from(sorted(FAMILIES)), st.data())
def test_channels_hold_only_newlines_and_the_beginning_of_a_mark(
    family: str, data: st.DataObject
) -> None:
    text = data.draw(marked(family))
    stage = Channels(family)
    for piece in data.draw(cut(text)):
        stage.feed(Span(ANSWER, piece))
        begun = stage.held.lstrip("\n")
        marks = marks_of(family)
        assert not begun or any(mark.startswith(begun) and mark != begun for mark in marks)


@law
@given(st.sampled_from(sorted(FAMILIES)), st.data())
def test_channels_with_labelled_spans_among_the_text(family: str, data: st.DataObject) -> None:
    spans = data.draw(st.lists(st.tuples(CHANNELS, marked(family)), max_size=5))
    whole = run(Channels(family), [Span(channel, text) for channel, text in spans])
    cuts = [Span(channel, piece) for channel, text in spans for piece in data.draw(cut(text))]
    assert run(Channels(family), cuts) == whole


# -- pipeline --------------------------------------------------------------------------------------


class Right(NamedTuple):
    texts: dict[Channel, str]
    stopped: str | None
    entries: int  # how many characters of the text keep the entry that begins with them
    letters: list[Letter]  # of the answer


def by_channel(spans: list[Span]) -> dict[Channel, str]:
    """A beginning of a stop may be overtaken by another channel, so the order is not compared."""
    texts = dict.fromkeys(Channel, "")
    for channel, text in spans:
        texts[channel] += text
    return texts


def told(stops: tuple[str, ...], letters: list[Letter], length: int) -> Right:
    said = [letter for letter in letters if letter.channel is ANSWER]
    match = first_match(stops, "".join(letter.text for letter in said))
    entries = length
    if match is not None:
        stop = said[match.start]
        assert stop.place is not None
        entries = stop.place
        end = letters.index(said[match.end - 1])
        inside = said[match.start : match.end]
        letters = [letter for letter in letters[: end + 1] if letter not in inside]
    texts = by_channel([Span(letter.channel, letter.text) for letter in letters])
    stopped = "".join(x.text for x in said[match.start : match.end]) if match else None
    return Right(texts, stopped, entries, said)


def pieced(data: st.DataObject, text: str) -> list[Piece]:
    """The text as tokens of any size, several to a piece at times, each with its own entry."""
    out, place = [], 0
    for part in data.draw(cut(text)):
        tokens = data.draw(cut(part)) if data.draw(st.booleans()) else [part]
        entries = []
        for token in tokens:
            entries.append(TokenLogprob(token, -float(place)))
            place += len(token)
        out.append(Piece(part, tokens=len(tokens), logprobs=tuple(entries)))
    return out


def place_of(entry: TokenLogprob) -> int:
    return int(-entry.logprob)


FAMILY = st.one_of(st.none(), st.sampled_from(sorted(FAMILIES)))
MARKED_STOPS = st.one_of(
    st.lists(st.sampled_from(["\n", "\na", "ab", "b\n", "<", "<|", ">", "</think>"])).map(tuple),
    STOPS,
)


def written(family: str | None) -> st.SearchStrategy[str]:
    return TEXTS if family is None else marked(family)


def letters_of(family: str | None, text: str) -> list[Letter]:
    if family is None:
        return [Letter(ANSWER, letter, at) for at, letter in enumerate(text)]
    return labelled(family, text)


@law
@given(FAMILY, MARKED_STOPS, st.data())
def test_the_pipeline_is_its_filters_in_a_row(
    family: str | None, stops: tuple[str, ...], data: st.DataObject
) -> None:
    text = data.draw(written(family))
    right = told(stops, letters_of(family, text), len(text))
    pipeline = Pipeline(stops, family)
    pieces, deltas, fed = pieced(data, text), list[Delta](), 0
    if data.draw(st.booleans()):
        pieces = [Piece(piece.text, tokens=piece.tokens) for piece in pieces]
    for piece in pieces:
        deltas += pipeline.feed(piece)
        fed += piece.tokens
        assert sum(delta.tokens for delta in deltas) + pipeline.pending_tokens == fed
    deltas += pipeline.flush()
    assert by_channel([Span(delta.channel, delta.text) for delta in deltas]) == right.texts
    assert pipeline.stopped == right.stopped
    assert all(delta.text or delta.logprobs for delta in deltas)


@law
@given(FAMILY, MARKED_STOPS, st.data())
def test_each_entry_comes_once_in_order_and_not_before_its_text(
    family: str | None, stops: tuple[str, ...], data: st.DataObject
) -> None:
    text = data.draw(written(family))
    right = told(stops, letters_of(family, text), len(text))
    pipeline, entries, out = Pipeline(stops, family), list[TokenLogprob](), 0
    pieces = pieced(data, text)
    for piece in pieces:
        for delta in pipeline.feed(piece):
            entries += delta.logprobs
            out += len(delta.text) if delta.channel is ANSWER else 0
        if entries and out < len(right.letters):
            place = right.letters[out].place
            assert place is not None
            assert place_of(entries[-1]) < place or not entries[-1].token
    for delta in pipeline.flush():
        entries += delta.logprobs
    every = [entry for piece in pieces for entry in piece.logprobs]
    assert entries == every[: len(entries)]
    missing = every[len(entries) :]
    assert all(place_of(entry) >= right.entries for entry in missing)
    assert all(place_of(entry) < right.entries or not entry.token for entry in entries)


# -- characters and tokens -------------------------------------------------------------------------


@law
@given(
    st.one_of(st.binary(max_size=40), st.lists(WORDS).map(lambda w: "".join(w).encode())), st.data()
)
def test_bytes_are_decoded_as_a_whole_would_be(whole: bytes, data: st.DataObject) -> None:
    utf8, given, so_far = Utf8(), "", b""
    for piece in data.draw(cut(whole.decode("latin-1"))):
        so_far += piece.encode("latin-1")
        given += utf8.feed(piece.encode("latin-1"))
        certain = so_far.decode("utf-8", "replace")
        assert certain.startswith(given)
        assert len(certain) - len(given) <= 2  # bytes that begin a surrogate are read as two
    assert given + utf8.flush() == whole.decode("utf-8", "replace")


SENTENCES = st.lists(
    st.one_of(st.sampled_from([*HARD, "fox", " fox", "the end.", "  ", "é"]), st.text(max_size=3)),
    max_size=12,
).map("".join)

Decode = Callable[[Sequence[int]], str]


def fed(detokenizer: Detokenizer, ids: list[int], data: st.DataObject) -> str:
    """In pieces of any number of ids."""
    places = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=30)))
    borders = [0, *places, len(ids)]
    parts = [ids[a:b] for a, b in pairwise(borders)]
    return "".join([*map(detokenizer.feed, parts), detokenizer.flush()])


def after(decode: Decode, ids: list[int], end: int) -> str:
    """What is new after a prompt, which may end inside a character."""
    whole = decode(ids)
    known = 0
    for number in range(min(end, 4)):
        prompt = decode(ids[: end - number])
        common = next((i for i, (a, b) in enumerate(zip(prompt, whole)) if a != b), len(prompt))  # noqa: B905
        known = max(known, common)
    return whole[known:]


REAL = st.sampled_from(
    [
        lambda: tiny.byte_level(300),
        lambda: tiny.byte_level(600),
        tiny.llama,
        lambda: tiny.llama(prefix_space=False),
        tiny.unigram,
        lambda: tiny.unigram(prefix_space=False),
    ]
)


@law
@given(REAL, SENTENCES, st.data())
def test_streamed_ids_are_the_decoded_whole(
    make: Callable[[], Tokenizer], text: str, data: st.DataObject
) -> None:
    tokenizer = make()
    decode, ids = tiny.decoder(tokenizer), tokenizer.encode(text).ids
    assert fed(ContextDetokenizer(decode), ids, data) == decode(ids)


@law
@given(REAL, SENTENCES, st.data())
def test_streamed_ids_go_on_from_a_prompt(
    make: Callable[[], Tokenizer], text: str, data: st.DataObject
) -> None:
    tokenizer = make()
    text = text.replace("\ufffd", "")  # a prompt that ends in one reads as if it were cut there
    decode, ids = tiny.decoder(tokenizer), tokenizer.encode(text).ids
    end = data.draw(st.integers(0, len(ids)))
    given = fed(ContextDetokenizer(decode, ids[:end]), ids[end:], data)
    assert given == after(decode, ids, end)


@law
@given(st.lists(st.integers(0, 339), max_size=60), st.data())
def test_any_ids_of_a_byte_level_vocabulary(ids: list[int], data: st.DataObject) -> None:
    """Broken characters too: both ways of decoding agree with the whole."""
    tokenizer = tiny.byte_level()
    control = tiny.number(tokenizer, "<|end|>")
    ids = [token for token in ids if token != control]
    decode = tiny.decoder(tokenizer)
    by_bytes = ByteDetokenizer(lambda token: byte_level(tiny.token(tokenizer, token)))
    assert fed(by_bytes, ids, data) == decode(ids)
    assert fed(ContextDetokenizer(decode), ids, data) == decode(ids)


@law
@given(SENTENCES, st.data())
def test_ids_by_their_bytes_go_on_from_a_prompt(text: str, data: st.DataObject) -> None:
    for tokenizer, spell in (
        (tiny.byte_level(), byte_level),
        (tiny.llama(prefix_space=False), byte_fallback),
    ):
        ids = tokenizer.encode(text).ids
        spelled = [spell(tiny.token(tokenizer, token)) for token in ids]
        end = data.draw(st.integers(0, len(ids)))
        prompt = b"".join(spelled[:end]).decode("utf-8", "ignore")
        given = fed(
            ByteDetokenizer(spelled.__getitem__, range(end)), list(range(end, len(ids))), data
        )
        assert given == b"".join(spelled).decode()[len(prompt) :]
